"""Settings of a training run."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from unweave.errors import UnweaveError
from unweave.settings import adjustable, require, require_choice

if TYPE_CHECKING:
    import torch
    from lightning_fabric import Fabric
    from torch import nn

LARGEST_LR = 1e6
SMALLEST_BATCH, LARGEST_BATCH, LEAST_STEPS = 64, 1024, 30
"""Of a batch size that is chosen by the number of images: its range, and the steps of an epoch."""


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """The optimiser and the schedule of its learning rate: linear warm-up, then a cosine.

    Examples:
        >>> config = OptimConfig(lr=1.0, warmup=0.0, final_lr=0.0)
        >>> [round(config.learning_rate(step, steps=101, batch_size=256), 3) for step in (0, 50, 100)]
        [1.0, 0.5, 0.0]
    """

    optimizer: Literal["adamw", "lars"] = "adamw"
    """AdamW, or LARS for batches of thousands."""
    lr: float = 1e-3
    """Peak learning rate."""
    lr_batch: int | None = None
    """Batch size for which lr is given; for other batches it is scaled in proportion. None: no scaling."""
    warmup: float = 0.1
    """Fraction of the run over which the learning rate rises from 0."""
    final_lr: float = 0.001
    """Learning rate at the end, as a fraction of its peak."""
    weight_decay: float = 1e-4
    """Weight decay of matrices and kernels; biases and norms have none."""
    momentum: float = 0.9
    """Momentum of LARS."""
    clip: float | None = None
    """Largest norm of the gradient."""

    def __post_init__(self) -> None:
        require_choice(self, "optimizer")
        require(self, "> 0", "lr", "clip")
        require(self, ">= 1", "lr_batch")
        if self.lr > LARGEST_LR:
            raise UnweaveError(f"`lr` must be at most {LARGEST_LR:g}, not {self.lr:g}: weights would overflow")
        require(self, ">= 0", "final_lr", "weight_decay", "momentum")
        require(self, "in [0, 1]", "warmup")

    def build(self, model: "nn.Module", batch_size: int, *, fused: bool = False) -> "torch.optim.Optimizer":
        """The optimiser of a model's trainable parameters."""
        from unweave.training.optim import make_optimizer

        return make_optimizer(model, self, self.peak_lr(batch_size), fused=fused)

    def peak_lr(self, batch_size: int) -> float:
        """The learning rate after the warm-up."""
        return self.lr if self.lr_batch is None else self.lr * batch_size / self.lr_batch

    def learning_rate(self, step: int, steps: int, batch_size: int) -> float:
        """The learning rate of a step, the first being 0."""
        from unweave.training.optim import warmup_cosine

        return self.peak_lr(batch_size) * warmup_cosine(step, steps, round(self.warmup * steps), self.final_lr)


@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """Devices, processes and precision.

    Examples:
        >>> LaunchConfig(accelerator="cpu").start().device.type
        'cpu'
    """

    accelerator: str = adjustable("auto")
    """cpu, cuda, …; auto uses what is available."""
    devices: int | None = adjustable(None)
    """Processes on each machine; under torchrun and Slurm, what they have started."""
    nodes: int | None = adjustable(None)
    """Machines; under torchrun and Slurm, what they have started."""
    strategy: str = adjustable("auto")
    """Lightning Fabric's strategy for several processes."""
    threads: int | None = adjustable(None)
    """CPU threads of torch in each process. By default OMP_NUM_THREADS, or what a short measurement finds fastest; a
    resumed run keeps the number it began with, so that its result is the same."""
    precision: Literal["auto", "32-true", "bf16-mixed", "64-true"] = "auto"
    """Lightning Fabric's precision; auto is bf16-mixed on GPUs and on CPUs that multiply bfloat16, and 32-true
    elsewhere."""

    def __post_init__(self) -> None:
        require_choice(self, "precision")
        require(self, ">= 1", "devices", "nodes", "threads")

    def start(self) -> "Fabric":
        """Starts or joins the processes."""
        from unweave.training.launch import launch

        return launch(self)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A training run, apart from its data, views, encoder and objective.

    Examples:
        >>> TrainConfig(epochs=2, batch_size=10).total_steps(images=105)
        20
    """

    epochs: float = 100
    """Passes over the images."""
    steps: int | None = None
    """Optimiser steps, instead of epochs."""
    batch_size: int = 256
    """Images per step, over all processes. 0: as many as the number of images allows, a power of two from 64 to 1024
    with at least 30 steps per epoch where there are enough."""
    micro_batch: int | None = adjustable(None)
    """Images that pass through the network at a time, in each process, where a batch does not fit into memory. The
    gradient is that of the whole batch; batch norm normalises each part."""
    seed: int = 0
    """Seed of the initial weights, the order of images and the views."""
    channels_last: bool = True
    """Memory format of images and kernels; faster for convolutions."""
    compile: bool = adjustable(False)
    """Compile the encoder."""
    fuse: bool = adjustable(False)
    """On a GPU, compute batch norm, ReLU and addition of torchvision's ResNets in one pass; not measured yet."""
    graph: bool = adjustable(False)
    """On one GPU, capture the step as a CUDA graph: faster for small networks, uses more memory."""
    log_every: int = adjustable(20)
    """Steps between two lines of metrics."""
    checkpoint_every: int = adjustable(0)
    """Steps between two checkpoints; 0 for none by steps. The last step always writes one."""
    checkpoint_minutes: float | None = adjustable(5.0)
    """Minutes between two checkpoints."""
    tensorboard: bool = adjustable(False)
    """Write metrics for TensorBoard too."""
    allow_other_data: bool = adjustable(False)
    """Resume although the images are not those with which the run began."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)

    def __post_init__(self) -> None:
        require(self, ">= 1", "steps", "micro_batch", "log_every")
        require(self, ">= 0", "batch_size", "epochs", "checkpoint_every", "checkpoint_minutes")
        if abs(self.seed) >= 2**63:
            raise UnweaveError(f"`seed` must fit into 64 bits, not {self.seed}")

    def for_images(self, images: int) -> "TrainConfig":
        """The same with a definite batch size.

        Examples:
            >>> [TrainConfig(batch_size=0).for_images(n).batch_size for n in (50, 300, 6000, 60_000)]
            [50, 64, 128, 1024]
        """
        if self.batch_size:
            return self
        fitting = 1 << max(1, images // LEAST_STEPS).bit_length() - 1  # the power of two at or below
        return replace(self, batch_size=min(images, max(SMALLEST_BATCH, min(LARGEST_BATCH, fitting))))

    def require_batch(self, images: int | None, least: int, processes: int = 1) -> None:
        """Raises unless this many images and processes give batches, of at least ``least`` images."""
        batch = self.batch_size
        if images is not None and images < batch:
            raise UnweaveError(f"`batch_size` {batch} is larger than the number of images, {images}")
        if batch < least:
            raise UnweaveError(f"`batch_size` {batch} is too small: with these groups and this method use {least}")
        if batch % processes:
            raise UnweaveError(f"`batch_size` {batch} cannot be divided equally among {processes} processes")

    def total_steps(self, images: int) -> int:
        """The number of steps of a run on this many images."""
        return self.steps if self.steps is not None else max(1, round(self.epochs * (images // self.batch_size)))
