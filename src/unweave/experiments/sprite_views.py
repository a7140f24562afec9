"""Views of sprites at the three strengths of the paper's section 5.2, and what they do to content.

Legend: n images.
"""

import functools
import itertools
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from unweave import augment as A
from unweave.data.sprites import COUNT, PALETTE, Sprites

MEAN, STD = (0.0233, 0.0210, 0.0184), (0.128, 0.106, 0.105)


@dataclass(frozen=True)
class Strength:
    """How strong the augmentations are, as in the authors' release."""

    zoom: float
    jitter: float
    hue: float
    jitter_p: float
    gray_p: float
    degrees: float
    translate: float

    def transforms(self) -> list[A.Transform]:
        """In the release's order; rotation happens half of the time."""
        return [
            A.RandomPadOrCrop(self.zoom),
            A.RandomTranslation((self.translate, self.translate)),
            A.RandomRotation(self.degrees, p=0.5),
            A.ColorJitter(self.jitter, self.jitter, self.jitter, self.hue, p=self.jitter_p),
            A.RandomGrayscale(p=self.gray_p),
        ]


STRENGTHS = {
    "weak": Strength(zoom=1.5, jitter=0.2, hue=0.1, jitter_p=0.8, gray_p=0.0, degrees=20, translate=0.15),
    "medium": Strength(zoom=2, jitter=0.4, hue=0.3, jitter_p=1.0, gray_p=0.2, degrees=60, translate=0.2),
    "strong": Strength(zoom=3, jitter=0.6, hue=0.5, jitter_p=1.0, gray_p=0.2, degrees=180, translate=0.25),
}


class WholeViews(A.Views):
    """Views in which the whole sprite can be seen: those that would cut it are drawn again.

    In a view that cuts its sprite, or has lost it, the shape cannot always be told, and pairs that do not share their
    content cannot be invariant. Each view is drawn ``tries`` times, and the first that shows all of the sprite is
    taken; if none does, the one that shows the most. Where the sprite comes to lie follows from the parameters alone.
    """

    tries = 8

    def draw_for(
        self, images: Tensor, generator: torch.Generator | None, start: int, total: int
    ) -> tuple[Tensor, Tensor]:
        """Several times, and for each view the draw that shows the most."""
        n, size = len(images), images.shape[-1]
        draws = [super(WholeViews, self).draw_for(images, generator, start, total) for _ in range(self.tries)]
        u, shared = torch.stack([u for u, _ in draws], 1), draws[0][1]  # (2, tries, n, K)
        place, radius = find_sprites(images)
        sides = self.fast_parameters(u.flatten(1, 2), u.new_zeros(()), (size, size))
        chosen = []
        for side, params in zip(u, sides, strict=True):
            matrix = self.moves(params).unflatten(0, (self.tries, n))
            room = (size - 1) / 2 - reach(matrix, place, radius)
            best = torch.where(room >= 0, 1e6 - torch.arange(self.tries, device=u.device)[:, None], room).argmax(0)
            chosen.append(side.gather(0, best[None, :, None].expand(1, n, side.shape[2])).squeeze(0))
        return torch.stack(chosen), shared

    def moves(self, params: list[A.Params]) -> Tensor:
        """All that is done to a view's pixels, one matrix (…, 3, 3) from its pixels to the image's."""
        steps = [(step.a, p) for step, p in zip(self._steps, params, strict=True)]
        matrices = [t.matrix_where_on(p) for t, p in steps if isinstance(t, A.AffineTransform)]
        return functools.reduce(torch.matmul, matrices)


def find_sprites(images: Tensor) -> tuple[Tensor, Tensor]:
    """Where in the image (n, 2), in pixels from its centre, x first, and how large a circle (n,) holds the sprite."""
    size = images.shape[-1]
    mask = images.amax(1) > (0.05 if images.is_floating_point() else 12)
    line = torch.arange(size, device=images.device) - (size - 1) / 2
    span = []
    for seen in (mask.any(1), mask.any(2)):
        low, high = torch.where(seen, line, size).amin(1), torch.where(seen, line, -size).amax(1)
        span.append((low + high) / 2)
    place = torch.stack(span, 1)
    squares = (line - place[:, :1]).square()[:, None] + (line - place[:, 1:]).square()[:, :, None]
    return place, torch.where(mask, squares, 0).amax((1, 2)).sqrt() + 0.5


def reach(matrix: Tensor, place: Tensor, radius: Tensor) -> Tensor:
    """How far from the centre, along x or y, a circle of the image reaches in a view of it: (…, n).

    ``matrix`` (…, n, 3, 3) turns, enlarges and shifts, from the view's pixels to the image's.
    """
    cos, sin = matrix[..., 0, 0], matrix[..., 1, 0]
    x, y = (place - matrix[..., :2, 2]).unbind(-1)
    shrink = cos.square() + sin.square()
    view_x, view_y = (cos * x + sin * y) / shrink, (cos * y - sin * x) / shrink
    return torch.maximum(view_x.abs(), view_y.abs()) + radius / shrink.sqrt()


@cache
def make_views(strength: str, kind: str) -> A.Views:
    """One space, content: nothing is shared. The same for every row of a strength: on a GPU they are compiled once."""
    views = {"whole": WholeViews, "release": A.Views}[kind]
    return views({}, always=[*STRENGTHS[strength].transforms(), A.Normalize(MEAN, STD)])


@cache
@torch.no_grad()
def cut_share(strength: str, kind: str = "release", images: int = 2000) -> float:
    """The share of views whose sprite is cut by the edge, or is not there at all."""
    index = torch.randint(COUNT, (images,), generator=torch.Generator().manual_seed(0))
    views = make_views(strength, kind)(Sprites()[index], generator=torch.Generator().manual_seed(0)).a
    lit = (views - views.amin((2, 3), keepdim=True)).amax(1) > 0.5
    edge = lit[:, [0, -1]].flatten(1).any(1) | lit[:, :, [0, -1]].flatten(1).any(1)
    return (edge | ~lit.flatten(1).any(1)).float().mean().item()


@cache
@torch.no_grad()
def color_groups(strength: str, draws: int = 2000) -> tuple[tuple[int, ...], ...]:
    """The palette's colours in groups that jitter can join: what even a perfect content space may tell of colour.

    Colours are joined where some jittered version of the one comes near some jittered version of the other.
    """
    jitter = [t for t in STRENGTHS[strength].transforms() if isinstance(t, (A.ColorJitter, A.RandomGrayscale))]
    generator = torch.Generator().manual_seed(0)
    clouds = []
    for color in PALETTE:
        # A sprite on black covers about a tenth of its image: contrast is about the mean of both.
        images = torch.zeros(draws, 3, 5, 5)
        images[:, :, 2, 1:3] = torch.tensor(color).view(3, 1) / 255
        for transform in jitter:
            images = transform(images, generator=generator)
        clouds.append(images[:, :, 2, 1])
    groups: list[list[int]] = []
    for i in range(len(PALETTE)):
        near = [g for g in groups if any(torch.cdist(clouds[i], clouds[j]).min() < 0.02 for j in g)]
        groups = [g for g in groups if g not in near] + [sorted([i, *itertools.chain(*near)])]
    return tuple(sorted(map(tuple, groups)))
