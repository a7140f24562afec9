"""Optimiser and schedule."""

import math

import torch
from torch import nn

from unweave.training.config import TrainConfig


def make_optimizer(model: nn.Module, config: TrainConfig, *, fused: bool = False) -> torch.optim.Optimizer:
    """AdamW or LARS; biases, norms and other one-dimensional parameters have no decay and are not adapted.

    timm's LARS adapts a group only if its weight decay is not 0 or it is told to: weights are told to, whatever their
    decay; the others have none and so are left to plain momentum. ``fused`` makes AdamW one kernel, for GPUs.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    weights = {"params": [p for p in parameters if p.ndim > 1], "weight_decay": config.weight_decay}
    others = {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0}
    if config.optimizer == "adamw":
        return torch.optim.AdamW([weights, others], lr=config.lr, fused=fused)
    from timm.optim import Lars

    groups = [{**weights, "always_adapt": True}, {**others, "always_adapt": False}]
    return Lars(groups, lr=config.lr, momentum=config.momentum, trust_coeff=0.001)


def learning_rate(step: int, config: TrainConfig) -> float:
    """Linear warm-up, then a cosine to ``final_lr`` at the last step.

    >>> config = TrainConfig(steps=101, warmup_steps=1, lr=1.0, final_lr=0.0)
    >>> [round(learning_rate(step, config), 3) for step in (0, 50, 100)]
    [1.0, 0.508, 0.0]
    """
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, config.steps - 1 - config.warmup_steps)
    floor = config.final_lr
    return config.lr * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))
