"""Views of sprites at the three strengths of the paper's section 5.2, and how they affect content.

Legend: n images, t draws.
"""

import functools
import itertools
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from unweave import Sprites, Views
from unweave import augment as A
from unweave.reproduce.sprite_training import MEAN, STD


@dataclass(frozen=True)
class Strength:
    """The strength of the augmentations, as in the authors' release."""

    zoom: float
    jitter: float
    hue: float
    jitter_p: float
    gray_p: float
    degrees: float
    translate: float

    def transforms(self) -> list[A.Transform]:
        """In the order of the release; half of the views are rotated."""
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


@cache
def sprite_views(strength: str, kind: str) -> Views:
    """Views in no group, so that content is the only space; cached, since on a GPU they are compiled once.

    ``kind`` is "release" for views as the authors' release draws them, or "whole": a view that would cut its sprite is
    drawn again, up to eight times, and the one that shows the most of it is kept.
    """
    redraw = {"whole": A.Redraw(room_for_sprite, tries=8), "release": None}[kind]
    return Views({}, ungrouped=[*STRENGTHS[strength].transforms(), A.Normalize(MEAN, STD)], redraw=redraw)


def room_for_sprite(images: Tensor, steps: list[tuple[A.Transform, A.Params]]) -> Tensor:
    """How far each view's sprite extends beyond the edge, in negative pixels, (t·n,): 0 where it is whole."""
    n, size = len(images), images.shape[-1]
    place, radius = find_sprites(images)
    matrices = [t.matrix_where_on(p) for t, p in steps if isinstance(t, A.AffineTransform)]
    matrix = functools.reduce(torch.matmul, matrices).unflatten(0, (-1, n))
    return ((size - 1) / 2 - reach(matrix, place, radius)).clamp(max=0).flatten()


def find_sprites(images: Tensor) -> tuple[Tensor, Tensor]:
    """The centre (n, 2) of each sprite, x first, in pixels from the image's, and a radius (n,) that covers it."""
    size = images.shape[-1]
    mask = images.amax(1) > (0.05 if images.is_floating_point() else 12)
    line = torch.arange(size, device=images.device) - (size - 1) / 2
    centre = []
    for seen in (mask.any(1), mask.any(2)):
        low, high = torch.where(seen, line, size).amin(1), torch.where(seen, line, -size).amax(1)
        centre.append((low + high) / 2)
    place = torch.stack(centre, 1)
    squares = (line - place[:, :1]).square()[:, None] + (line - place[:, 1:]).square()[:, :, None]
    return place, torch.where(mask, squares, 0).amax((1, 2)).sqrt() + 0.5


def reach(matrix: Tensor, place: Tensor, radius: Tensor) -> Tensor:
    """How far from the centre, along x or y, a circle in the image extends in a view of it: (…, n).

    ``matrix`` (…, n, 3, 3) rotates, scales and shifts, from the view's pixels to the image's.
    """
    cos, sin = matrix[..., 0, 0], matrix[..., 1, 0]
    x, y = (place - matrix[..., :2, 2]).unbind(-1)
    shrink = cos.square() + sin.square()
    view_x, view_y = (cos * x + sin * y) / shrink, (cos * y - sin * x) / shrink
    return torch.maximum(view_x.abs(), view_y.abs()) + radius / shrink.sqrt()


@cache
@torch.no_grad()
def cut_share(strength: str, kind: str = "release", images: int = 2000) -> float:
    """The fraction of views whose sprite is cut by the edge or absent."""
    index = torch.randint(Sprites.count, (images,), generator=torch.Generator().manual_seed(0))
    views = sprite_views(strength, kind)(Sprites()[index], generator=torch.Generator().manual_seed(0)).a
    lit = (views - views.amin((2, 3), keepdim=True)).amax(1) > 0.5
    edge = lit[:, [0, -1]].flatten(1).any(1) | lit[:, :, [0, -1]].flatten(1).any(1)
    return (edge | ~lit.flatten(1).any(1)).float().mean().item()


@cache
@torch.no_grad()
def color_groups(strength: str, draws: int = 2000) -> tuple[tuple[int, ...], ...]:
    """The palette in groups of colours that jitter can map to each other.

    Two colours are joined where some jittered version of one is close to some jittered version of the other. A content
    space that is fully invariant to jitter may still encode the group.
    """
    jitter = [t for t in STRENGTHS[strength].transforms() if isinstance(t, (A.ColorJitter, A.RandomGrayscale))]
    generator = torch.Generator().manual_seed(0)
    clouds = []
    for color in Sprites.default_palette:
        # A sprite covers about a tenth of its image: contrast is relative to the mean of sprite and background.
        images = torch.zeros(draws, 3, 5, 5)
        images[:, :, 2, 1:3] = torch.tensor(color).view(3, 1) / 255
        for transform in jitter:
            images = transform(images, generator=generator)
        clouds.append(images[:, :, 2, 1])
    groups: list[list[int]] = []
    for i in range(len(clouds)):
        near = [g for g in groups if any(torch.cdist(clouds[i], clouds[j]).min() < 0.02 for j in g)]
        groups = [g for g in groups if g not in near] + [sorted([i, *itertools.chain(*near)])]
    return tuple(sorted(map(tuple, groups)))
