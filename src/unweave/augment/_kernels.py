"""GPU kernels, in Triton, of the transforms that cost most.

One program processes a block of one image's pixels, so that an image's parameters (its window, the order of its
adjustments, whether it is transformed at all) are scalars: a program takes only the branches its image needs, and an
image that is not on costs nothing. Everything is float32 except the input of a crop, which may be uint8.

``_resample.py`` and ``color.py`` have the same mathematics in torch, which runs elsewhere and which the kernels are
tested against. ``TRITON_INTERPRET=1`` runs the kernels on a CPU.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
"""Pixels of one program."""
CROP_BLOCK, BLUR_BLOCK = 512, 256
"""The same for kernels that read neighbouring pixels: more programs in flight hide the latency of the loads."""


@triton.jit
def _filter(x, BICUBIC: tl.constexpr):
    x = tl.abs(x)
    if BICUBIC:
        near = (1.5 * x - 2.5) * x * x + 1.0
        far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
        return tl.where(x < 1.0, near, tl.where(x < 2.0, far, 0.0))
    else:
        return tl.maximum(1.0 - x, 0.0)


@triton.jit
def _crop(
    source, out, tops, lefts, heights, widths, flips, gain,
    H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, TAPS_Y: tl.constexpr, TAPS_X: tl.constexpr,
    C: tl.constexpr, BICUBIC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < OH * OW
    row, column = place // OW, place % OW
    top, left = tl.load(tops + image), tl.load(lefts + image)
    height, width = tl.load(heights + image), tl.load(widths + image)
    column = tl.where(tl.load(flips + image) != 0, OW - 1 - column, column)

    reach = 2.0 if BICUBIC else 1.0
    step_y, step_x = height / OH, width / OW
    scale_y, scale_x = tl.maximum(step_y, 1.0), tl.maximum(step_x, 1.0)
    sharp_y, sharp_x = 1.0 / scale_y, 1.0 / scale_x
    centre_y, centre_x = top + (row + 0.5) * step_y, left + (column + 0.5) * step_x
    first_y = tl.math.floor(centre_y - reach * scale_y + 0.5)
    first_x = tl.math.floor(centre_x - reach * scale_x + 0.5)

    base = source + image * C * H * W
    sum_y = tl.zeros([BLOCK], tl.float32)
    sum_x = tl.zeros([BLOCK], tl.float32)
    total_0 = tl.zeros([BLOCK], tl.float32)
    total_1 = tl.zeros([BLOCK], tl.float32)
    total_2 = tl.zeros([BLOCK], tl.float32)
    for i in tl.static_range(TAPS_Y):
        y = first_y + i
        weight_y = _filter((y + 0.5 - centre_y) * sharp_y, BICUBIC)
        weight_y = tl.where((y >= top) & (y < top + height), weight_y, 0.0)
        sum_y += weight_y
        sum_x = tl.zeros([BLOCK], tl.float32)
        for j in tl.static_range(TAPS_X):
            x = first_x + j
            weight_x = _filter((x + 0.5 - centre_x) * sharp_x, BICUBIC)
            weight_x = tl.where((x >= left) & (x < left + width), weight_x, 0.0)
            sum_x += weight_x
            weight = weight_y * weight_x
            seen = inside & (weight != 0.0)
            at = base + (y.to(tl.int32) * W + x.to(tl.int32))
            total_0 += weight * tl.load(at, seen, 0).to(tl.float32)
            if C == 3:
                total_1 += weight * tl.load(at + H * W, seen, 0).to(tl.float32)
                total_2 += weight * tl.load(at + 2 * H * W, seen, 0).to(tl.float32)
    norm = gain / (sum_y * sum_x)
    to = out + image * C * OH * OW + place
    tl.store(to, total_0 * norm, inside)
    if C == 3:
        tl.store(to + OH * OW, total_1 * norm, inside)
        tl.store(to + 2 * OH * OW, total_2 * norm, inside)


def crop(
    images: Tensor,
    top: Tensor,
    left: Tensor,
    height: Tensor,
    width: Tensor,
    flip: Tensor,
    size: tuple[int, int],
    bicubic: bool,
) -> Tensor:
    """The windows of the images resized to ``size``, antialiased; floats in [0, 1] from uint8 or float."""
    images = images.contiguous()
    if images.shape[1] not in (1, 3):  # every channel as an image of its own
        c = images.shape[1]
        top, left, height, width, flip = (x.repeat_interleave(c) for x in (top, left, height, width, flip))
        single = crop(images.flatten(0, 1)[:, None], top, left, height, width, flip, size, bicubic)
        return single.unflatten(0, (-1, c))[:, :, 0]
    n, c, h, w = images.shape
    gain = 1 / 255 if images.dtype == torch.uint8 else 1.0
    # As many taps as the largest possible window needs: known without asking the GPU, so that loops can be unrolled.
    reach = 4 if bicubic else 2
    taps = (math.ceil(reach * max(1.0, h / size[0])), math.ceil(reach * max(1.0, w / size[1])))
    out = torch.empty(n, c, *size, device=images.device)
    grid = (n, triton.cdiv(size[0] * size[1], CROP_BLOCK))
    _crop[grid](
        images, out, top, left, height, width, flip, gain, h, w, *size, *taps, c, bicubic, CROP_BLOCK
    )  # fmt: skip
    return out


@triton.jit
def _luma(r, g, b):
    return 0.2989 * r + 0.587 * g + 0.114 * b


@triton.jit
def _clamp(x):
    return tl.minimum(tl.maximum(x, 0.0), 1.0)


@triton.jit
def _channel(hue, value, chroma, n):
    k = hue + n
    k = k - 6.0 * tl.math.floor(k / 6.0)
    return value - chroma * _clamp(tl.minimum(k, 4.0 - k))


@triton.jit
def _adjust(kind, r, g, b, factor, mean):
    """0 brightness, 1 contrast, 2 saturation, 3 hue."""
    if kind == 3:
        value = tl.maximum(tl.maximum(r, g), b)
        chroma = value - tl.minimum(tl.minimum(r, g), b)
        safe = tl.where(chroma == 0.0, 1.0, chroma)
        hue = tl.where(value == r, (g - b) / safe, tl.where(value == g, (b - r) / safe + 2.0, (r - g) / safe + 4.0))
        hue += 6.0 * factor
        r, g, b = (
            _channel(hue, value, chroma, 5.0),
            _channel(hue, value, chroma, 3.0),
            _channel(hue, value, chroma, 1.0),
        )
    else:
        other = tl.zeros_like(r)
        if kind == 1:
            other += mean
        if kind == 2:
            other = _luma(r, g, b)
        r = _clamp(factor * r + (1.0 - factor) * other)
        g = _clamp(factor * g + (1.0 - factor) * other)
        b = _clamp(factor * b + (1.0 - factor) * other)
    return r, g, b


@triton.jit
def _factor(kind, image, brightness, contrast, saturation, hue):
    factor = tl.load(brightness + image)
    if kind == 1:
        factor = tl.load(contrast + image)
    if kind == 2:
        factor = tl.load(saturation + image)
    if kind == 3:
        factor = tl.load(hue + image)
    return factor


@triton.jit
def _jitter_mean(
    images,
    on,
    orders,
    stride_image,
    stride_turn,
    brightness,
    contrast,
    saturation,
    hue,
    sums,
    P: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The luma at the point where contrast is applied, summed over the block."""
    image = tl.program_id(0).to(tl.int64)
    if tl.load(on + image) != 0:
        place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = place < P
        at = images + image * 3 * P + place
        r, g, b = tl.load(at, inside, 0.0), tl.load(at + P, inside, 0.0), tl.load(at + 2 * P, inside, 0.0)
        before = 1
        for turn in range(4):
            kind = tl.load(orders + image * stride_image + turn * stride_turn)
            if kind == 1:
                before = 0
            if before != 0:
                factor = _factor(kind, image, brightness, contrast, saturation, hue)
                r, g, b = _adjust(kind, r, g, b, factor, 0.0)
        luma = tl.where(inside, _luma(r, g, b), 0.0)
        tl.store(sums + image * tl.num_programs(1) + tl.program_id(1), tl.sum(luma, 0))


@triton.jit
def _jitter(
    images, on, orders, stride_image, stride_turn, brightness, contrast, saturation, hue, sums,
    BLOCKS: tl.constexpr, P: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    if tl.load(on + image) != 0:
        place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = place < P
        at = images + image * 3 * P + place
        r, g, b = tl.load(at, inside, 0.0), tl.load(at + P, inside, 0.0), tl.load(at + 2 * P, inside, 0.0)
        mean = 0.0
        for i in range(BLOCKS):
            mean += tl.load(sums + image * BLOCKS + i)
        mean /= P
        for turn in range(4):
            kind = tl.load(orders + image * stride_image + turn * stride_turn)
            factor = _factor(kind, image, brightness, contrast, saturation, hue)
            r, g, b = _adjust(kind, r, g, b, factor, mean)
        tl.store(at, r, inside)
        tl.store(at + P, g, inside)
        tl.store(at + 2 * P, b, inside)


def jitter_(images: Tensor, on: Tensor, order: Tensor, *factors: Tensor) -> None:
    """Brightness, contrast, saturation and hue by their factors (n,), in each image's order (n, 4), in place."""
    n, _, h, w = images.shape
    grid = (n, triton.cdiv(h * w, BLOCK))
    # A sum for each block, then over the blocks: adding as blocks finish would give other digits every time.
    sums = torch.empty(grid, device=images.device)
    _jitter_mean[grid](images, on, order, *order.stride(), *factors, sums, h * w, BLOCK)
    _jitter[grid](images, on, order, *order.stride(), *factors, sums, grid[1], h * w, BLOCK)


@triton.jit
def _pointwise(images, on, threshold, P, C: tl.constexpr, GRAY: tl.constexpr, BLOCK: tl.constexpr):
    image = tl.program_id(0).to(tl.int64)
    if tl.load(on + image) != 0:
        place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = place < P
        at = images + image * C * P + place
        if GRAY:
            luma = _luma(tl.load(at, inside, 0.0), tl.load(at + P, inside, 0.0), tl.load(at + 2 * P, inside, 0.0))
            for channel in tl.static_range(C):
                tl.store(at + channel * P, luma, inside)
        else:
            for channel in tl.static_range(C):
                x = tl.load(at + channel * P, inside, 0.0)
                tl.store(at + channel * P, tl.where(x >= threshold, 1.0 - x, x), inside)


def grayscale_(images: Tensor, on: Tensor) -> None:
    """Luma in all three channels, in place."""
    n, c, h, w = images.shape
    _pointwise[n, triton.cdiv(h * w, BLOCK)](images, on, 0.0, h * w, c, True, BLOCK)


def solarize_(images: Tensor, on: Tensor, threshold: float) -> None:
    """Values at or above the threshold inverted, in place."""
    n, c, h, w = images.shape
    _pointwise[n, triton.cdiv(h * w, BLOCK)](images, on, threshold, h * w, c, False, BLOCK)


@triton.jit
def _blur(
    source, out, on, sigmas,
    H: tl.constexpr, W: tl.constexpr, RADIUS: tl.constexpr, C: tl.constexpr, ALONG_X: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One direction of a separable blur."""
    image = tl.program_id(0).to(tl.int64)
    if tl.load(on + image) != 0:
        place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = place < H * W
        y, x = place // W, place % W
        sigma = tl.load(sigmas + image)
        sharpness = -0.5 / (sigma * sigma)
        # What lies further out weighs two ten-thousandths.
        radius = tl.minimum(RADIUS, tl.math.ceil(3.7 * sigma).to(tl.int32))
        base = source + image * C * H * W
        norm = 0.0
        total_0 = tl.zeros([BLOCK], tl.float32)
        total_1 = tl.zeros([BLOCK], tl.float32)
        total_2 = tl.zeros([BLOCK], tl.float32)
        for tap in range(-radius, radius + 1):
            weight = tl.exp(tap * tap * sharpness)
            norm += weight
            if ALONG_X:
                k = tl.abs(x + tap)
                at = base + (y * W + (W - 1 - tl.abs(W - 1 - k)))
            else:
                k = tl.abs(y + tap)
                at = base + ((H - 1 - tl.abs(H - 1 - k)) * W + x)
            total_0 += weight * tl.load(at, inside, 0.0)
            if C == 3:
                total_1 += weight * tl.load(at + H * W, inside, 0.0)
                total_2 += weight * tl.load(at + 2 * H * W, inside, 0.0)
        share = 1.0 / norm
        to = out + image * C * H * W + place
        tl.store(to, total_0 * share, inside)
        if C == 3:
            tl.store(to + H * W, total_1 * share, inside)
            tl.store(to + 2 * H * W, total_2 * share, inside)


def blur_(images: Tensor, on: Tensor, sigma: Tensor, kernel_size: tuple[int, int]) -> None:
    """A Gaussian of ``kernel_size`` (width, height) taps and each image's own width, edges reflected, in place."""
    if images.shape[1] not in (1, 3):  # every channel as an image of its own
        c = images.shape[1]
        blur_(images.flatten(0, 1)[:, None], on.repeat_interleave(c), sigma.repeat_interleave(c), kernel_size)
        return
    n, c, h, w = images.shape
    half = torch.empty_like(images)
    grid = (n, triton.cdiv(h * w, BLUR_BLOCK))
    _blur[grid](images, half, on, sigma, h, w, kernel_size[0] // 2, c, True, BLUR_BLOCK)
    _blur[grid](half, images, on, sigma, h, w, kernel_size[1] // 2, c, False, BLUR_BLOCK)
