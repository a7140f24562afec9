"""Which images a step sees. It depends on the seed and the step alone, not on the number of processes."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unweave.distributed import rank, world_size


@dataclass(frozen=True)
class ShuffledOrder:
    """The indices of this process's images at each step: place l of the global batch in the epoch's random order.

    Examples:
        >>> order = ShuffledOrder(images=10, global_batch=4, seed=0, first_step=0, last_step=5)
        >>> [len(index) for index in order]
        [4, 4, 4, 4, 4]
    """

    images: int
    global_batch: int
    seed: int
    first_step: int
    last_step: int

    @property
    def batch_size(self) -> int:
        """Images per step in this process."""
        return self.global_batch // world_size()

    def __iter__(self) -> Iterator[Tensor]:
        per_epoch = self.images // self.global_batch
        shuffled, of_epoch = torch.empty(0), -1
        for step in range(self.first_step, self.last_step):
            epoch, place = divmod(step, per_epoch)
            if epoch != of_epoch:
                generator = torch.Generator().manual_seed(self.epoch_seed(epoch))
                shuffled, of_epoch = torch.randperm(self.images, generator=generator), epoch
            start = place * self.global_batch + rank() * self.batch_size
            yield shuffled[start : start + self.batch_size]

    def epoch_seed(self, epoch: int) -> int:
        """The seed of an epoch's order."""
        return mix_seeds(self.seed, -1 - epoch)


def mix_seeds(seed: int, number: int) -> int:
    """One seed from two numbers, such that similar numbers give unrelated seeds."""
    x = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) % 2**64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    return (x ^ (x >> 31)) % 2**63
