"""Transforms that change the values of pixels and not their places."""

from collections.abc import Sequence

import torch
from torch import Tensor

from unweave.augment._transform import Params, RowTransform, Size, Transform, as_range, between
from unweave.device_cache import cached_tensor
from unweave.errors import UnweaveError


def luma(images: Tensor) -> Tensor:
    """(…, 1, h, w) of RGB images (…, 3, h, w), by torchvision's weights; of gray images (…, 1, h, w), a copy."""
    if images.shape[-3] == 1:
        return images.clone()
    red, green, blue = images.unbind(-3)
    return (0.2989 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114).unsqueeze(-3)


def adjust_brightness_(images: Tensor, factor: Tensor) -> None:
    """Each image times its factor (n, 1, 1, 1), in place."""
    images.mul_(factor).clamp_(0, 1)


def adjust_contrast_(images: Tensor, factor: Tensor) -> None:
    """Away from (factor > 1) or towards each image's mean luma."""
    mean = luma(images).mean((1, 2, 3), keepdim=True)
    images.mul_(factor).add_(mean * (1 - factor)).clamp_(0, 1)


def adjust_saturation_(images: Tensor, factor: Tensor) -> None:
    """Away from or towards each pixel's luma."""
    gray = luma(images).mul_(1 - factor)
    images.mul_(factor).add_(gray).clamp_(0, 1)


def adjust_hue_(images: Tensor, shift: Tensor) -> None:
    """The hue shifted by ``shift`` (n, 1, 1, 1) of a full circle, at the same value and saturation."""
    red, green, blue = images.split(1, 1)
    value = images.amax(1, keepdim=True)
    chroma = value - images.amin(1, keepdim=True)
    is_red, is_green = value == red, value == green
    hue = torch.where(is_red, green - blue, torch.where(is_green, blue - red, red - green))
    hue.div_(chroma.clamp(min=1e-12)).add_(torch.where(is_red, 0.0, torch.where(is_green, 2.0, 4.0))).add_(6 * shift)
    # Back to RGB by one formula for all three channels: value − chroma·clamp(min(k, 4 − k), 0, 1), k from 0 to 6.
    k = hue + cached_tensor((5.0, 3.0, 1.0), images.device).view(3, 1, 1)
    k.sub_((k / 6).floor_(), alpha=6)
    torch.addcmul(value, torch.minimum(k, 4 - k).clamp_(0, 1), chroma, value=-1, out=images)


CACHED = 2**17
"""Numbers processed at a time, so that they stay in a CPU's cache."""


class _ColorTransform(RowTransform):
    def check(self, channels: int, size: Size) -> None:
        if channels not in (1, 3):
            raise UnweaveError(f"{type(self).__name__} needs gray or RGB images, not {channels} channels")


class ColorJitter(_ColorTransform):
    """Brightness, contrast, saturation and hue, in a random order for each image. As torchvision's, plus ``p``.

    Gray images change in brightness and contrast alone.

    Examples:
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
                raise UnweaveError(f"ColorJitter: `{name}` cannot be negative: {value}")
            value = (max(centre - value, low) if name != "hue" else -value, centre + value)
        return as_range(f"ColorJitter: `{name}`", value, low=low, high=high)

    def _draw(self, u: Tensor, size: Size) -> Params:
        params: Params = {name: between(u[:, i], *getattr(self, name)) for i, name in enumerate(self.names)}
        return {**params, "order": u[:, 4:8].argsort(1)}

    def _change(self, images: Tensor, params: Params) -> Tensor:
        """Images with the same order are processed together."""
        adjust = (adjust_brightness_, adjust_contrast_, adjust_saturation_, adjust_hue_)
        identity = (1.0, 1.0, 1.0, 0.0)
        # Not by the ranges: shared parameters may be those of the other view, whose ranges can be wider.
        active = [bool((params[name] != identity[i]).any()) for i, name in enumerate(self.names)]
        if images.shape[1] == 1:
            active[2:] = [False, False]  # gray images have neither saturation nor hue
        together = max(1, CACHED // images[0].numel())
        out = torch.empty_like(images)
        orders, which = params["order"].unique(dim=0, return_inverse=True)
        for place, order in enumerate(orders.tolist()):
            for rows in (which == place).nonzero().squeeze(1).split(together):
                part = images[rows]
                for i in order:
                    if active[i]:
                        adjust[i](part, params[self.names[i]][rows].view(-1, 1, 1, 1))
                out[rows] = part
        return out

    def _kernel(self, images: Tensor, params: Params) -> None:
        from unweave.augment import _kernels

        rgb = images if images.shape[1] == 3 else images.repeat(1, 3, 1, 1)
        _kernels.jitter_(rgb, params["on"], params["order"], *(params[name] for name in self.names))
        if rgb is not images:
            images.copy_(rgb[:, :1])


class RandomGrayscale(_ColorTransform):
    """Three equal channels of luma. As torchvision's.

    Examples:
        >>> import torch, unweave.augment as A
        >>> gray = A.RandomGrayscale(p=1.0)(torch.rand(2, 3, 4, 4))
        >>> torch.equal(gray[:, 0], gray[:, 1])
        True
    """

    def __init__(self, *, p: float = 0.1) -> None:
        super().__init__(p=p)

    def _change(self, images: Tensor, params: Params) -> Tensor:
        return luma(images).expand_as(images)

    def _kernel(self, images: Tensor, params: Params) -> None:
        from unweave.augment import _kernels

        if images.shape[1] == 3:
            _kernels.grayscale_(images, params["on"])


class RandomSolarize(RowTransform):
    """Inverts every value at or above ``threshold``, on the scale 0 to 1. As torchvision's on float images.

    Examples:
        >>> import torch, unweave.augment as A
        >>> A.RandomSolarize(0.5, p=1.0)(torch.tensor([0.25, 0.75]).view(1, 1, 1, 2)).flatten()
        tensor([0.2500, 0.2500])
    """

    def __init__(self, threshold: float = 0.5, *, p: float = 0.5) -> None:
        super().__init__(p=p)
        if not 0 <= threshold <= 1:
            raise UnweaveError(
                f"RandomSolarize: `threshold` is on the scale 0 to 1, not {threshold}; divide a uint8 threshold by 255"
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
    """(image − mean) / std, channel by channel. As torchvision's.

    Examples:
        >>> import torch, unweave.augment as A
        >>> A.Normalize((0.5,) * 3, (0.25,) * 3)(torch.ones(1, 3, 1, 1)).flatten()
        tensor([2., 2., 2.])
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or min(std, default=0) <= 0:
            raise UnweaveError(
                f"Normalize: `mean` and positive `std` must have the same length, not {mean!r} and {std!r}"
            )
        self.mean, self.std = tuple(map(float, mean)), tuple(map(float, std))

    def check(self, channels: int, size: Size) -> None:
        """One mean for each channel."""
        if channels != len(self.mean):
            raise UnweaveError(f"Normalize has {len(self.mean)} means for images with {channels} channels")

    def apply(self, images: Tensor, params: Params) -> Tensor:
        """Normalises all images."""
        mean = cached_tensor(self.mean, images.device, images.dtype).view(-1, 1, 1)
        std = cached_tensor(self.std, images.device, images.dtype).view(-1, 1, 1)
        return (images - mean) / std

    def fixed(self) -> dict[str, object]:
        """Mean and standard deviation."""
        return {"mean": self.mean, "std": self.std}
