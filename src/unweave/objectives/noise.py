"""Gaussian noise that depends on a counter alone: the same on every process, in a CUDA graph and in a resumed run."""

import math

import torch
from torch import Tensor

GOLDEN, MIX_1, MIX_2 = -7046029254386353131, -4658895280553007687, -7723592293110705685
"""The constants of SplitMix64, as signed integers."""


def counted_normal(shape: tuple[int, ...], counter: Tensor, stream: int) -> Tensor:
    """Independent standard normal numbers (Box and Muller), a function of ``counter`` (an int64 scalar) and ``stream``.

    Examples:
        >>> noise = counted_normal((400, 50), torch.tensor(3), stream=0)
        >>> torch.equal(noise, counted_normal((400, 50), torch.tensor(3), stream=0))
        True
        >>> abs(noise.mean()) < 0.03, abs(noise.std() - 1) < 0.03
        (tensor(True), tensor(True))
    """
    count = math.prod(shape)
    key = _mix(counter * GOLDEN + stream * MIX_1)
    place = torch.arange(2 * count, device=counter.device)
    uniform = ((_mix(place * GOLDEN + key) >> 40 & 0xFFFFFF).float() + 0.5) / 2**24
    radius, angle = (-2 * uniform[:count].log()).sqrt(), 2 * math.pi * uniform[count:]
    return (radius * angle.cos()).view(shape)


def _mix(x: Tensor) -> Tensor:
    """SplitMix64: every bit of the result depends on every bit of x; int64 products wrap around."""
    x = (x ^ (x >> 30 & 0x3FFFFFFFF)) * MIX_1
    x = (x ^ (x >> 27 & 0x1FFFFFFFFF)) * MIX_2
    return x ^ (x >> 31 & 0x1FFFFFFFF)
