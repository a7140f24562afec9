"""Optimisers and the schedule of the learning rate."""

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from unweave.training.config import OptimConfig


def make_optimizer(model: nn.Module, config: "OptimConfig", lr: float, *, fused: bool = False) -> torch.optim.Optimizer:
    """AdamW or LARS. Biases, norms and other one-dimensional parameters have no decay and are not adapted.

    ``fused`` runs AdamW as one kernel, for GPUs.

    Notes:
        timm's LARS adapts a group of parameters only if its weight decay is not 0 or ``always_adapt`` is set. It is set
        for weights, whatever their decay, and not for the others, which are left to plain momentum.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    weights = {"params": [p for p in parameters if p.ndim > 1], "weight_decay": config.weight_decay}
    others = {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0}
    if config.optimizer == "adamw":
        return torch.optim.AdamW([weights, others], lr=lr, fused=fused)
    from timm.optim import Lars

    groups = [{**weights, "always_adapt": True}, {**others, "always_adapt": False}]
    return Lars(groups, lr=lr, momentum=config.momentum, trust_coeff=0.001)


def warmup_cosine(step: int, steps: int, warmup: int, final: float) -> float:
    """The learning rate of a step as a fraction of its peak: linear warm-up, then a cosine to ``final``.

    Examples:
        >>> [round(warmup_cosine(step, 11, 1, 0.0), 2) for step in (0, 5, 10)]
        [1.0, 0.59, 0.0]
    """
    if step < warmup:
        return (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - 1 - warmup)
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
