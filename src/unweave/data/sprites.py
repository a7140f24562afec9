"""ColorDSprites, rendered on demand.

dSprites (Matthey et al. 2017) has one white shape on black, in all combinations of 3 shapes, 6 scales, 40 orientations
and 32×32 positions: 737,280 images, numbered here as in the official file. ColorDSprites gives each one of ten colours.
Nothing is stored: an index is converted to factors, and factors to pixels, on any device.

Legend: n images, s pixels per side.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unweave.device_cache import cached_tensor
from unweave.errors import UnweaveError

SHAPES = ("square", "ellipse", "heart")
SIZES = {"shape": 3, "scale": 6, "orientation": 40, "x": 32, "y": 32}
COUNT = math.prod(SIZES.values())

PALETTE = (  # matplotlib's tab10
    (31, 119, 180), (255, 127, 14), (44, 160, 44), (214, 39, 40), (148, 103, 189),
    (140, 86, 75), (227, 119, 194), (127, 127, 127), (188, 189, 34), (23, 190, 207),
)  # fmt: skip

SQUARE = 9.6  # half a side
ELLIPSE = (12.8, 7.2)  # half axes
HEART = (
    # Radius at 33 angles from the notch (up) to the tip (down), measured on published frames; the rest is mirrored.
    5.14, 6.83, 8.18, 9.23, 10.05, 10.57, 10.97, 11.19, 11.26, 11.23, 11.07, 10.77, 10.42, 9.88, 9.33, 8.71, 8.12,
    7.58, 7.12, 6.78, 6.45, 6.23, 6.08, 5.93, 5.93, 5.93, 5.95, 6.14, 6.37, 6.70, 7.20, 8.02, 9.04,
)  # fmt: skip

Factors = dict[str, Tensor]


class Sprites:
    """All 737,280 coloured sprites by index.

    Args:
        size: pixels per side, at most 64; smaller images show the same scene more coarsely.
        palette: the colours, as RGB triples of 0–255.
        seed: of the random assignment of colours to sprites.
        npz: the official ``dsprites_ndarray_….npz``, whose images then replace the rendered ones.

    Examples:
        >>> sprites = Sprites(size=32)
        >>> images = sprites[torch.tensor([0, 737_279])]
        >>> images.shape, images.dtype
        (torch.Size([2, 3, 32, 32]), torch.uint8)
        >>> {name: int(value[1]) for name, value in sprites.factors(torch.tensor([0, 737_279])).items()}
        {'shape': 2, 'scale': 5, 'orientation': 39, 'x': 31, 'y': 31, 'color': ...}
    """

    count = COUNT
    """The number of sprites."""
    shapes = SHAPES
    """The names of the shapes."""
    factor_sizes = SIZES
    """The number of values of each factor but color."""
    default_palette = PALETTE
    """The ten colours."""

    def __init__(
        self,
        size: int = 64,
        *,
        palette: tuple[tuple[int, int, int], ...] = PALETTE,
        seed: int = 0,
        npz: str | Path | None = None,
    ) -> None:
        if not 8 <= size <= 64:
            raise UnweaveError(f"Sprites: `size` must be 8 to 64 pixels, not {size}")
        self.size = size
        self.palette = torch.tensor(palette, dtype=torch.uint8)
        if self.palette.ndim != 2 or self.palette.shape[1] != 3:
            raise UnweaveError("Sprites: `palette` must be a list of RGB triples")
        generator = torch.Generator().manual_seed(seed)
        self._colors = torch.randint(len(palette), (COUNT,), generator=generator, dtype=torch.uint8)
        self._official = None if npz is None else _load_official(npz, size)

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: Tensor) -> Tensor:
        """Images (n, 3, s, s), uint8, of the sprites with these numbers, on the index's device."""
        factors = self.factors(index)
        if self._official is None:
            return self.render(factors)
        masks = torch.from_numpy(np.unpackbits(self._official[index.cpu().numpy()], axis=1).reshape(-1, 64, 64))
        return self.paint(masks.to(index.device).bool(), factors["color"])

    def factors(self, index: Tensor) -> Factors:
        """The value of each factor, as a whole number from 0, (n,) each."""
        on_gpu = index.is_cuda  # where the check would wait for the work queued before it
        if index.numel() and not on_gpu and not (int(index.min()) >= 0 and int(index.max()) < COUNT):
            raise UnweaveError(
                f"sprites are numbered from 0 to {COUNT - 1}, not from {int(index.min())} to {int(index.max())}"
            )
        rest, factors = index, {}
        for name, values in reversed(SIZES.items()):
            factors[name] = rest % values
            rest = rest // values
        ordered = {name: factors[name] for name in SIZES}
        if self._colors.device != index.device:
            self._colors = self._colors.to(index.device)
        return {**ordered, "color": self._colors[index].long()}

    def index(self, factors: Mapping[str, Tensor]) -> Tensor:
        """The number of the sprite with these factors (colour aside): the inverse of ``factors``."""
        index = torch.zeros_like(factors["shape"])
        for name, values in SIZES.items():
            index = index * values + factors[name]
        return index

    def render(self, factors: Mapping[str, Tensor]) -> Tensor:
        """Images (n, 3, s, s), uint8, of any factors; all but shape and color may be fractions."""
        masks = render_masks(
            factors["shape"],
            scale=0.5 + 0.1 * factors["scale"],
            angle=factors["orientation"] * (2 * math.pi / 39),
            x=16 + factors["x"] * (32 / 31),
            y=16 + factors["y"] * (32 / 31),
            size=self.size,
        )
        return self.paint(masks, factors["color"])

    def paint(self, masks: Tensor, color: Tensor) -> Tensor:
        """Masks (n, s, s) painted in the palette's colours (n,)."""
        if self.palette.device != masks.device:
            self.palette = self.palette.to(masks.device)
        rgb = self.palette[color]
        return masks.unsqueeze(1) * rgb[:, :, None, None]


class StoredSprites:
    """Some of the sprites, rendered once and kept as masks on a device: 3 GB for all of them at 64 pixels.

    Examples:
        >>> stored = StoredSprites(Sprites(size=8), torch.tensor([5, 7]))
        >>> stored[torch.tensor([1])].shape
        torch.Size([1, 3, 8, 8])
    """

    def __init__(self, sprites: Sprites, index: Tensor, device: torch.device | str = "cpu") -> None:
        self._sprites, self._index = sprites, index.to(device)
        self.factors = sprites.factors(self._index)
        self._masks = torch.cat([sprites[part].amax(1) > 0 for part in self._index.split(8192)])

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self._sprites.paint(self._masks[rows], self.factors["color"][rows])


def render_masks(shape: Tensor, *, scale: Tensor, angle: Tensor, x: Tensor, y: Tensor, size: int = 64) -> Tensor:
    """Which pixels (n, s, s) a sprite covers; lengths are in pixels of a 64×64 image, angles in radians."""
    pixel = (torch.arange(size, device=shape.device) + 0.5) * (64 / size)

    def frame(rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Both coordinates of every pixel in the sprite's own frame."""
        cos, sin = (f(angle[rows].float()) / scale[rows] for f in (torch.cos, torch.sin))
        dx, dy = pixel - x[rows, None], pixel - y[rows, None]
        # Each is the sum of a function of the column and a function of the row.
        u = (cos[:, None] * dx)[:, None, :] - (sin[:, None] * dy)[:, :, None]
        v = (sin[:, None] * dx)[:, None, :] + (cos[:, None] * dy)[:, :, None]
        return u, v

    inside = (_in_square, _in_ellipse, _in_heart)
    if shape.is_cuda:  # all three tests for all sprites: reading the shapes would wait for the GPU
        u, v = frame(slice(None))
        kinds = torch.stack([test(u, v) & (shape == kind)[:, None, None] for kind, test in enumerate(inside)])
        return kinds.any(0)
    masks = torch.empty(len(shape), size, size, dtype=torch.bool)
    for kind, test in enumerate(inside):
        rows = (shape == kind).nonzero().squeeze(1)
        masks[rows] = test(*frame(rows))
    return masks


def _in_square(u: Tensor, v: Tensor) -> Tensor:
    return torch.maximum(u.abs(), v.abs()) < SQUARE


def _in_ellipse(u: Tensor, v: Tensor) -> Tensor:
    return (u / ELLIPSE[0]) ** 2 + (v / ELLIPSE[1]) ** 2 < 1


def _in_heart(u: Tensor, v: Tensor) -> Tensor:
    outline = cached_tensor(HEART, u.device)
    steps = torch.diff(outline, append=outline[-1:])
    place = (torch.atan2(v, u.abs()) / math.pi + 0.5) * (len(HEART) - 1)
    knot = place.to(torch.int32).clamp_(0, len(HEART) - 1)
    radius = outline[knot] + steps[knot] * (place - knot)
    return torch.hypot(u, v) < radius


def _load_official(path: str | Path, size: int) -> np.ndarray:
    """The official masks, eight pixels per byte: 377 MB instead of 3 GB."""
    if size != 64:
        raise UnweaveError(f"Sprites: with `npz`, `size` must be 64, not {size}")
    try:
        with np.load(path) as archive:
            images = archive["imgs"]
    except (OSError, ValueError, KeyError) as error:
        raise UnweaveError(f"{path} is not the official dSprites file: {error}") from None
    if images.shape != (COUNT, 64, 64):
        raise UnweaveError(f"{path}: expected {COUNT} images of 64×64, found {images.shape}")
    return np.packbits(images.reshape(COUNT, -1).astype(bool), axis=1)
