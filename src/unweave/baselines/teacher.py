"""A teacher: a running average of the encoder, which makes targets and receives no gradients."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def make_teacher(encoder: nn.Module) -> nn.Module:
    """A copy of the encoder without gradients, in evaluation mode except for batch norm.

    Batch norm normalises with the statistics of the teacher's own batch and keeps no running ones, as in MoCo: those of
    the encoder belong to other weights. Where it is not trained, it keeps its running statistics, as the encoder does.
    """
    teacher = copy.deepcopy(encoder).requires_grad_(False).eval()
    for own, copied in zip(encoder.modules(), teacher.modules(), strict=True):
        if isinstance(copied, _BatchNorm) and any(p.requires_grad for p in own.parameters()):
            copied.train()
            copied.track_running_stats = False
            copied.running_mean = copied.running_var = copied.num_batches_tracked = None
    return teacher


@torch.no_grad()
def follow_(teacher: nn.Module, encoder: nn.Module, momentum: float) -> None:
    """teacher ← momentum·teacher + (1 − momentum)·encoder, for every parameter."""
    means: list[Tensor] = list(teacher.parameters())
    new = [value.to(mean.dtype) for mean, value in zip(means, encoder.parameters(), strict=True)]
    torch._foreach_lerp_(means, new, 1 - momentum)
