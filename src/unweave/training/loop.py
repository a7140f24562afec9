"""The training loop, from images to weights.

    order of images (seed, epoch) ─► images ─► views (seed, step) ─► encoder ─► objective ─► optimiser ─► dual step

Which images a step sees and how they are transformed hang on the seed and the step alone, so that a run which is
stopped and started again sees what it would have seen.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from unweave.augment import Views
from unweave.errors import UnweaveError
from unweave.models import BothViews
from unweave.objectives import DisentangledLoss
from unweave.processes import rank, world_size
from unweave.training import checkpoint as ckpt
from unweave.training.config import TrainConfig
from unweave.training.metrics import MetricsFile, ProgressBar
from unweave.training.optimizer import learning_rate, make_optimizer

CHECKPOINT = "checkpoint.safetensors"
METRICS = "metrics.jsonl"


class ImageSource(Protocol):
    """Anything with a length that gives images (n, c, h, w), uint8 or float in [0, 1], for an index (n,)."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: Tensor, /) -> Tensor: ...


@dataclass(frozen=True)
class Run:
    """What ``train`` leaves behind; the encoder it was given is trained in place."""

    steps: int
    resumed_from: int
    seconds: float
    metrics: list[dict[str, float]]


def train(
    images: ImageSource,
    views: Views,
    encoder: nn.Module,
    objective: DisentangledLoss,
    config: TrainConfig,
    out: str | Path,
    *,
    progress: bool = True,
    description: str = "training",
) -> Run:
    """Trains ``encoder`` in place and keeps a checkpoint and metrics in ``out``.

    Where ``out`` already holds a checkpoint of the same configuration, the run continues from it; a finished run is
    only loaded. A loss that is not a number stops the run and leaves the last good checkpoint.
    """
    out = Path(out)
    fabric = Fabric(
        accelerator=config.accelerator,
        devices=config.devices,
        num_nodes=config.nodes,
        strategy=config.strategy,
        precision=config.precision,
    )
    fabric.launch()
    _check(images, views, encoder, objective, config, out)
    memory_format = torch.channels_last if config.channels_last else torch.contiguous_format
    encoder.to(memory_format=memory_format)
    optimizer = make_optimizer(encoder, config)
    both = BothViews(encoder)
    if config.compile:
        both.compile()
    model, optimizer = fabric.setup(both, optimizer)
    objective.to(fabric.device)

    identity = _identity(views, objective, config)
    first = _resume(out / CHECKPOINT, encoder, optimizer, objective, identity)
    metrics = MetricsFile(out / METRICS, keep_until=first)
    generator = torch.Generator(device=fabric.device)
    first_bad_step = torch.full((), -1, dtype=torch.int64, device=fabric.device)
    started = time.perf_counter()

    encoder.train()
    with (
        ProgressBar(config.steps, first, description, show=progress and rank() == 0) as bar,
        _fast_matmul(fabric.device),
    ):
        for step in range(first, config.steps):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config)

            batch = images[_batch_index(step, len(images), config).to(fabric.device)]
            pair = views(batch, generator=generator.manual_seed(_mix(config.seed, step)))
            z_a, z_b = model(pair.a.to(memory_format=memory_format), pair.b.to(memory_format=memory_format))
            terms = objective(z_a, z_b, pair.shared)

            fabric.backward(terms.loss)
            if config.clip is not None:
                fabric.clip_gradients(model, optimizer, max_norm=config.clip, error_if_nonfinite=False)
            optimizer.step()
            optimizer.zero_grad()
            objective.update(terms)

            bad = ~torch.isfinite(terms.loss.detach()) & (first_bad_step < 0)
            first_bad_step = torch.where(bad, step, first_bad_step)
            last = step + 1 == config.steps
            due = config.checkpoint_every and (step + 1) % config.checkpoint_every == 0
            if last or due or (step + 1) % config.log_every == 0:
                _stop_if_bad(int(first_bad_step), out / CHECKPOINT)
            if last or (step + 1) % config.log_every == 0:
                pace = (step + 1 - first) / (time.perf_counter() - started)
                row = {"step": step + 1, "lr": learning_rate(step, config), **terms.as_dict()}
                metrics.write({**row, "images_per_second": pace * config.batch_size})
                bar.show(row["loss"])
            if last or due:
                _save(out / CHECKPOINT, step + 1, encoder, optimizer, objective, identity)
            bar.advance(step + 1)
    encoder.eval()
    return Run(config.steps, first, time.perf_counter() - started, metrics.rows)


def _batch_index(step: int, length: int, config: TrainConfig) -> Tensor:
    """This process's part of the step's global batch: place l of it in the epoch's shuffled order."""
    steps_per_epoch = length // config.batch_size
    epoch, place = divmod(step, steps_per_epoch)
    order = _epoch_order(_mix(config.seed, -1 - epoch), length)
    local = config.batch_size // world_size()
    start = place * config.batch_size + rank() * local
    return order[start : start + local]


_order_cache: dict[tuple[int, int], Tensor] = {}


def _epoch_order(seed: int, length: int) -> Tensor:
    if (seed, length) not in _order_cache:
        _order_cache.clear()
        _order_cache[seed, length] = torch.randperm(length, generator=torch.Generator().manual_seed(seed))
    return _order_cache[seed, length]


def _mix(seed: int, number: int) -> int:
    """One seed from two numbers, so that neighbours have nothing in common."""
    x = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) % 2**64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    return (x ^ (x >> 31)) % 2**63


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
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / f".write-test-{rank()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UnweaveError(f"cannot write to the folder {out}: {error.strerror}; choose another") from None


def _identity(views: Views, objective: DisentangledLoss, config: TrainConfig) -> dict[str, Any]:
    """What must not differ between the two halves of a run."""
    free = ("log_every", "checkpoint_every", "accelerator", "devices", "nodes", "strategy", "compile")
    settings = {k: v for k, v in asdict(config).items() if k not in free}
    rule = f"{objective.base!r}, {objective.rule!r}, content_pairs={objective.content_pairs}"
    return {**settings, "views": repr(views), "objective": rule}


def _save(
    path: Path,
    step: int,
    encoder: nn.Module,
    optimizer: torch.optim.Optimizer,
    objective: DisentangledLoss,
    identity: dict[str, Any],
) -> None:
    if rank() == 0:
        state = {
            "step": step,
            "config": identity,
            "encoder": encoder.state_dict(),
            "optimizer": optimizer.state_dict(),
            "objective": objective.state_dict(),
            "random": ckpt.random_states(),
        }
        try:
            ckpt.save_checkpoint(path, state)
        except OSError as error:
            raise UnweaveError(f"the checkpoint of step {step} could not be written: {error}") from None
    if world_size() > 1:
        torch.distributed.barrier()


def _resume(
    path: Path,
    encoder: nn.Module,
    optimizer: torch.optim.Optimizer,
    objective: DisentangledLoss,
    identity: dict[str, Any],
) -> int:
    """The step to go on from: 0, or what the checkpoint in the folder has reached."""
    if not path.exists():
        return 0
    state = ckpt.load_checkpoint(path)
    theirs, ours = state["config"], json.loads(json.dumps(identity))
    if differ := {k: (theirs.get(k), v) for k, v in ours.items() if theirs.get(k) != v}:
        changes = ", ".join(
            f"other {k}" if k in ("views", "objective") else f"{k} was {old}, now {new}"
            for k, (old, new) in differ.items()
        )
        raise UnweaveError(f"{path.parent} holds another run ({changes}); choose an empty folder or the same settings")
    try:
        encoder.load_state_dict(state["encoder"])
        objective.load_state_dict(state["objective"])
        optimizer.load_state_dict(state["optimizer"])
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UnweaveError(f"{path} is of another model ({reason}); choose an empty folder") from None
    ckpt.restore_random_states(state["random"])
    return int(state["step"])


def _stop_if_bad(step: int, path: Path) -> None:
    if step >= 0:
        kept = f"the last good checkpoint is {path}" if path.exists() else "there was no checkpoint yet"
        raise UnweaveError(f"the loss was not a finite number at step {step + 1}; {kept}; try a smaller lr or clip=1")
