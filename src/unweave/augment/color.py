"""Transforms that change the values of pixels and leave them where they are."""

from collections.abc import Sequence

import torch
from torch import Tensor

from unweave.augment._transform import Params, RowTransform, Size, Transform, as_range, between, per_image
from unweave.errors import UnweaveError


def grayscale(images: Tensor) -> Tensor:
    """Luma (n, 1, h, w) of RGB images, by torchvision's weights."""
    red, green, blue = images.unbind(1)
    return (0.2989 * red + 0.587 * green + 0.114 * blue).unsqueeze(1)


def _blend(images: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    factor = per_image(factor)
    return (factor * images + (1 - factor) * other).clamp(0, 1)


def adjust_brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Each image times its factor (n,)."""
    return (images * per_image(factor)).clamp(0, 1)


def adjust_contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Away from (factor > 1) or towards the mean luma of each image."""
    return _blend(images, grayscale(images).mean((1, 2, 3), keepdim=True), factor)


def adjust_saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Away from or towards each pixel's luma."""
    return _blend(images, grayscale(images), factor)


def adjust_hue(images: Tensor, shift: Tensor) -> Tensor:
    """The hue turned by ``shift`` (n,) of a full circle, value and saturation kept."""
    red, green, blue = images.unbind(1)
    value, least = torch.maximum(torch.maximum(red, green), blue), torch.minimum(torch.minimum(red, green), blue)
    chroma = value - least
    safe = torch.where(chroma == 0, torch.ones_like(chroma), chroma)
    hue = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    hue = hue + 6 * shift.view(-1, 1, 1)
    # Back to RGB by one formula for all three channels (n = 5, 3, 1): value − chroma·clamp(min(k, 4 − k), 0, 1).
    channels = []
    for n in (5.0, 3.0, 1.0):
        k = torch.remainder(hue + n, 6)
        channels.append(value - chroma * torch.minimum(k, 4 - k).clamp(0, 1))
    return torch.stack(channels, 1)


class _ColorTransform(RowTransform):
    def check(self, channels: int, size: Size) -> None:
        if channels != 3:
            raise UnweaveError(f"{type(self).__name__} needs RGB images with 3 channels, not {channels}")


class ColorJitter(_ColorTransform):
    """Brightness, contrast, saturation and hue, each image in an order of its own. As torchvision's, plus ``p``.

    >>> import torch, unweave.augment as A
    >>> A.ColorJitter(0.4, 0.4, 0.2, 0.1, p=0.8)(torch.rand(4, 3, 32, 32)).shape
    torch.Size([4, 3, 32, 32])
    """

    names = ("brightness", "contrast", "saturation", "hue")
    draws = 8

    def __init__(
        self,
        brightness: float | tuple[float, float] = 0,
        contrast: float | tuple[float, float] = 0,
        saturation: float | tuple[float, float] = 0,
        hue: float | tuple[float, float] = 0,
        *,
        p: float = 1.0,
    ) -> None:
        super().__init__(p=p)
        self.brightness = self._range("brightness", brightness)
        self.contrast = self._range("contrast", contrast)
        self.saturation = self._range("saturation", saturation)
        self.hue = self._range("hue", hue)

    @staticmethod
    def _range(name: str, value: float | tuple[float, float]) -> tuple[float, float]:
        centre, low, high = (0.0, -0.5, 0.5) if name == "hue" else (1.0, 0.0, float("inf"))
        if isinstance(value, (int, float)):
            if value < 0:
                raise UnweaveError(f"ColorJitter: {name} cannot be negative: {value}")
            value = (max(centre - value, low) if name != "hue" else -value, centre + value)
        return as_range(f"ColorJitter: {name}", value, low=low, high=high)

    def _draw(self, u: Tensor, size: Size) -> Params:
        params: Params = {name: between(u[:, i], *getattr(self, name)) for i, name in enumerate(self.names)}
        return {**params, "order": u[:, 4:8].argsort(1)}

    def _change(self, images: Tensor, params: Params) -> Tensor:
        """The four adjustments, each image in its own order: at each turn, those images together whose turn it is."""
        adjust = (adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue)
        identity = ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (0.0, 0.0))
        active = [i for i, name in enumerate(self.names) if getattr(self, name) != identity[i]]
        out = images.clone()
        for turn in range(4):
            for i in active:
                rows = (params["order"][:, turn] == i).nonzero().squeeze(1)
                if len(rows):
                    out[rows] = adjust[i](out[rows], params[self.names[i]][rows])
        return out

    def _kernel(self, images: Tensor, params: Params) -> None:
        from unweave.augment import _kernels

        _kernels.jitter_(images, params["on"], params["order"], *(params[name] for name in self.names))


class RandomGrayscale(_ColorTransform):
    """Three equal channels of luma. As torchvision's."""

    def __init__(self, *, p: float = 0.1) -> None:
        super().__init__(p=p)

    def _change(self, images: Tensor, params: Params) -> Tensor:
        return grayscale(images).expand_as(images)

    def _kernel(self, images: Tensor, params: Params) -> None:
        from unweave.augment import _kernels

        _kernels.grayscale_(images, params["on"])


class RandomSolarize(RowTransform):
    """Inverts every value at or above ``threshold``, on the scale 0 to 1. As torchvision's on float images."""

    def __init__(self, threshold: float = 0.5, *, p: float = 0.5) -> None:
        super().__init__(p=p)
        if not 0 <= threshold <= 1:
            raise UnweaveError(
                f"RandomSolarize: threshold is on the scale 0 to 1, not {threshold}; divide a uint8 threshold by 255"
            )
        self.threshold = threshold

    def _change(self, images: Tensor, params: Params) -> Tensor:
        return torch.where(images >= self.threshold, 1 - images, images)

    def _kernel(self, images: Tensor, params: Params) -> None:
        from unweave.augment import _kernels

        _kernels.solarize_(images, params["on"], self.threshold)

    def fixed(self) -> dict[str, object]:
        """The threshold."""
        return {"threshold": self.threshold}


class Normalize(Transform):
    """(image − mean) / std, channel by channel. As torchvision's."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or min(std, default=0) <= 0:
            raise UnweaveError(f"Normalize: mean and positive std of the same length, not {mean!r} and {std!r}")
        self.mean, self.std = tuple(map(float, mean)), tuple(map(float, std))

    def check(self, channels: int, size: Size) -> None:
        """One mean for each channel."""
        if channels != len(self.mean):
            raise UnweaveError(f"Normalize has {len(self.mean)} means for images with {channels} channels")

    def apply(self, images: Tensor, params: Params) -> Tensor:
        """Normalises all."""
        mean = torch.tensor(self.mean, device=images.device, dtype=images.dtype).view(-1, 1, 1)
        std = torch.tensor(self.std, device=images.device, dtype=images.dtype).view(-1, 1, 1)
        return (images - mean) / std

    def fixed(self) -> dict[str, object]:
        """All there is."""
        return {"mean": self.mean, "std": self.std}
