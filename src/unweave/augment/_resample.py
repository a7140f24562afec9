"""Resampling as matrix products, and along affine maps.

Cropping and resizing is separable and linear: each output row (column) is a weighted sum of input rows (columns). With
the weights of every image in a matrix of its own, a batch of different crops is two batched matrix products.

Legend: n images, c channels, h×w input pixels, H×W output pixels.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

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

    Pixels outside the window do not count, as if it had been cut out before; ``flip`` (n,) mirrors the output.
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


def blur_weights(sigma: Tensor, kernel: int, size: int) -> Tensor:
    """Weights (n, size, size) of a Gaussian of width sigma (n,), cut to ``kernel`` taps, the edges reflected."""
    radius = kernel // 2
    taps = torch.arange(-radius, radius + 1, device=sigma.device, dtype=torch.float32)
    gauss = torch.exp(-0.5 * (taps / sigma[:, None]) ** 2)
    gauss = gauss / gauss.sum(1, keepdim=True)
    pixel = torch.arange(size, device=sigma.device)
    source = (pixel[None, :] + taps[:, None].long()).abs()
    source = size - 1 - (size - 1 - source).abs()
    hits = (source[:, :, None] == pixel).to(gauss.dtype)
    return (gauss @ hits.view(kernel, -1)).view(-1, size, size)


def warp(images: Tensor, matrices: Tensor, mode: str) -> Tensor:
    """Images resampled along affine maps; outside an image there is black.

    ``matrices`` (n, 3, 3) take an output pixel to the input pixel it shows, in pixels from the image's centre.
    """
    n, _, h, w = images.shape
    to_pixels = torch.tensor([w / 2, h / 2, 1.0], device=images.device)
    # affine_grid works in coordinates that run from −1 to 1: scale in, apply, scale out.
    normalised = matrices * to_pixels / to_pixels[:, None]
    grid = F.affine_grid(normalised[:, :2].to(images.dtype), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode=mode, padding_mode="zeros", align_corners=False)
