"""The demo's sprites: larger than those of dSprites, in eight hues, at any angle, in the middle of the image."""

import colorsys
import math

import torch
from torch import Tensor

from unweave import Sprites

SIZE = 32
HUES = 8
PALETTE = tuple(
    tuple(round(255 * channel) for channel in colorsys.hsv_to_rgb(hue / HUES, 0.85, 0.95)) for hue in range(HUES)
)
ANGLES = 39
"""The orientation that dSprites numbers 39 is a whole turn."""
HEART = 2
HEART_OFFSET = 2.0
"""Pixels from the point about which dSprites draws the heart to its middle, at scale factor 1."""


class DemoSprites:
    """n sprites with factors drawn from a seed.

    x and y are the middle of the sprite for every shape. dSprites places a heart by a point above its middle, so that
    position as an image shows it would depend on shape.
    """

    def __init__(self, n: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)

        def uniform(low: float, high: float) -> Tensor:
            return low + (high - low) * torch.rand(n, generator=generator)

        self.factors: dict[str, Tensor] = {
            "shape": torch.randint(len(Sprites.shapes), (n,), generator=generator),
            "color": torch.randint(HUES, (n,), generator=generator),
            "scale": uniform(8, 10),
            "orientation": uniform(0, ANGLES),
            "x": uniform(8, 23),
            "y": uniform(8, 23),
        }
        self._sprites = Sprites(SIZE, palette=PALETTE)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.factors["shape"])

    def __getitem__(self, index: Tensor) -> Tensor:
        factors = {name: value[index] for name, value in self.factors.items()}
        size = 0.5 + 0.1 * factors["scale"]
        offset = HEART_OFFSET * (SIZE - 1) / SIZE * size * (factors["shape"] == HEART)
        angle = factors["orientation"] * (2 * math.pi / ANGLES)
        x, y = factors["x"] + offset * angle.sin(), factors["y"] + offset * angle.cos()
        return self._sprites.render({**factors, "x": x, "y": y})
