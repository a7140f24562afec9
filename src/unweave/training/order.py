"""Which images a step sees: it hangs on the seed and the step alone, never on how many processes there are."""

import torch
from torch import Tensor

from unweave.processes import rank, world_size
from unweave.training.config import TrainConfig


def batch_index(step: int, length: int, config: TrainConfig) -> Tensor:
    """This process's part of the step's global batch: place l of it in the epoch's shuffled order."""
    epoch, place = divmod(step, length // config.batch_size)
    order = _epoch_order(mix(config.seed, -1 - epoch), length)
    local = config.batch_size // world_size()
    start = place * config.batch_size + rank() * local
    return order[start : start + local]


_order_cache: dict[tuple[int, int], Tensor] = {}


def _epoch_order(seed: int, length: int) -> Tensor:
    if (seed, length) not in _order_cache:
        _order_cache.clear()
        _order_cache[seed, length] = torch.randperm(length, generator=torch.Generator().manual_seed(seed))
    return _order_cache[seed, length]


def mix(seed: int, number: int) -> int:
    """One seed from two numbers, so that neighbours have nothing in common."""
    x = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) % 2**64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    return (x ^ (x >> 31)) % 2**63
