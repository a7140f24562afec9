"""GPU kernels, in Triton, of what surrounds a ResNet's convolutions: batch norm, ReLU, residual addition, max pooling.

Feature maps are channels last: m = n·h·w rows of c channels. Sums over rows are float32; each program sums a part of
the rows, and the parts are added in a fixed order, so that a step gives the same bits again. ``TRITON_INTERPRET=1``
runs the kernels on a CPU.

Legend: m rows, c channels, s parts of the rows.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, CHANNELS = 64, 64
"""Of the block that a program holds at a time."""
WARPS = 8
"""Of a program: with fewer, each thread has so many registers that few programs run at a time."""
PROGRAMS = 1056
"""Of a sum over rows: eight for each multiprocessor of a large GPU."""


@triton.jit
def _places(row, last, channel, known, c):
    """Which places of a block exist, and where they are in memory."""
    return (row < last)[:, None] & known[None, :], row.to(tl.int64)[:, None] * c + channel[None, :]


@triton.jit
def _block(c, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    """The rows and channels of a program's block, and which of the channels exist."""
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    return tl.program_id(0) * ROWS + tl.arange(0, ROWS), channel, channel < c


@triton.jit
def _moments(x, parts, m, c, per_program, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    """Sums of x − x₀ and of its square, x₀ being the first row: of large means, squares would cancel."""
    part, channel = tl.program_id(0), tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < c
    first_row = tl.load(x + channel, known, 0).to(tl.float32)[None, :]
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    squares = tl.zeros([ROWS, CHANNELS], tl.float32)
    first = part * per_program
    last = tl.minimum(first + per_program, m)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        used, at = _places(row, last, channel, known, c)
        value = tl.where(used, tl.load(x + at, used, 0).to(tl.float32) - first_row, 0.0)
        total += value
        squares += value * value
    tl.store(parts + 2 * part * c + channel, tl.sum(total, 0), known)
    tl.store(parts + (2 * part + 1) * c + channel, tl.sum(squares, 0), known)


@triton.jit
def _add_parts(parts, s, c, channel, known, offset, BLOCK: tl.constexpr, CHANNELS: tl.constexpr):
    total = tl.zeros([BLOCK, CHANNELS], tl.float32)
    for start in range(0, s, BLOCK):
        part = start + tl.arange(0, BLOCK)
        used = (part < s)[:, None] & known[None, :]
        total += tl.load(parts + (2 * part + offset)[:, None] * c + channel[None, :], used, 0)
    return tl.sum(total, 0)


@triton.jit
def _finish_moments(
    parts, x, mean, rstd, running_mean, running_var, s, m, c, momentum, eps,
    BLOCK: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < c
    shift = _add_parts(parts, s, c, channel, known, 0, BLOCK, CHANNELS) / m
    square = _add_parts(parts, s, c, channel, known, 1, BLOCK, CHANNELS) / m
    variance = tl.maximum(square - shift * shift, 0.0)
    average = tl.load(x + channel, known, 0).to(tl.float32) + shift
    tl.store(mean + channel, average, known)
    tl.store(rstd + channel, 1.0 / tl.sqrt(variance + eps), known)
    old = tl.load(running_mean + channel, known, 0)
    tl.store(running_mean + channel, old + momentum * (average - old), known)
    old = tl.load(running_var + channel, known, 0)
    tl.store(running_var + channel, old + momentum * (variance * (m / (m - 1.0)) - old), known)


@triton.jit
def _normalise(
    x, residual, y, mean, rstd, weight, bias, m, c,
    RESIDUAL: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    row, channel, known = _block(c, ROWS, CHANNELS)
    used, at = _places(row, m, channel, known, c)
    scale = tl.load(rstd + channel, known, 0) * tl.load(weight + channel, known, 0)
    average, offset = tl.load(mean + channel, known, 0), tl.load(bias + channel, known, 0)
    value = (tl.load(x + at, used, 0).to(tl.float32) - average[None, :]) * scale[None, :] + offset[None, :]
    if RESIDUAL:
        value += tl.load(residual + at, used, 0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(y + at, value, used)


@triton.jit
def _gradient_of_sum(
    gradient, deviation, y, at, used, scale, offset, RESIDUAL: tl.constexpr, RELU: tl.constexpr
):  # fmt: skip
    """The gradient before ReLU: 0 where its output was 0."""
    found = tl.load(gradient + at, used, 0).to(tl.float32)
    if RELU:
        if RESIDUAL:  # noqa: SIM108, Triton has no conditional expressions of tensors
            positive = tl.load(y + at, used, 0).to(tl.float32) > 0
        else:
            positive = deviation * scale + offset > 0
        found = tl.where(positive, found, 0.0)
    return found


@triton.jit
def _gradient_sums(
    gradient, x, y, mean, rstd, weight, bias, parts, m, c, per_program,
    RESIDUAL: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Sums of the gradient, and of the gradient times the standardised x."""
    part, channel = tl.program_id(0), tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < c
    average, inverse = tl.load(mean + channel, known, 0), tl.load(rstd + channel, known, 0)
    scale = inverse * tl.load(weight + channel, known, 0)
    offset = tl.load(bias + channel, known, 0)
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    products = tl.zeros([ROWS, CHANNELS], tl.float32)
    first = part * per_program
    last = tl.minimum(first + per_program, m)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        used, at = _places(row, last, channel, known, c)
        deviation = tl.load(x + at, used, 0).to(tl.float32) - average[None, :]
        found = _gradient_of_sum(gradient, deviation, y, at, used, scale[None, :], offset[None, :], RESIDUAL, RELU)
        total += found
        products += found * deviation
    tl.store(parts + 2 * part * c + channel, tl.sum(total, 0), known)
    tl.store(parts + (2 * part + 1) * c + channel, tl.sum(products, 0) * inverse, known)


@triton.jit
def _finish_sums(parts, bias_gradient, weight_gradient, s, c, BLOCK: tl.constexpr, CHANNELS: tl.constexpr):
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < c
    tl.store(bias_gradient + channel, _add_parts(parts, s, c, channel, known, 0, BLOCK, CHANNELS), known)
    tl.store(weight_gradient + channel, _add_parts(parts, s, c, channel, known, 1, BLOCK, CHANNELS), known)


@triton.jit
def _gradient(
    gradient, x, y, mean, rstd, weight, bias, bias_gradient, weight_gradient, x_gradient, residual_gradient, m, c,
    RESIDUAL: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    row, channel, known = _block(c, ROWS, CHANNELS)
    used, at = _places(row, m, channel, known, c)
    average, inverse = tl.load(mean + channel, known, 0), tl.load(rstd + channel, known, 0)
    scale = inverse * tl.load(weight + channel, known, 0)
    offset = tl.load(bias + channel, known, 0)
    level = tl.load(bias_gradient + channel, known, 0) / m
    slope = tl.load(weight_gradient + channel, known, 0) * inverse / m
    deviation = tl.load(x + at, used, 0).to(tl.float32) - average[None, :]
    found = _gradient_of_sum(gradient, deviation, y, at, used, scale[None, :], offset[None, :], RESIDUAL, RELU)
    if RESIDUAL:
        tl.store(residual_gradient + at, found, used)
    of_x = (found - level[None, :] - deviation * slope[None, :]) * scale[None, :]
    tl.store(x_gradient + at, of_x, used)


def batch_norm(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
    *,
    relu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """relu(batch norm of x + residual), and each channel's mean and 1/√(variance + eps); updates running statistics."""
    m, c, parts, per_program = _parts(x)
    mean, rstd = torch.empty_like(running_mean), torch.empty_like(running_mean)
    grid = (len(parts), triton.cdiv(c, CHANNELS))
    _moments[grid](x, parts, m, c, per_program, ROWS=ROWS, CHANNELS=CHANNELS, num_warps=WARPS)
    _finish_moments[(triton.cdiv(c, 16),)](
        parts, x, mean, rstd, running_mean, running_var, len(parts), m, c, momentum, eps, BLOCK=64, CHANNELS=16
    )
    y = torch.empty_like(x)
    given = x if residual is None else residual
    grid = (triton.cdiv(m, ROWS), triton.cdiv(c, CHANNELS))
    _normalise[grid](
        x, given, y, mean, rstd, weight, bias, m, c,
        RESIDUAL=residual is not None, RELU=relu, ROWS=ROWS, CHANNELS=CHANNELS, num_warps=WARPS,
    )  # fmt: skip
    return y, mean, rstd


def batch_norm_gradient(
    gradient: Tensor,
    x: Tensor,
    y: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    relu: bool,
    residual: bool,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """The gradients of x, residual, weight and bias; ``y`` is needed with a residual and ReLU."""
    m, c, parts, per_program = _parts(x)
    output = x if y is None else y
    grid = (len(parts), triton.cdiv(c, CHANNELS))
    _gradient_sums[grid](
        gradient, x, output, mean, rstd, weight, bias, parts, m, c, per_program,
        RESIDUAL=residual, RELU=relu, ROWS=ROWS, CHANNELS=CHANNELS, num_warps=WARPS,
    )  # fmt: skip
    bias_gradient, weight_gradient = torch.empty_like(mean), torch.empty_like(mean)
    _finish_sums[(triton.cdiv(c, 16),)](parts, bias_gradient, weight_gradient, len(parts), c, BLOCK=64, CHANNELS=16)
    x_gradient = torch.empty_like(x)
    residual_gradient = torch.empty_like(x) if residual else None
    grid = (triton.cdiv(m, ROWS), triton.cdiv(c, CHANNELS))
    _gradient[grid](
        gradient, x, output, mean, rstd, weight, bias, bias_gradient, weight_gradient, x_gradient,
        x_gradient if residual_gradient is None else residual_gradient, m, c,
        RESIDUAL=residual, RELU=relu, ROWS=ROWS, CHANNELS=CHANNELS, num_warps=WARPS,
    )  # fmt: skip
    return x_gradient, residual_gradient, weight_gradient, bias_gradient


def _parts(x: Tensor) -> tuple[int, int, Tensor, int]:
    """Rows, channels, an empty tensor (s, 2, c) for sums over parts of the rows, and the rows of each part."""
    c = x.shape[1]
    m = x.numel() // c
    blocks = triton.cdiv(m, ROWS)
    wanted = max(1, PROGRAMS // triton.cdiv(c, CHANNELS))
    per_program = triton.cdiv(blocks, min(blocks, wanted)) * ROWS
    s = triton.cdiv(m, per_program)
    return m, c, torch.empty(s, 2, c, dtype=torch.float32, device=x.device), per_program


@triton.jit
def _max_pool(
    x, y, chosen, h, w, out_h, out_w, m, c, ROWS: tl.constexpr, CHANNELS: tl.constexpr
):  # fmt: skip
    """The largest of 3 × 3 pixels, with a stride of 2 and a margin of 1, and which of the nine it was."""
    row, channel, known = _block(c, ROWS, CHANNELS)
    image, place = row // (out_h * out_w), row % (out_h * out_w)
    top, left = 2 * (place // out_w) - 1, 2 * (place % out_w) - 1
    best = tl.full([ROWS, CHANNELS], float("-inf"), tl.float32)
    which = tl.zeros([ROWS, CHANNELS], tl.int32)
    for tap in tl.static_range(9):
        i, j = top + tap // 3, left + tap % 3
        inside = (row < m) & (i >= 0) & (i < h) & (j >= 0) & (j < w)
        source = (image.to(tl.int64) * h + i) * w + j
        at = source[:, None] * c + channel[None, :]
        used = inside[:, None] & known[None, :]
        value = tl.load(x + at, used, float("-inf")).to(tl.float32)
        larger = (value > best) | (value != value)
        best = tl.where(larger, value, best)
        which = tl.where(larger, tap, which)
    used, at = _places(row, m, channel, known, c)
    tl.store(y + at, best, used)
    tl.store(chosen + at, which.to(tl.int8), used)


@triton.jit
def _max_pool_gradient(
    gradient, chosen, x_gradient, h, w, out_h, out_w, m, c, ROWS: tl.constexpr, CHANNELS: tl.constexpr
):  # fmt: skip
    """Each pixel's sum over the windows, at most 2 × 2, whose largest it was."""
    row, channel, known = _block(c, ROWS, CHANNELS)
    image, place = row // (h * w), row % (h * w)
    i, j = place // w, place % w
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    for down in tl.static_range(2):
        for right in tl.static_range(2):
            out_i, out_j = i // 2 + down, j // 2 + right
            tap_i, tap_j = i - 2 * out_i + 1, j - 2 * out_j + 1
            inside = (row < m) & (tap_i >= 0) & (tap_j >= 0) & (out_i < out_h) & (out_j < out_w)
            source = (image.to(tl.int64) * out_h + out_i) * out_w + out_j
            at = source[:, None] * c + channel[None, :]
            used = inside[:, None] & known[None, :]
            tap = tl.load(chosen + at, used, -1).to(tl.int32)
            found = tl.load(gradient + at, used, 0).to(tl.float32)
            total += tl.where(tap == (3 * tap_i + tap_j)[:, None], found, 0.0)
    used, at = _places(row, m, channel, known, c)
    tl.store(x_gradient + at, total, used)


def max_pool(x: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of 3 × 3 pixels with a stride of 2 and a margin of 1, and which of the nine it was, int8."""
    n, c, h, w = x.shape
    out_h, out_w = (h - 1) // 2 + 1, (w - 1) // 2 + 1
    y = torch.empty(n, c, out_h, out_w, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    chosen = torch.empty_like(y, dtype=torch.int8)
    m = n * out_h * out_w
    _max_pool[(triton.cdiv(m, 32), triton.cdiv(c, CHANNELS))](
        x, y, chosen, h, w, out_h, out_w, m, c, ROWS=32, CHANNELS=CHANNELS, num_warps=WARPS
    )
    return y, chosen


def max_pool_gradient(gradient: Tensor, chosen: Tensor, h: int, w: int) -> Tensor:
    """The gradient of the input, whose height and width are given."""
    n, c, out_h, out_w = gradient.shape
    x_gradient = torch.empty(
        n, c, h, w, dtype=gradient.dtype, device=gradient.device, memory_format=torch.channels_last
    )
    m = n * h * w
    _max_pool_gradient[(triton.cdiv(m, 32), triton.cdiv(c, CHANNELS))](
        gradient, chosen, x_gradient, h, w, out_h, out_w, m, c, ROWS=32, CHANNELS=CHANNELS, num_warps=WARPS
    )
    return x_gradient
