"""The loop, its optimiser and schedule, and checkpoints."""

from typing import TYPE_CHECKING

from unweave._lazy import attach
from unweave.training.config import TrainConfig

if TYPE_CHECKING:
    from unweave.training.checkpoint import load_checkpoint, save_checkpoint
    from unweave.training.loop import ImageSource, Run, train
    from unweave.training.optimizer import learning_rate, make_optimizer

__all__ = [
    "ImageSource",
    "Run",
    "TrainConfig",
    "learning_rate",
    "load_checkpoint",
    "make_optimizer",
    "save_checkpoint",
    "train",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "checkpoint": ("load_checkpoint", "save_checkpoint"),
        "loop": ("ImageSource", "Run", "train"),
        "optimizer": ("learning_rate", "make_optimizer"),
    },
)
