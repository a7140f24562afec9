"""Transforms that move pixels."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from unweave.augment._resample import Filter, crop_one_by_one, gaussian_blur, separable, warp, window_weights
from unweave.augment._transform import (
    Params,
    RowTransform,
    Size,
    Transform,
    as_range,
    between,
)
from unweave.errors import UnweaveError
from unweave.gpu import triton_works

WINDOW = ("top", "left", "height", "width")


class RandomResizedCrop(Transform):
    """A window of random area and aspect ratio, resized with antialiasing. As torchvision's, plus ``p``.

    An image that is not cropped (``p`` < 1) is resized whole. Ten windows are drawn and the first that fits is used;
    if none fits, the largest central one within ``ratio``.

    Examples:
        >>> import torch, unweave.augment as A
        >>> A.RandomResizedCrop(32)(torch.zeros(4, 3, 48, 64, dtype=torch.uint8)).shape
        torch.Size([4, 3, 32, 32])
    """

    tries = 10
    geometric = True
    draws = 2 * tries + 2

    def __init__(
        self,
        size: int | Sequence[int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        interpolation: Filter = "bilinear",
        *,
        p: float = 1.0,
    ) -> None:
        super().__init__(p=p)
        self.size = (size, size) if isinstance(size, int) else (int(size[0]), int(size[-1]))
        if min(self.size) < 1:
            raise UnweaveError(f"RandomResizedCrop: `size` must be at least 1 pixel, not {size}")
        self.scale = as_range("RandomResizedCrop: `scale`", scale, low=0, high=1)
        self.ratio = as_range("RandomResizedCrop: `ratio`", ratio, low=1e-6)
        if interpolation not in ("bilinear", "bicubic"):
            raise UnweaveError(f"RandomResizedCrop: `interpolation` is 'bilinear' or 'bicubic', not {interpolation!r}")
        self.interpolation = interpolation

    def _draw(self, u: Tensor, size: Size) -> Params:
        height, width = size
        area, shape, place = u.split([self.tries, self.tries, 2], 1)
        area = height * width * between(area, *self.scale)
        ratio = between(shape, math.log(self.ratio[0]), math.log(self.ratio[1])).exp()
        w, h = (area * ratio).sqrt().round(), (area / ratio).sqrt().round()
        fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
        first = fits.to(torch.uint8).argmax(1, keepdim=True)
        w, h = (x.gather(1, first).squeeze(1) for x in (w, h))
        top = (place[:, 0] * (height - h + 1)).floor().minimum(height - h)
        left = (place[:, 1] * (width - w + 1)).floor().minimum(width - w)
        found = fits.any(1)
        central = self._central_window(size)
        return {
            name: torch.where(found, value, torch.full_like(value, fallback))
            for name, value, fallback in zip(WINDOW, (top, left, h, w), central, strict=True)
        }

    def parameters(self, u: Tensor, size: Size) -> Params:
        """A window for every image; the whole image for those that are not on."""
        params = super().parameters(u, size)
        whole = dict(zip(WINDOW, (0.0, 0.0, *map(float, size)), strict=True))
        return {
            name: torch.where(params["on"], value, whole[name]) if name in whole else value
            for name, value in params.items()
        }

    def _central_window(self, size: Size) -> tuple[int, int, int, int]:
        h, w = size
        if w / h < self.ratio[0]:
            h = round(w / self.ratio[0])
        elif w / h > self.ratio[1]:
            w = round(h * self.ratio[1])
        return (size[0] - h) // 2, (size[1] - w) // 2, h, w

    def apply(self, images: Tensor, params: Params, flip: Tensor | None = None) -> Tensor:
        """Crops and resizes uint8 or float images; ``flip`` (n,) mirrors the outcome in the same resampling."""
        top, left, height, width = (params[name] for name in WINDOW)
        flip = torch.zeros_like(params["on"]) if flip is None else flip
        if images.is_cuda and triton_works():
            from unweave.augment import _kernels

            bicubic = self.interpolation == "bicubic"
            out = _kernels.crop(images, top, left, height, width, flip, self.size, bicubic)
        elif self.size[0] * self.size[1] > 128**2 and images.device.type == "cpu":
            out = crop_one_by_one(images, top, left, height, width, flip, self.size, self.interpolation)
        else:
            rows = window_weights(top, height, images.shape[2], self.size[0], self.interpolation)
            columns = window_weights(left, width, images.shape[3], self.size[1], self.interpolation, flip)
            out = separable(images, rows, columns)
            if images.dtype == torch.uint8:
                out /= 255
        return out.clamp_(0, 1) if self.interpolation == "bicubic" else out

    def output_size(self, size: Size) -> Size:
        """The size asked for."""
        return self.size

    def fixed(self) -> dict[str, object]:
        """The output's size and the filter."""
        return {"size": self.size, "interpolation": self.interpolation}


class RandomHorizontalFlip(RowTransform):
    """Mirrors left and right. As torchvision's; after a ``RandomResizedCrop`` it is part of the same resampling.

    Examples:
        >>> import torch, unweave.augment as A
        >>> A.RandomHorizontalFlip(p=1.0)(torch.tensor([0.0, 1.0]).view(1, 1, 1, 2)).flatten()
        tensor([1., 0.])
    """

    geometric = True

    def __init__(self, *, p: float = 0.5) -> None:
        super().__init__(p=p)

    def _change(self, images: Tensor, params: Params) -> Tensor:
        return images.flip(-1)


class AffineTransform(Transform):
    """Base of affine maps. Adjacent ones are multiplied, so that the image is resampled once.

    Examples:
        >>> import torch, unweave.augment as A
        >>> class Mirror(A.AffineTransform):
        ...     def matrix(self, params):
        ...         return torch.diag(torch.tensor([-1.0, 1.0, 1.0])).expand(len(params["on"]), 3, 3)
        >>> Mirror()(torch.tensor([0.0, 1.0]).view(1, 1, 1, 2)).flatten()
        tensor([1., 0.])
    """

    geometric = True

    def __init__(self, interpolation: Literal["bilinear", "nearest"] = "bilinear", *, p: float = 1.0) -> None:
        super().__init__(p=p)
        if interpolation not in ("bilinear", "nearest"):
            raise UnweaveError(
                f"{type(self).__name__}: `interpolation` is 'bilinear' or 'nearest', not {interpolation!r}"
            )
        self.interpolation = interpolation

    def matrix(self, params: Params) -> Tensor:
        """(n, 3, 3), from an output pixel to the input pixel it shows, in pixels from the image's centre."""
        raise NotImplementedError

    def matrix_where_on(self, params: Params) -> Tensor:
        """``matrix``, and the identity for images that are not on."""
        matrices = self.matrix(params)
        identity = torch.eye(3, device=matrices.device, dtype=matrices.dtype)
        return torch.where(params["on"][:, None, None], matrices, identity)

    def apply(self, images: Tensor, params: Params) -> Tensor:
        """Resamples along the matrices."""
        return warp(images, self.matrix_where_on(params), self.interpolation)

    def fixed(self) -> dict[str, object]:
        """The interpolation."""
        return {"interpolation": self.interpolation}


def _stack3x3(rows: list[list[Tensor]]) -> Tensor:
    zero, one = torch.zeros_like(rows[0][0]), torch.ones_like(rows[0][0])
    rows = [*rows, [zero, zero, one]]
    return torch.stack([torch.stack(row, -1) for row in rows], -2)


class RandomRotation(AffineTransform):
    """Rotates about the image's centre by a uniform angle in degrees, counter-clockwise. As torchvision's, plus ``p``.

    Examples:
        >>> import torch, unweave.augment as A
        >>> A.RandomRotation(180, p=0.5)(torch.rand(2, 3, 16, 16)).shape
        torch.Size([2, 3, 16, 16])
    """

    draws = 1

    def __init__(
        self,
        degrees: float | tuple[float, float],
        interpolation: Literal["bilinear", "nearest"] = "bilinear",
        *,
        p: float = 1.0,
    ) -> None:
        super().__init__(interpolation, p=p)
        if isinstance(degrees, (int, float)):
            if degrees < 0:
                raise UnweaveError(
                    f"RandomRotation: `degrees` as one number means ±degrees and cannot be negative: {degrees}"
                )
            degrees = (-float(degrees), float(degrees))
        self.degrees = as_range("RandomRotation: `degrees`", degrees, low=-math.inf)

    def _draw(self, u: Tensor, size: Size) -> Params:
        return {"angle": between(u[:, 0], *self.degrees)}

    def matrix(self, params: Params) -> Tensor:
        """The rotation that undoes the angle."""
        angle = params["angle"] * (math.pi / 180)
        cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
        return _stack3x3([[cos, -sin, zero], [sin, cos, zero]])


class RandomTranslation(AffineTransform):
    """Moves by whole pixels, up to a fraction of the width and height: torchvision's ``RandomAffine(0, translate)``.

    Examples:
        >>> import torch, unweave.augment as A
        >>> A.RandomTranslation((0.2, 0.2))(torch.rand(2, 3, 16, 16)).shape
        torch.Size([2, 3, 16, 16])
    """

    draws = 2

    def __init__(
        self,
        translate: tuple[float, float],
        interpolation: Literal["bilinear", "nearest"] = "bilinear",
        *,
        p: float = 1.0,
    ) -> None:
        super().__init__(interpolation, p=p)
        if not (isinstance(translate, Sequence) and len(translate) == 2 and all(0 <= t <= 1 for t in translate)):
            raise UnweaveError(
                f"RandomTranslation: `translate` is two fractions in [0, 1], (of width, of height), not {translate!r}"
            )
        self.translate = (float(translate[0]), float(translate[1]))

    def _draw(self, u: Tensor, size: Size) -> Params:
        height, width = size
        x, y = self.translate[0] * width, self.translate[1] * height
        return {"x": between(u[:, 0], -x, x).round(), "y": between(u[:, 1], -y, y).round()}

    def matrix(self, params: Params) -> Tensor:
        """The shift back."""
        zero, one = torch.zeros_like(params["x"]), torch.ones_like(params["x"])
        return _stack3x3([[one, zero, -params["x"]], [zero, one, -params["y"]]])


class RandomZoom(AffineTransform):
    """Enlarges by a uniform factor about the image's centre: torchvision's ``RandomAffine(0, scale=scale)``.

    Examples:
        >>> import torch, unweave.augment as A
        >>> A.RandomZoom((0.8, 1.25))(torch.rand(2, 3, 16, 16)).shape
        torch.Size([2, 3, 16, 16])
    """

    draws = 1

    def __init__(
        self,
        scale: tuple[float, float],
        interpolation: Literal["bilinear", "nearest"] = "bilinear",
        *,
        p: float = 1.0,
    ) -> None:
        super().__init__(interpolation, p=p)
        self.scale = as_range("RandomZoom: `scale`", scale, low=1e-6)

    def _draw(self, u: Tensor, size: Size) -> Params:
        return {"scale": between(u[:, 0], *self.scale)}

    def matrix(self, params: Params) -> Tensor:
        """The scale back."""
        inverse = 1 / params["scale"]
        zero = torch.zeros_like(inverse)
        return _stack3x3([[inverse, zero, zero], [zero, inverse, zero]])


class RandomPadOrCrop(RandomZoom):
    """Half of the images are padded with black, half are cropped about their centre; both are resized to their size.

    The zoom of the ColorDSprites experiments: padded by up to int(side/10·s − 1) pixels on every side, or cropped to
    between int(side/s) pixels and the whole. Both are a change of scale about the centre.

    Examples:
        >>> import torch, unweave.augment as A
        >>> A.RandomPadOrCrop(2.0)(torch.rand(2, 3, 16, 16)).shape
        torch.Size([2, 3, 16, 16])
    """

    draws = 2

    def __init__(
        self, strength: float, interpolation: Literal["bilinear", "nearest"] = "bilinear", *, p: float = 1.0
    ) -> None:
        if strength < 1:
            raise UnweaveError(f"RandomPadOrCrop: `strength` must be at least 1, not {strength}")
        super().__init__((1 / strength, strength), interpolation, p=p)
        self.strength = strength

    def _draw(self, u: Tensor, size: Size) -> Params:
        side = size[0]
        most, least = max(int(side / 10 * self.strength - 1), 0), max(int(side / self.strength), 1)
        padded = side + 2 * (u[:, 1] * (most + 1)).floor()
        cropped = least + (u[:, 1] * (side - least + 1)).floor()
        return {"scale": side / torch.where(u[:, 0] < 0.5, padded, cropped)}


class GaussianBlur(RowTransform):
    """Blurs with a Gaussian of uniform width, edges reflected. As torchvision's, plus ``p``.

    Examples:
        >>> import torch, unweave.augment as A
        >>> A.GaussianBlur(5, sigma=(0.1, 2.0), p=0.5)(torch.rand(2, 3, 16, 16)).shape
        torch.Size([2, 3, 16, 16])
    """

    draws = 1

    def __init__(
        self, kernel_size: int | Sequence[int] = 23, sigma: float | tuple[float, float] = (0.1, 2.0), *, p: float = 1.0
    ) -> None:
        super().__init__(p=p)
        kernel = (kernel_size, kernel_size) if isinstance(kernel_size, int) else tuple(kernel_size)
        if len(kernel) != 2 or any(k < 1 or k % 2 == 0 for k in kernel):
            raise UnweaveError(f"GaussianBlur: `kernel_size` must be odd and positive, not {kernel_size}")
        self.kernel_size = (int(kernel[0]), int(kernel[1]))
        self.sigma = as_range(
            "GaussianBlur: `sigma`", (sigma, sigma) if isinstance(sigma, (int, float)) else sigma, low=1e-6
        )

    def check(self, channels: int, size: Size) -> None:
        """The reflected edge must lie inside the image."""
        width, height = self.kernel_size
        if height // 2 >= size[0] or width // 2 >= size[1]:
            raise UnweaveError(
                f"GaussianBlur: a `kernel_size` of {width}×{height} pixels is too large for images of "
                f"{size[1]}×{size[0]}; use a smaller one"
            )

    def _draw(self, u: Tensor, size: Size) -> Params:
        return {"sigma": between(u[:, 0], *self.sigma)}

    def _change(self, images: Tensor, params: Params) -> Tensor:
        return gaussian_blur(images, params["sigma"], *self.kernel_size)

    def _kernel(self, images: Tensor, params: Params) -> None:
        from unweave.augment import _kernels

        _kernels.blur_(images, params["on"], params["sigma"], self.kernel_size)

    def fixed(self) -> dict[str, object]:
        """The size of the kernel."""
        return {"kernel_size": self.kernel_size}
