"""Pairs of views of sprites that share shape and one of color, scale, orientation, x and y.

The views can meet the theorem's assumptions: each group covers the whole range of its factor and leaves the others
unchanged. ``latents`` draws the factor again and renders the sprite (perfect interventions); ``pixels`` finds the
sprite in its image and rotates, scales, moves and recolours it about its centre; ``zoom`` does the same, but changes
the size by a factor instead of setting it.

A pair never relates the sizes of two shapes: what one shape's size corresponds to in another is decided by the
distribution of sizes given shape, since the scale space is to be independent of content. Where size is set, that is the
area, which at one scale differs by shape; where it is changed by a factor, the order of sizes within a shape, which is
scale. ``python -m unweave.reproduce.sprite_spaces.pixel_scale`` counts both.

Legend: n images, M groups.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from unweave import Pair, Sprites
from unweave import augment as A
from unweave.describe import Described
from unweave.reproduce.sprite_training import MEAN, STD

GROUPS = ("color", "scale", "orientation", "x", "y")
SPACES = ("content", *GROUPS)
FACTORS = ("shape", *GROUPS)
Mode = Literal["latents", "pixels", "zoom"]
PALETTE = torch.tensor(Sprites.default_palette) / 255
NARROWEST, WIDEST = 7.0, 20.5
"""Range of the square root of a sprite's area, in pixels of a 64-pixel image: sprites have 7.4 to 20."""
ZOOM = (0.7, 1.4)
"""Range of the factor by which ``zoom`` changes the size; its logarithm is uniform."""


class SpriteViews(Described):
    """Makes pairs from sprites that are given by their factors (n, 6), in the order of ``FACTORS``."""

    spaces = SPACES

    def __init__(self, size: int, mode: Mode) -> None:
        self.mode, self._sprites = mode, Sprites(size)
        self._normalize = A.Normalize(MEAN, STD)
        self._palette = PALETTE

    def __call__(
        self,
        factors: Tensor,
        *,
        generator: torch.Generator | None = None,
        start: int = 0,
        total: int | None = None,
    ) -> Pair:
        """Two views of each sprite; the l-th pair of the global batch shares group l mod (M + 1)."""
        n = len(factors)
        total = start + n if total is None else total
        source = factors.device if generator is None else generator.device
        u = torch.rand(total, 2, len(GROUPS), generator=generator, device=source)[start : start + n].to(factors.device)
        kinds = A.pair_kinds(n, len(GROUPS), start=start, device=u.device)
        same = kinds[:, None] == torch.arange(1, len(SPACES), device=u.device)
        first, second = u[:, 0], torch.where(same, u[:, 0], u[:, 1])
        shared = A.pair_kinds(n, len(GROUPS), start=start)
        return Pair(self._view(factors, first), self._view(factors, second), shared)

    @property
    def preparation(self) -> list[A.Transform]:
        """The transforms of ``prepare``."""
        return [self._normalize]

    def prepare(self, factors: Tensor) -> Tensor:
        """The sprites without augmentation."""
        return self._normalized(self.render(factors).float() / 255)

    def render(self, factors: Tensor) -> Tensor:
        """uint8 images; shape and color are whole numbers."""
        named = dict(zip(FACTORS, factors.unbind(1), strict=True))
        return self._sprites.render({**named, "shape": named["shape"].long(), "color": named["color"].long()})

    def _view(self, factors: Tensor, u: Tensor) -> Tensor:
        if self.mode == "latents":
            return self._normalized(self.render(torch.cat([factors[:, :1], draw_factors(u)], 1)).float() / 255)
        if self._palette.device != u.device:
            self._palette = self._palette.to(u.device)
        images = self.render(factors).float() / 255
        return self._normalized(transform_sprites(images, u, self._palette, relative=self.mode == "zoom"))

    def _normalized(self, images: Tensor) -> Tensor:
        on = {"on": torch.ones(len(images), dtype=torch.bool, device=images.device)}
        return self._normalize.apply(images, on)


def draw_factors(u: Tensor) -> Tensor:
    """Factors in the order of ``GROUPS`` from uniform numbers (n, 5); all but color are continuous."""
    color = (u[:, 0] * len(PALETTE)).floor().clamp(max=len(PALETTE) - 1)
    return torch.stack([color, u[:, 1] * 5, u[:, 2] * 39, u[:, 3] * 31, u[:, 4] * 31], 1)


def transform_sprites(images: Tensor, u: Tensor, palette: Tensor, *, relative: bool = False) -> Tensor:
    """Images (n, 3, s, s) whose sprite is rotated and scaled about its centre, moved and painted, as ``u`` (n, 5) says.

    Position, size and color are set, not changed: they do not depend on the sprite's previous ones; with ``relative``
    the size is changed by a factor. Edges are as hard as those of rendered images.
    """
    size = images.shape[-1]
    mask = (images.amax(1) > 0.05).float()
    place = torch.arange(size, device=images.device) - (size - 1) / 2
    area = mask.sum((1, 2)).clamp(min=1)
    center_x, center_y = (mask.sum(1) * place).sum(1) / area, (mask.sum(2) * place).sum(1) / area
    if relative:
        zoom = ZOOM[0] * (ZOOM[1] / ZOOM[0]) ** u[:, 1]
    else:
        zoom = (size / 64) * (NARROWEST + (WIDEST - NARROWEST) * u[:, 1]) / area.sqrt()
    angle = u[:, 2] * (2 * math.pi)
    to_x, to_y = ((value - 0.5) * (size / 2) for value in (u[:, 3], u[:, 4]))
    cos, sin = angle.cos() / zoom, angle.sin() / zoom
    zero, one = torch.zeros_like(cos), torch.ones_like(cos)
    # From a pixel of the view back to the sprite's place, orientation and size in the image.
    matrix = torch.stack(
        [
            torch.stack([cos, -sin, center_x - cos * to_x + sin * to_y], 1),
            torch.stack([sin, cos, center_y - sin * to_x - cos * to_y], 1),
            torch.stack([zero, zero, one], 1),
        ],
        1,
    )
    # Jitter would shift hue but keep saturation and value, which identify the palette's colors: paint instead.
    brightest = images.amax((1, 2, 3), keepdim=True).clamp(min=1e-6)
    light = (A.warp((images / brightest).amax(1, keepdim=True), matrix, "bilinear") > 0.5).float()
    return light * palette[draw_factors(u)[:, 0].long()][:, :, None, None]


class SpriteFactors:
    """Sprites by their factors, (n, 6) float, in the order of ``FACTORS``."""

    def __init__(self, index: Tensor, device: str) -> None:
        named = Sprites(8).factors(index)
        self._rows = torch.stack([named[name].float() for name in FACTORS], 1).to(device)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self._rows[rows]
