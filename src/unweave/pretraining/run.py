"""``unweave train``: a run on photographs.

    DATA ─► source ─► decoded images ─────────────────────────────────────┐
    preset, YAML, flags ─► configuration ─► views, encoder, objective ────┴─► the training loop ─► RUN

Fine-tuning a trained base has two phases, each a run of the loop: the projectors alone, then all parameters.
"""

import warnings
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from unweave._version import __version__
from unweave.console import message_console
from unweave.data import load_images
from unweave.data.deferred import DeferredImages
from unweave.data.sources import is_files
from unweave.data.sources.base import MISSING, Source, Subset
from unweave.data.sources.folder import FolderImages
from unweave.data.unreadable import UnreadableImages
from unweave.distributed import rank, world_size
from unweave.errors import UnweaveError, UnweaveWarning
from unweave.models import Encoder, load_weights, read_weights
from unweave.pretraining.config import PretrainConfig, from_yaml
from unweave.pretraining.presets import preset as preset_named
from unweave.pretraining.probe import make_probe
from unweave.pretraining.report import hold_out, report_run
from unweave.settings import identity, to_nested, with_settings
from unweave.training import Run, RunFolder, TrainConfig, train

MEASURED = 1000
"""Images on which the statistics of channels are measured."""


def pretrain(
    data: Any,
    out: str | Path = "run",
    *,
    preset: str = "small",
    config: PretrainConfig | None = None,
    progress: bool = True,
    **settings: Any,
) -> Run:
    """Trains on the photographs in ``data``; leaves settings, checkpoint and metrics in the folder ``out``.

    Args:
        data: anything that ``open_source`` accepts: a folder of images, Parquet files, a CSV file, a glob, a list of
            paths, a ``Dataset``, the data set of a ``DataLoader``, or with ``root`` the name of a torchvision data set.
        out: the run's folder; ``uw.load(out)`` gives the trained model.
        preset: the settings to start from.
        config: settings to start from, instead of a preset.
        progress: show progress.
        settings: settings to change, by name, as the flags of ``unweave train``.

    Examples:
        >>> import tempfile, unweave as uw
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for i in range(8):
        ...         Image.new("RGB", (40, 40), (30 * i, 99, 99)).save(f"{folder}/{i}.png")
        ...     small = {"size": 32, "backbone": "test_resnet", "dim": 8, "hidden": 16}
        ...     run = uw.pretrain(folder, f"{folder}/run", steps=1, batch_size=8, workers=0, progress=False, **small)
        >>> run.steps
        1
    """
    config = with_settings(preset_named(preset) if config is None else config, settings)
    name, folder = _name(data), RunFolder(out)
    whole = config.data.open(data)
    source, held_out = hold_out(whole, config.report.held_out)
    config = replace(config, training=config.training.for_images(len(source)))
    phases = _phases(config, folder)
    # One objective for all phases: its schedules are fractions of the whole run, and its state carries over.
    objective = config.build_objective(sum(phase.config.total_steps(len(source)) for phase in phases))
    config.training.require_batch(len(source), objective.least_batch)
    fabric = config.training.launch.start()
    folder.create()
    with folder.locked(fabric.device):
        config = _with_statistics(config, source)
        _save_config(folder, name, config)

    console = message_console(quiet=rank() != 0 or not progress)
    console.print(_summary(name, whole, fabric))
    _warn_of_long_queue(config, len(source))
    views = config.views.build(config.data.channels)
    encoder = _encoder(config, objective.spaces, folder, console)
    probe = make_probe(source, config, views, console.print) if rank() == 0 else None
    unreadable = UnreadableImages(len(source), config.data.max_bad, folder.unreadable if rank() == 0 else None)
    # Decoded by the training loop, after its checks: it can take long, and the user's mistakes should show before.
    images = DeferredImages(source, config.decode_size, config.data, unreadable, progress=progress and rank() == 0)
    for phase in phases:
        if phase is not phases[-1] and folder.checkpoint.exists():
            continue  # its outcome is part of the checkpoint of the next phase
        for parameter in encoder.backbone.parameters():
            parameter.requires_grad_(not phase.frozen)
        title = "projectors" if phase.frozen else "training"
        try:
            run = train(
                images, views, encoder, objective, phase.config, phase.folder.path,
                evaluation=probe, fabric=fabric, progress=progress, description=title,
            )  # fmt: skip
        except torch.OutOfMemoryError:
            raise UnweaveError(
                "the GPU's memory is full: use a smaller `batch_size` or `micro_batch`, or `cache` ram"
            ) from None
        if run.stopped:
            break
    unreadable.gather()
    if run.resumed_from == run.steps and not run.stopped:
        console.print(f"{out} was finished before, after {run.resumed_from} steps: nothing to do")
    if len(unreadable):
        count = "1 image" if len(unreadable) == 1 else f"{len(unreadable)} images"
        console.print(f"{count} could not be read: see {unreadable.path}")
    if config.report.report and not run.stopped and rank() == 0 and not folder.report.exists():
        made = report_run(
            out,
            source if held_out is None else held_out,
            config.data,
            held_out=held_out is not None,
            fitted=None if held_out is None else source,
            decode_size=config.decode_size,
            progress=progress,
        )
        console.print(f"{made.verdict} See {folder.report}")
    return run


def _warn_of_long_queue(config: PretrainConfig, images: int) -> None:
    size = config.baseline.queue_size
    if config.objective.method.startswith("looc") and size > images // 2 and rank() == 0:
        warnings.warn(
            f"`queue_size` {size} is more than half of the {images} images: LooC compares many queries with earlier "
            "keys of the same image as negatives; use a smaller one",
            UnweaveWarning,
            stacklevel=3,
        )


def _with_statistics(config: PretrainConfig, source: Source) -> PretrainConfig:
    """Measures mean and standard deviation of the channels where they are not given and not ImageNet's."""
    if config.views.mean is not None or config.data.channels == 3:
        return config
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(2))[:MEASURED].tolist()
    sample, data = Subset(source, order), config.data
    images = load_images(
        sample, config.decode_size, channels=data.channels, reduced=True, max_pixels=data.max_pixels, cache="ram",
        workers=data.workers, unreadable=UnreadableImages(len(sample), 1.0),
    )  # fmt: skip
    pixels = images[torch.arange(len(images))].float() / 255
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3)).clamp(min=1e-3)
    rounded = [tuple(round(value, 4) for value in statistic.tolist()) for statistic in (mean, std)]
    return with_settings(config, dict(zip(("mean", "std"), rounded, strict=True)))


@dataclass(frozen=True)
class _Phase:
    folder: RunFolder
    frozen: bool
    config: TrainConfig


def _phases(config: PretrainConfig, folder: RunFolder) -> list[_Phase]:
    """The projectors alone, then all parameters; each where it has epochs. The last checkpoint is the run's."""
    training, projector_epochs = config.training, config.start.projector_epochs
    all_parameters = training.epochs > 0 or training.steps is not None
    phases = []
    if projector_epochs:
        settings = replace(training, epochs=projector_epochs, steps=None)
        phases.append(_Phase(folder.projectors if all_parameters else folder, True, settings))
    if all_parameters:
        phases.append(_Phase(folder, False, training))
    return phases


def _resumes(folder: RunFolder) -> bool:
    return folder.checkpoint.exists() or folder.projectors.checkpoint.exists()


def _name(data: Any) -> str:
    """What a run's config.yaml says about its images."""
    if isinstance(data, (str, Path)):
        return str(data)
    kind = type(data).__name__
    return f"{kind} of {len(data)} paths" if is_files(data) and kind in ("list", "tuple") else kind


def _save_config(folder: RunFolder, data: str, config: PretrainConfig) -> None:
    """Writes all settings; raises where the folder contains a run with others."""
    if folder.config.exists() and _resumes(folder):
        saved = folder.load_config()
        theirs = from_yaml(saved, PretrainConfig(), str(folder.config))
        _require_same_length(folder, theirs.training, config.training, data)
        folder.require_same({"DATA": saved.get("source"), **identity(theirs)}, {"DATA": data, **identity(config)})
    folder.save_config({"unweave": __version__, "source": data, **to_nested(config)})


def _require_same_length(folder: RunFolder, old: TrainConfig, new: TrainConfig, data: str) -> None:
    """Says how to train longer: the schedule of a run cannot be changed after it began."""
    if (old.epochs, old.steps) != (new.epochs, new.steps):
        before, now = (f"{c.steps} steps" if c.steps is not None else f"{c.epochs:g} epochs" for c in (old, new))
        raise UnweaveError(
            f"{folder.path} contains a run of {before}, not {now}, and its learning rate follows a schedule of that "
            f"length; to train longer, start a new run from its weights: unweave train {data} `init` {folder.path} "
            f"`out` another-folder, with `epochs` for the epochs to add"
        )


def _summary(data: str, source: Source, fabric: Fabric) -> str:
    classes = f" of {len(set(source.labels) - {MISSING})} classes" if source.labels else ", without labels"
    many = f", {world_size()} processes" if world_size() > 1 else ""
    others = source.others if isinstance(source, FolderImages) else Counter[str]()
    ignored = ", ".join(f"{count} {suffix}" for suffix, count in others.most_common(4))
    note = f"; ignored files: {ignored}" if ignored else ""
    return f"{len(source):,} images from {data}{classes}, on {fabric.device}{many}{note}"


def _encoder(config: PretrainConfig, spaces: tuple[str, ...], folder: RunFolder, console: Any) -> Encoder:
    init = config.start.init
    torch.manual_seed(config.training.seed)
    try:
        encoder = config.build_encoder(spaces)
    except UnweaveError:
        raise
    except Exception as error:  # a download can raise anything
        reason = " ".join(str(error).split())[:200]
        if init != "pretrained":
            if isinstance(error, (RuntimeError, OverflowError, MemoryError)):
                raise UnweaveError(f"there is no memory for such `hidden`, `dim` or `depth`: {reason}") from None
            raise
        name = config.encoder.backbone
        raise UnweaveError(f"`init` pretrained: the weights of {name} are not available: {reason}") from None
    if init is not None and init != "pretrained" and not _resumes(folder):
        console.print(load_weights(encoder, _read_init(init), init))
    return encoder


def _read_init(init: str) -> dict[str, torch.Tensor]:
    """The weights of a run, an export or a file."""
    path = Path(init).expanduser()
    folder = RunFolder(path)
    if folder.checkpoint.is_file():
        return folder.load_model()[1]
    if folder.exported_weights.is_file():
        return read_weights(folder.exported_weights)
    if path.is_dir():
        raise UnweaveError(f"`init` {init}: the folder has no checkpoint of a run")
    if not path.is_file():
        raise UnweaveError(f"`init` {init}: there is no such run or file; 'pretrained' loads published weights")
    return read_weights(path)
