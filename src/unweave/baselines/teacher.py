"""A teacher: a running average of the encoder, which makes targets and receives no gradients."""

import copy

import torch
from torch import Tensor, nn

from unweave.distributed import broadcast_


def make_teacher(encoder: nn.Module) -> nn.Module:
    """A copy of the encoder without gradients, in evaluation mode.

    Notes:
        In evaluation mode batch norm uses running statistics, which are averaged as the weights are. With the
        statistics of its batch, a key could be told from those in the queue by its batch alone (the reason for MoCo's
        shuffled batch norm), and would depend on the number of processes and on micro-batches.
    """
    return copy.deepcopy(encoder).requires_grad_(False).eval()


@torch.no_grad()
def follow_(teacher: nn.Module, encoder: nn.Module, momentum: float) -> None:
    """teacher ← momentum·teacher + (1 − momentum)·encoder: parameters and running statistics; counters are copied."""
    means: list[Tensor] = [*teacher.parameters(), *teacher.buffers()]
    statistics: list[Tensor] = [value.clone() for value in encoder.buffers()]
    broadcast_(statistics)  # each process has updated them with its own images
    pairs = list(zip(means, [*encoder.parameters(), *statistics], strict=True))
    for counter, value in pairs:
        if not counter.is_floating_point():
            counter.copy_(value)
    averaged = [(mean, value.to(mean.dtype)) for mean, value in pairs if mean.is_floating_point()]
    torch._foreach_lerp_([mean for mean, _ in averaged], [value for _, value in averaged], 1 - momentum)
