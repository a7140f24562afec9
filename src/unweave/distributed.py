"""The state of ``torch.distributed``, and a gather that carries gradients. On one process each is the identity."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """The number of processes that train together: 1 unless ``torch.distributed`` is running."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The rank of this process."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def local_world_size() -> int:
    """The number of processes on this machine, as set by torchrun or Slurm."""
    if (torchrun := os.environ.get("LOCAL_WORLD_SIZE", "")).isdigit():  # known before the processes are connected
        return int(torchrun)
    slurm = os.environ.get("SLURM_NTASKS_PER_NODE", "")
    return min(int(slurm), world_size()) if slurm.isdigit() else world_size()


@dataclass(frozen=True)
class Place:
    """Which of several processes this one is."""

    rank: int = 0
    count: int = 1
    local_rank: int = 0
    """Its number among the processes of its machine."""


def this_process() -> Place:
    """This process's place among those that torchrun or Slurm have started, which need not be connected.

    Examples:
        >>> this_process()
        Place(rank=0, count=1, local_rank=0)
    """
    if started_by_torchrun():
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    elif started_by_slurm() and "SLURM_PROCID" in os.environ:  # not in the shell of salloc
        names = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
    else:
        return Place(rank(), world_size(), rank())
    return Place(*(int(os.environ[name]) for name in names))


def started_by_torchrun() -> bool:
    """Whether torchrun has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def started_by_slurm() -> bool:
    """Whether srun has started this process; a shell inside an allocation is not one of its tasks."""
    return "SLURM_NTASKS" in os.environ and os.environ.get("SLURM_JOB_NAME") not in ("bash", "interactive")


def broadcast_(tensors: Iterable[Tensor]) -> None:
    """Gives the tensors the values of the first process, in place; one message for each type of number."""
    if world_size() == 1:
        return
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        by_type.setdefault(tensor.dtype, []).append(tensor)
    for same in by_type.values():
        flat = torch.cat([tensor.detach().flatten() for tensor in same])
        dist.broadcast(flat, 0)
        for tensor, values in zip(same, flat.split([tensor.numel() for tensor in same]), strict=True):
            tensor.detach().copy_(values.view_as(tensor))


class _Gather(torch.autograd.Function):
    """Concatenates the rows of all processes; the backward pass sums the gradients that reach this process's rows."""

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
    """The rows of every process in the order of their ranks, with gradients. Every process brings the same number.

    Notes:
        A loss computed from gathered rows is the same number on every process. The sum in the backward pass, together
        with the average over processes in data-parallel training, gives the gradient of one process on the whole batch.
    """
    if world_size() == 1:
        return local
    return _Gather.apply(local)
