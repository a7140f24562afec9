"""How a run is set up. Nothing heavy is imported here, so that help and errors come at once."""

from dataclasses import dataclass
from typing import Literal

from unweave.errors import UnweaveError


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything about a run that is neither the data, the views, the encoder nor the objective."""

    steps: int = 1000
    """Optimiser steps."""
    batch_size: int = 256
    """Images a step, over all processes."""
    micro_batch: int | None = None
    """Images that go through the network at a time, in each process, where the whole batch does not fit into memory.
    The gradient is that of the whole batch; batch norm sees a part at a time."""
    optimizer: Literal["adamw", "lars"] = "adamw"
    """AdamW, or LARS as the large-batch papers use it."""
    lr: float = 2e-3
    """The highest learning rate."""
    warmup_steps: int = 50
    """Steps over which the learning rate rises from 0."""
    final_lr: float = 0.001
    """What the cosine decays to, as a fraction of ``lr``."""
    weight_decay: float = 1e-4
    """Of weight matrices and kernels; biases and norms have none."""
    momentum: float = 0.9
    """LARS alone."""
    clip: float | None = None
    """The largest norm of the gradient; None leaves it."""
    precision: Literal["32-true", "bf16-mixed", "64-true"] = "32-true"
    """Lightning Fabric's name for the arithmetic."""
    channels_last: bool = True
    """Memory format of images and kernels; faster for convolutions."""
    compile: bool = False
    """Compile the encoder."""
    graph: bool = False
    """On one GPU, record the step as a CUDA graph and replay it: faster where a network is small, for more memory."""
    seed: int = 0
    """Of the order of images and of the views."""
    log_every: int = 20
    """Steps between two lines of metrics."""
    checkpoint_every: int = 500
    """Steps between two checkpoints; 0 writes only the last."""
    checkpoint_minutes: float | None = None
    """Minutes between two checkpoints, besides."""
    tensorboard: bool = False
    """Write the metrics for TensorBoard too."""
    accelerator: str = "auto"
    """cpu, cuda, …; auto takes what there is."""
    devices: int = 1
    """Processes on this machine."""
    nodes: int = 1
    """Machines."""
    strategy: str = "auto"
    """Fabric's name for how processes work together."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "log_every", "devices", "nodes"):
            if getattr(self, name) < 1:
                raise UnweaveError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.micro_batch is not None and self.micro_batch < 1:
            raise UnweaveError(f"micro_batch must be at least 1, not {self.micro_batch}")
        for name in ("warmup_steps", "weight_decay", "checkpoint_every", "final_lr", "momentum"):
            if getattr(self, name) < 0:
                raise UnweaveError(f"{name} cannot be negative: {getattr(self, name)}")
        if not self.lr > 0:
            raise UnweaveError(f"lr must be positive, not {self.lr}")
        if self.clip is not None and not self.clip > 0:
            raise UnweaveError(f"clip must be positive, not {self.clip}; leave it out for no clipping")
        if self.optimizer not in ("adamw", "lars"):
            raise UnweaveError(f"optimizer is 'adamw' or 'lars', not {self.optimizer!r}")
        processes = self.devices * self.nodes
        if self.batch_size % processes:
            raise UnweaveError(f"a batch of {self.batch_size} cannot be shared by {processes} processes equally")
