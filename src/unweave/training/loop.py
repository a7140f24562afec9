"""The training loop, from images to weights.

    order of images (seed, epoch) ─► images ─► views (seed, step) ─► encoder ─► objective ─► optimiser ─► dual step

The images of a step and their views depend on the seed and the step alone. A run that is stopped and resumed, with as
many processes or with others, sees what it would have seen.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from unweave.augment import Pair
from unweave.console import ProgressBar, message_console
from unweave.data import BatchSource, DataConfig, as_batch_source, open_source
from unweave.data.deferred import DeferredImages
from unweave.data.sources import is_files
from unweave.data.unreadable import UnreadableImages
from unweave.describe import describe
from unweave.distributed import broadcast_, rank, world_size
from unweave.errors import UnweaveError
from unweave.models import BothViews
from unweave.objectives import LossTerms, Objective
from unweave.settings import identity
from unweave.training.config import TrainConfig
from unweave.training.cuda_graph import CapturedGradients
from unweave.training.lost_process import noticing_lost_processes
from unweave.training.metrics import MetricsFile
from unweave.training.micro_batch import backward, backward_in_parts
from unweave.training.monitor import Evaluation, Monitor, train_mode
from unweave.training.run_folder import RunFolder, describe_model
from unweave.training.sampling import ShuffledOrder, mix_seeds
from unweave.training.signals import StopSignals
from unweave.training.state import TrainingState
from unweave.training.threads import cpu_threads


class PairSampler(Protocol):
    """Makes pairs of views from batches of images, as ``Views`` does.

    Examples:
        >>> import torch, unweave as uw
        >>> class Noise:
        ...     spaces = ("content",)
        ...     def __call__(self, images, *, generator, start, total):
        ...         a, b = (images + torch.randn(images.shape, generator=generator) for _ in "ab")
        ...         return uw.Pair(a, b, torch.zeros(len(images), dtype=torch.long))
    """

    @property
    def spaces(self) -> tuple[str, ...]:
        """Content, and one space for each group that pairs may share."""
        ...

    def __call__(self, images: Tensor, /, *, generator: torch.Generator, start: int, total: int) -> Pair:
        """A pair of views of each image; ``start`` is the place of the first image in the global batch of ``total``."""
        ...


@dataclass(frozen=True)
class Run:
    """The outcome of ``train``, which trains the given encoder in place.

    Examples:
        >>> Run(steps=10, resumed_from=0, seconds=1.5, metrics=[]).stopped
        False
    """

    steps: int
    resumed_from: int
    seconds: float
    """Spent on training, by this call and those that it resumed."""
    metrics: list[dict[str, float]]
    stopped: bool = False
    """Whether SIGTERM stopped the run before its last step; everything is saved, and the same call resumes it."""


def train(
    images: Any,
    views: PairSampler,
    encoder: nn.Module,
    objective: Objective,
    config: TrainConfig,
    out: str | Path,
    *,
    evaluation: Evaluation | None = None,
    fabric: Fabric | None = None,
    progress: bool = True,
    description: str = "training",
) -> Run:
    """Trains ``encoder`` in place and keeps a checkpoint and metrics in the folder ``out``.

    Where ``out`` contains a checkpoint of the same run, training resumes from it; a finished run is only loaded. A loss
    that is not finite stops the run and keeps the last good checkpoint. SIGTERM saves and returns, Ctrl-C saves and
    raises ``KeyboardInterrupt``.

    Args:
        images: a tensor (n, c, h, w), a ``Dataset``, a ``DataLoader``, any ``BatchSource``; or files, as accepted by
            ``open_source``: a folder, Parquet, CSV, a list of paths. They are decoded to 8/7 of the size of the views.
        views: ``Views``, or anything else that makes pairs.
        encoder: maps images to ``{"h": …, "content": …, …}``.
        objective: ``DisentangledLoss`` or another ``Objective``.
        config: the settings of the run.
        out: the run's folder; ``uw.load(out)`` gives the trained model.
        evaluation: evaluates the encoder at intervals.
        fabric: Lightning Fabric with its processes already running.
        progress: show a progress bar.
        description: its title.

    Examples:
        >>> import tempfile, torch, unweave as uw, unweave.augment as A
        >>> views = uw.Views({"color": [A.ColorJitter(hue=0.5)]})
        >>> encoder = uw.Encoder(uw.SmallConvNet(16, layers=((4, 2),), dim=8), views.spaces, dim=4, hidden=8)
        >>> objective = uw.DisentangledLoss(uw.SimCLR(), spaces=views.spaces)
        >>> config = uw.TrainConfig(steps=2, batch_size=8)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     run = uw.train(uw.Sprites(16), views, encoder, objective, config, out, progress=False)
        >>> run.steps
        2
    """
    folder, sampler = RunFolder(out), objective.sampler(views)
    source = _as_source(images, views, folder, progress=progress)
    if (length := _length(source)) is not None:
        config = config.for_images(length)
    fabric = fabric or config.launch.start()
    folder.create()
    with folder.locked(fabric.device), noticing_lost_processes():
        steps = _check(source, sampler, encoder, objective, config)
        folder.require_space(encoder)
        fingerprint = _fingerprint(source, views, encoder, objective, config, steps)
        model_description = describe_model(encoder, views, objective)
        encoder.to(fabric.device, memory_format=_memory_format(config))  # type: ignore[call-overload]
        if world_size() > 1 and fabric.device.type == "cuda":
            encoder = nn.SyncBatchNorm.convert_sync_batchnorm(encoder)
        if config.fuse:
            from unweave.models.fused import fuse  # imports torchvision

            fuse(encoder)
        objective.attach(encoder)
        objective.to(fabric.device)
        broadcast_(objective.state_dict().values())
        on_gpu = fabric.device.type == "cuda"
        optimizer = config.optim.build(nn.ModuleList([encoder, objective]), config.batch_size, fused=on_gpu)
        both = BothViews(encoder)
        if config.compile:
            both.compile()
        model, optimizer = fabric.setup(both, optimizer)

        allowed = config.allow_other_data
        state = TrainingState(folder, encoder, optimizer, objective, fingerprint, model_description, allowed)
        first = state.resume()
        if 0 < first < steps:
            message_console(quiet=rank() != 0 or not progress).print(f"{out}: resumes after step {first} of {steps}")
        board = folder.tensorboard if config.tensorboard else None
        metrics = MetricsFile(folder.metrics, keep_until=first, tensorboard=board)
        generator = torch.Generator(device=fabric.device)
        gradients = _Gradients(fabric, model, sampler, objective, generator, config)
        compute: Callable[[Tensor], LossTerms] = gradients
        if config.graph and on_gpu and world_size() == 1 and config.micro_batch is None:
            parameters = [*encoder.parameters(), *objective.parameters()]
            compute = CapturedGradients(gradients, parameters, generator, stage=objective.stage)
        stopped, done = False, first
        if first < steps:
            for part in (source, evaluation):
                getattr(part, "prepare", _nothing)(fabric.device)

        train_mode(encoder)
        order = ShuffledOrder(_length(source) or 0, config.batch_size, config.seed, first, steps)
        with (
            ProgressBar(steps, first, description, show=progress and rank() == 0) as bar,
            _fast_matmul(fabric.device),
            cpu_threads(fabric.device, config.launch.threads, state.threads),
            StopSignals(fabric.device) as signals,
            closing(_batches(source, order, fabric.device)) as batches,
        ):
            monitor = Monitor(config, steps, state, metrics, bar, evaluation)
            for step, batch in enumerate(batches, first):
                for group in optimizer.param_groups:
                    group["lr"] = config.optim.learning_rate(step, steps, config.batch_size)

                generator.manual_seed(mix_seeds(config.seed, step))
                terms = compute(batch)
                _average_gradients(objective)
                if config.optim.clip is not None:
                    fabric.clip_gradients(model, optimizer, max_norm=config.optim.clip, error_if_nonfinite=False)
                optimizer.step()
                optimizer.zero_grad()
                objective.update(terms)

                done = step + 1
                state.model["input_shape"] = gradients.input_shape
                stopped = signals.received(done) and done < steps
                monitor.after(done, terms, stopping=stopped)
                if stopped:
                    break
            if first < done == steps:
                objective.finish(terms)
        if world_size() > 1:
            torch.distributed.barrier()  # no process ends, and is taken for lost, while the first one still writes
        encoder.eval()
        if signals.interrupted:
            raise KeyboardInterrupt
        seconds = metrics.rows[-1].get("seconds", 0.0) if metrics.rows else 0.0
        return Run(done, first, seconds, metrics.rows, stopped)


def _as_source(images: Any, views: PairSampler, folder: RunFolder, *, progress: bool) -> BatchSource:
    """A batch source from what the user has."""
    if not is_files(images):
        return as_batch_source(images)
    size = getattr(views, "size", None)
    if size is None:
        raise UnweaveError("`images` from files need a size: add a crop to the views, or use uw.data.load_images")
    source, config = open_source(images), DataConfig()
    unreadable = UnreadableImages(len(source), config.max_bad, folder.unreadable if rank() == 0 else None)
    return DeferredImages(source, max(size) * 8 // 7, config, unreadable, progress=progress and rank() == 0)


class _Gradients:
    """Computes the terms of a batch and adds their gradient to the parameters'."""

    def __init__(
        self,
        fabric: Fabric,
        model: nn.Module,
        views: PairSampler,
        objective: Objective,
        generator: torch.Generator,
        config: TrainConfig,
    ) -> None:
        self._fabric, self._model, self._views, self._objective = fabric, model, views, objective
        self._generator, self._part = generator, config.micro_batch
        self._memory_format = _memory_format(config)
        self.input_shape: list[int] | None = None
        """The shape (c, h, w) of a view."""

    def __call__(self, batch: Tensor) -> LossTerms:
        n = len(batch)
        if self._part is None or self._part >= n:
            return backward(self._fabric, self._model, self._objective, self._pair(batch, 0, n))
        seed = self._generator.initial_seed()

        def make_part(start: int, stop: int) -> Pair:
            self._generator.manual_seed(seed)
            return self._pair(batch[start:stop], start, n)

        return backward_in_parts(self._fabric, self._model, self._objective, make_part, n, self._part)

    def _pair(self, images: Tensor, start: int, n: int) -> Pair:
        pair = self._views(images, generator=self._generator, start=rank() * n + start, total=world_size() * n)
        self.input_shape = list(pair.a.shape[1:])
        a, b = (x.to(memory_format=self._memory_format) for x in (pair.a, pair.b))
        return replace(pair, a=a, b=b)


def _batches(source: BatchSource, order: ShuffledOrder, device: torch.device) -> Generator[Tensor, None, None]:
    """The source's batches as a generator, which can be closed."""
    yield from source.batches(order, device)


def _average_gradients(objective: Objective) -> None:
    """Averages the gradients of the objective's own parameters over processes; the encoder's are averaged by Fabric."""
    if world_size() > 1:
        for parameter in objective.parameters():
            if parameter.grad is not None:
                torch.distributed.all_reduce(parameter.grad)
                parameter.grad /= world_size()


def _nothing(device: torch.device) -> None:
    """For sources and evaluations that need no preparation."""


def _memory_format(config: TrainConfig) -> torch.memory_format:
    return torch.channels_last if config.channels_last else torch.contiguous_format


@contextmanager
def _fast_matmul(device: torch.device) -> Iterator[None]:
    """TF32 products and tuned convolutions on a GPU."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.benchmark = before[1]


def _fingerprint(
    source: BatchSource, views: PairSampler, encoder: nn.Module, objective: Objective, config: TrainConfig, steps: int
) -> dict[str, Any]:
    """What must not change when a run resumes."""
    return {
        "images": _length(source),
        "data": getattr(source, "identity", None),
        "views": describe(views),
        "encoder": describe(encoder),
        "objective": describe(objective),
        "training": {**identity(config), "steps": steps},
    }


def _length(source: BatchSource) -> int | None:
    try:
        return len(source)
    except (TypeError, UnweaveError):
        return None


def _check(
    source: BatchSource, views: PairSampler, encoder: nn.Module, objective: Objective, config: TrainConfig
) -> int:
    """Raises for what cannot work; returns the number of steps."""
    if views.spaces != objective.spaces:
        raise UnweaveError(f"`views` have the spaces {views.spaces}, `objective` has {objective.spaces}")
    spaces = getattr(encoder, "spaces", views.spaces)
    if spaces != views.spaces:
        raise UnweaveError(f"`objective` has the spaces {objective.spaces}, `encoder` has {spaces}")
    length = len(source) if config.steps is None else _length(source)
    least = objective.least_batch
    if getattr(views, "all_pairs", False):  # every image gives a pair of every kind
        least = -(-least // len(views.spaces))
    config.require_batch(length, least, world_size())
    return config.total_steps(length or 0)
