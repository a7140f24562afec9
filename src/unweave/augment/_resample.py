"""Resampling as matrix products, and along affine maps.

Cropping and resizing is separable and linear: each output row (column) is a weighted sum of input rows (columns). With
the weights of every image in a matrix of its own, a batch of different crops is two batched matrix products.

Legend: n images, c channels, h×w input pixels, H×W output pixels.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave.device_cache import cached_tensor

Filter = Literal["bilinear", "bicubic"]


def _bilinear(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _bicubic(x: Tensor) -> Tensor:
    """Keys' cubic with a = −1/2, the one of Pillow and of torch's antialiased resize."""
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def window_weights(
    start: Tensor, length: Tensor, n_in: int, n_out: int, filter: Filter, flip: Tensor | None = None
) -> Tensor:
    """Weights (n, n_out, n_in) that resize the window [start, start + length) to n_out pixels, antialiased.

    Pixels outside the window have no weight, as if it had been cut out first; ``flip`` (n,) mirrors the output.
    """
    pixel = torch.arange(n_in, device=start.device, dtype=torch.float32)
    place = torch.arange(n_out, device=start.device, dtype=torch.float32) + 0.5
    start, length = start.float()[:, None, None], length.float()[:, None, None]
    place = place[None, :, None]
    if flip is not None:
        place = torch.where(flip[:, None, None], n_out - place, place)
    step = length / n_out
    centre = start + place * step
    distance = (pixel + 0.5 - centre) / step.clamp(min=1)
    weights = _bilinear(distance) if filter == "bilinear" else _bicubic(distance)
    weights = torch.where((pixel >= start) & (pixel < start + length), weights, torch.zeros_like(weights))
    return weights / weights.sum(-1, keepdim=True)


def separable(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """rows (n, H, h) · images (n, c, h, w) · columnsᵀ (n, w, W), image by image and channel by channel."""
    n, c, h, w = images.shape
    x = images.permute(0, 2, 1, 3).to(rows.dtype).reshape(n, h * c, w)
    x = torch.bmm(x, columns.transpose(1, 2))
    x = torch.bmm(rows, x.view(n, h, -1))
    return x.view(n, rows.shape[1], c, -1).permute(0, 2, 1, 3).contiguous()


def crop_one_by_one(
    images: Tensor,
    top: Tensor,
    left: Tensor,
    height: Tensor,
    width: Tensor,
    flip: Tensor,
    size: tuple[int, int],
    filter: Filter,
) -> Tensor:
    """The same with torch's antialiased resize, one image at a time: faster for large images on a CPU."""
    out = torch.empty(*images.shape[:2], *size)
    windows = torch.stack([top, left, height, width, flip.to(top.dtype)], 1).int().tolist()
    for to, image, (y, x, h, w, mirror) in zip(out, images, windows, strict=True):
        window = image[None, :, y : y + h, x : x + w]
        window = window.float() / 255 if images.dtype == torch.uint8 else window.float()
        resized = F.interpolate(window, size, mode=filter, antialias=True)[0]
        to.copy_(resized.flip(-1) if mirror else resized)
    return out


def gaussian_blur(images: Tensor, sigma: Tensor, width: int, height: int) -> Tensor:
    """A Gaussian of each image's own sigma (n,), cut to width × height taps, the edges reflected."""
    # Images take the place of channels in a grouped convolution, so that each has its own kernel.
    x = F.pad(images.transpose(0, 1), (width // 2, width // 2, height // 2, height // 2), mode="reflect")
    x = F.conv2d(x, _gaussian(sigma, width).view(-1, 1, 1, width), groups=len(images))
    x = F.conv2d(x, _gaussian(sigma, height).view(-1, 1, height, 1), groups=len(images))
    return x.transpose(0, 1)


def _gaussian(sigma: Tensor, taps: int) -> Tensor:
    place = torch.arange(taps, device=sigma.device) - taps // 2
    weights = torch.exp(-0.5 * (place / sigma[:, None]) ** 2)
    return weights / weights.sum(1, keepdim=True)


def warp(images: Tensor, matrices: Tensor, mode: str) -> Tensor:
    """Images resampled along affine maps; pixels outside the image are black.

    ``matrices`` (n, 3, 3) map an output pixel to the input pixel it shows, in pixels from the image's centre.

    Examples:
        >>> left = torch.tensor([[[1.0, 0, 1], [0, 1, 0], [0, 0, 1]]])  # shows the pixel to the right: moves left
        >>> warp(torch.tensor([1.0, 2, 3]).view(1, 1, 1, 3), left, "nearest").flatten()
        tensor([2., 3., 0.])
    """
    h, w = images.shape[2:]
    to_pixels = cached_tensor((w / 2, h / 2, 1.0), images.device)
    # affine_grid works in coordinates that run from −1 to 1: scale in, apply, scale out.
    normalised = matrices * to_pixels / to_pixels[:, None]
    grid = F.affine_grid(normalised[:, :2].to(images.dtype), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode=mode, padding_mode="zeros", align_corners=False)
