"""The little this library needs to know about running as several processes.

Everything here is the identity on one process.
"""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """How many processes train together: 1 unless ``torch.distributed`` is running."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The place of this process among them."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def processes_here() -> int:
    """How many of them run on this machine, as their launcher tells."""
    if (told := os.environ.get("LOCAL_WORLD_SIZE", "")).isdigit():  # torchrun's, known before they are connected
        return int(told)
    slurm = os.environ.get("SLURM_NTASKS_PER_NODE", "")
    return min(int(slurm), world_size()) if slurm.isdigit() else world_size()


class _Gather(torch.autograd.Function):
    """Concatenates the rows of all processes; its adjoint sums what every process sends back to our rows."""

    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        ctx.rows = local.shape[0]
        parts = [torch.empty_like(local) for _ in range(world_size())]
        dist.all_gather(parts, local.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        total = grads[0].contiguous()
        dist.all_reduce(total)
        return total[rank() * ctx.rows : (rank() + 1) * ctx.rows]


def gather(local: Tensor) -> Tensor:
    """Rows of every process, in the order of their ranks, carrying the gradient.

    A loss computed from gathered rows is the same number on every process. Summing in the backward pass, together with
    the averaging over processes that data-parallel training does, gives exactly the gradient of one process on the
    whole batch. Every process must bring the same number of rows.
    """
    if world_size() == 1:
        return local
    return _Gather.apply(local)
