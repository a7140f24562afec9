"""The training loop, from images to weights.

    order of images (seed, epoch) ─► images ─► views (seed, step) ─► encoder ─► objective ─► optimiser ─► dual step

Which images a step sees and how they are transformed hang on the seed and the step alone, so that a run which is
stopped and started again, on as many processes or on others, sees what it would have seen.
"""

import shutil
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from unweave.augment import Pair, Views
from unweave.errors import UnweaveError
from unweave.models import BothViews
from unweave.objectives import DisentangledLoss
from unweave.objectives.disentangled import Terms
from unweave.processes import rank, world_size
from unweave.training.checkpoint import remove_remains
from unweave.training.config import TrainConfig
from unweave.training.launch import launch
from unweave.training.lock import only_run
from unweave.training.logbook import Evaluation, Logbook, train_mode
from unweave.training.metrics import MetricsFile, ProgressBar
from unweave.training.micro_batch import backward, backward_in_parts
from unweave.training.optimizer import learning_rate, make_optimizer
from unweave.training.order import batch_index, mix
from unweave.training.recorded import Recorded
from unweave.training.resume import identity, resume
from unweave.training.stop import StopRequest

CHECKPOINT = "checkpoint.safetensors"
METRICS = "metrics.jsonl"


class ImageSource(Protocol):
    """Anything with a length that gives images (n, c, h, w), uint8 or float in [0, 1], for an index (n,).

    It may also have ``batches(order, device)``, an iterator over the images of each index of ``order``: for sources
    that work ahead.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, index: Tensor, /) -> Tensor: ...


@dataclass(frozen=True)
class Run:
    """What ``train`` leaves behind; the encoder it was given is trained in place."""

    steps: int
    resumed_from: int
    seconds: float
    """Spent on training, by this call and those it went on from."""
    metrics: list[dict[str, float]]
    stopped: bool = False
    """SIGTERM came before the last step; everything is saved, and the same call goes on."""


def train(
    images: ImageSource,
    views: Views,
    encoder: nn.Module,
    objective: DisentangledLoss,
    config: TrainConfig,
    out: str | Path,
    *,
    evaluation: Evaluation | None = None,
    fabric: Fabric | None = None,
    progress: bool = True,
    description: str = "training",
) -> Run:
    """Trains ``encoder`` in place and keeps a checkpoint and metrics in ``out``.

    Where ``out`` already holds a checkpoint of the same configuration, the run continues from it; a finished run is
    only loaded. A loss that is not a number stops the run and leaves the last good checkpoint. SIGTERM saves and
    returns, Ctrl-C saves and raises ``KeyboardInterrupt``. ``fabric``, where it is given, has its processes running
    already.
    """
    out = Path(out)
    fabric = fabric or launch(config)
    make_folder(out)
    with only_run(out, fabric.device):
        _check(images, views, encoder, objective, config, out)
        memory_format = torch.channels_last if config.channels_last else torch.contiguous_format
        encoder.to(memory_format=memory_format)
        if world_size() > 1 and fabric.device.type == "cuda":
            encoder = nn.SyncBatchNorm.convert_sync_batchnorm(encoder)
        optimizer = make_optimizer(encoder, config, fused=fabric.device.type == "cuda")
        both = BothViews(encoder)
        if config.compile:
            both.compile()
        model, optimizer = fabric.setup(both, optimizer)
        objective.to(fabric.device)

        about = identity(len(images), views, encoder, objective, config)
        first = resume(out / CHECKPOINT, encoder, optimizer, objective, about)
        metrics = MetricsFile(out / METRICS, keep_until=first, tensorboard=config.tensorboard)
        generator = torch.Generator(device=fabric.device)
        gradients = _gradients(fabric, model, views, objective, generator, config)
        if _can_be_recorded(fabric, config):
            parameters = encoder.parameters()
            gradients = Recorded(gradients, parameters, generator, phase=lambda: objective.asks_independence)
        stopped, done = False, first

        train_mode(encoder)
        order = (batch_index(step, len(images), config) for step in range(first, config.steps))
        with (
            ProgressBar(config.steps, first, description, show=progress and rank() == 0) as bar,
            _fast_matmul(fabric.device),
            StopRequest(fabric.device) as stop,
            closing(_batches(images, order, fabric.device)) as batches,
        ):
            book = Logbook(config, out / CHECKPOINT, about, encoder, optimizer, objective, metrics, bar, evaluation)
            for step, batch in enumerate(batches, first):
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(step, config)

                generator.manual_seed(mix(config.seed, step))
                terms = gradients(batch)
                if config.clip is not None:
                    fabric.clip_gradients(model, optimizer, max_norm=config.clip, error_if_nonfinite=False)
                optimizer.step()
                optimizer.zero_grad()
                objective.update(terms)

                done = step + 1
                stopped = stop.asked(done) and done < config.steps
                book.after(done, terms, stopping=stopped)
                if stopped:
                    break
        if world_size() > 1:
            torch.distributed.barrier()  # none leaves, and is taken for dead, while the first still writes
        encoder.eval()
        if stop.interrupted:
            raise KeyboardInterrupt
        seconds = metrics.rows[-1].get("seconds", 0.0) if metrics.rows else 0.0
        return Run(done, first, seconds, metrics.rows, stopped)


def _batches(images: ImageSource, order: Iterable[Tensor], device: torch.device) -> Generator[Tensor, None, None]:
    """A batch for every index, from sources that work ahead and from those that do not."""
    work_ahead = getattr(images, "batches", None)
    if work_ahead is not None:
        yield from work_ahead(order, device)
    else:
        for index in order:
            yield images[index.to(device, non_blocking=True)]


def _gradients(
    fabric: Fabric,
    model: nn.Module,
    views: Views,
    objective: DisentangledLoss,
    generator: torch.Generator,
    config: TrainConfig,
) -> Callable[[Tensor], Terms]:
    """What gives the terms of a batch, their gradient added to the parameters'."""
    memory_format = torch.channels_last if config.channels_last else torch.contiguous_format

    def make_pair(images: Tensor, start: int, n: int) -> Pair:
        pair = views(images, generator=generator, start=rank() * n + start, total=world_size() * n)
        return Pair(pair.a.to(memory_format=memory_format), pair.b.to(memory_format=memory_format), pair.shared)

    def at_once(batch: Tensor) -> Terms:
        return backward(fabric, model, objective, make_pair(batch, 0, len(batch)))

    def in_parts(batch: Tensor) -> Terms:
        n, part, seed = len(batch), config.micro_batch or len(batch), generator.initial_seed()

        def make_part(start: int, stop: int) -> Pair:
            generator.manual_seed(seed)
            return make_pair(batch[start:stop], start, n)

        return backward_in_parts(fabric, model, objective, make_part, n, part)

    whole = config.micro_batch is None or config.micro_batch >= config.batch_size // world_size()
    return at_once if whole else in_parts


def _can_be_recorded(fabric: Fabric, config: TrainConfig) -> bool:
    return config.graph and fabric.device.type == "cuda" and world_size() == 1 and config.micro_batch is None


@contextmanager
def _fast_matmul(device: torch.device) -> Iterator[None]:
    """TF32 products and tuned convolutions on a GPU while we train."""
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


def _check(
    images: ImageSource, views: Views, encoder: nn.Module, objective: DisentangledLoss, config: TrainConfig, out: Path
) -> None:
    if views.spaces != objective.spaces:
        raise UnweaveError(f"the views ask for spaces {views.spaces}, the objective has {objective.spaces}")
    spaces = getattr(encoder, "spaces", views.spaces)
    if spaces != views.spaces:
        raise UnweaveError(f"the views ask for spaces {views.spaces}, the encoder has {spaces}")
    if len(images) < config.batch_size:
        raise UnweaveError(f"{len(images)} images are fewer than one batch of {config.batch_size}")
    if config.batch_size < len(views.spaces):
        raise UnweaveError(f"a batch of {config.batch_size} is too small for {len(views.spaces)} kinds of pairs")
    if config.batch_size % world_size():
        raise UnweaveError(f"a batch of {config.batch_size} cannot be shared by {world_size()} processes equally")
    if rank() == 0:
        remove_remains(out / CHECKPOINT)
    # Weights and the optimiser's two moments, and the checkpoint before it until the new one is whole.
    needed = 2 * 3 * sum(p.numel() * p.element_size() for p in encoder.parameters())
    if needed > (free := shutil.disk_usage(out).free):
        raise UnweaveError(
            f"checkpoints need {needed / 2**30:.2f} GB in {out}, only {free / 2**30:.2f} GB are free; make room or "
            "choose another folder"
        )


def make_folder(out: Path) -> None:
    """Makes sure that a folder is there and can be written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / f".write-test-{rank()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UnweaveError(f"cannot write to the folder {out}: {error.strerror}; choose another") from None
