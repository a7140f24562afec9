"""The training loop, its settings, its run folder and checkpoints."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.training.checkpoint import load_checkpoint, save_checkpoint
    from unweave.training.config import LaunchConfig, OptimConfig, TrainConfig
    from unweave.training.cuda_graph import CapturedStep
    from unweave.training.loop import PairSampler, Run, train
    from unweave.training.monitor import Evaluation
    from unweave.training.run_folder import RunFolder

__all__ = [
    "CapturedStep",
    "Evaluation",
    "LaunchConfig",
    "OptimConfig",
    "PairSampler",
    "Run",
    "RunFolder",
    "TrainConfig",
    "load_checkpoint",
    "save_checkpoint",
    "train",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "checkpoint": ("load_checkpoint", "save_checkpoint"),
        "config": ("LaunchConfig", "OptimConfig", "TrainConfig"),
        "cuda_graph": ("CapturedStep",),
        "loop": ("PairSampler", "Run", "train"),
        "monitor": ("Evaluation",),
        "run_folder": ("RunFolder",),
    },
)
