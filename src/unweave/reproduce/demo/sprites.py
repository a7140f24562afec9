"""The demo's sprites: larger than those of dSprites, in eight hues, anywhere in the middle of the image."""

import colorsys

import torch
from torch import Tensor

from unweave import Sprites

SIZE = 32
HUES = 8
PALETTE = tuple(
    tuple(round(255 * channel) for channel in colorsys.hsv_to_rgb(hue / HUES, 0.85, 0.95)) for hue in range(HUES)
)


class DemoSprites:
    """n sprites with factors drawn from a seed."""

    def __init__(self, n: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)

        def uniform(low: float, high: float) -> Tensor:
            return low + (high - low) * torch.rand(n, generator=generator)

        self.factors: dict[str, Tensor] = {
            "shape": torch.randint(len(Sprites.shapes), (n,), generator=generator),
            "color": torch.randint(HUES, (n,), generator=generator),
            "scale": uniform(7, 11),
            "orientation": torch.zeros(n),
            "x": uniform(6, 25),
            "y": uniform(6, 25),
        }
        self._sprites = Sprites(SIZE, palette=PALETTE)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.factors["shape"])

    def __getitem__(self, index: Tensor) -> Tensor:
        return self._sprites.render({name: value[index] for name, value in self.factors.items()})
