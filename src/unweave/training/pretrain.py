"""``unweave train``: a run on images of your own.

    DATA ─► source ─► decoded images ────────────────────────────────────┐
    preset, YAML, flags ─► configuration ─► views, encoder, objective ───┴─► the loop (loop.py) ─► RUN

Where a trained base is fine-tuned there are two phases, each a run of the loop: the projectors alone, then everything.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from rich.console import Console

from unweave._version import __version__
from unweave.augment import Views
from unweave.data.folder import FolderImages
from unweave.data.loader import load_images
from unweave.data.skipped import Skipped
from unweave.data.source import MISSING, Source, Subset, open_source
from unweave.errors import UnweaveError
from unweave.evaluation.online import OnlineProbe
from unweave.models import Encoder
from unweave.processes import rank, world_size
from unweave.training.checkpoint import atomically
from unweave.training.config import TrainConfig
from unweave.training.initialise import initialise
from unweave.training.launch import launch, processes
from unweave.training.loop import CHECKPOINT, Run, make_folder, train
from unweave.training.metrics import ProgressBar
from unweave.training.pretrain_config import FIELDS, PretrainConfig, flag, read_yaml, to_mapping
from unweave.training.recipe import make_encoder, make_objective, make_train_config, make_views

CONFIG = "config.yaml"
SKIPPED = "skipped.txt"
PROJECTORS = "projectors"
"""The folder, in a run's, of the phase that trains projectors alone."""
PROBED = 4000
"""Images that the online probe embeds."""
MAY_CHANGE = frozenset((
    "micro_batch", "compile", "graph", "cache", "workers", "max_bad", "probe", "probe_every", "probe_data",
    "tensorboard", "log_every", "checkpoint_minutes", "accelerator", "devices", "nodes", "strategy", "root", "init",
))  # fmt: skip
"""Settings that may differ when a run is taken up again."""


def pretrain(data: str, out: str | Path, config: PretrainConfig, *, progress: bool = True) -> Run:
    """Trains on DATA and leaves configuration, checkpoint, metrics and what was skipped in ``out``."""
    out = Path(out)
    source = open_source(data, root=config.root, image_column=config.image_column, label_column=config.label_column)
    if len(source) < config.batch_size:
        raise UnweaveError(
            f"--batch-size {config.batch_size} is more than the {len(source)} images of {data}; take a smaller one"
        )
    steps_per_epoch = len(source) // config.batch_size
    phases = _phases(config, out, steps_per_epoch)
    fabric = launch(phases[-1].config)
    make_folder(out)
    _keep_config(out, data, config)

    say = Console(stderr=True, quiet=rank() != 0 or not progress, soft_wrap=True, highlight=False)
    say.print(_summary(data, source, fabric))
    # What can be mistaken comes first, decoding last: it may take long.
    views = make_views(config)
    encoder = _encoder(config, out, say)
    objective = make_objective(config, steps_per_epoch)
    probe = _probe(source, config, views, steps_per_epoch, say) if rank() == 0 else None
    skipped = Skipped(len(source), config.max_bad, out / SKIPPED if rank() == 0 else None)
    images = _images(source, config, fabric, skipped, progress)
    for phase in phases:
        if phase is not phases[-1] and (out / CHECKPOINT).exists():
            continue  # its outcome is in the checkpoint of the phase that follows
        for parameter in encoder.backbone.parameters():
            parameter.requires_grad_(not phase.frozen)
        what = "projectors" if phase.frozen else "training"
        try:
            run = train(
                images, views, encoder, objective, phase.config, phase.out,
                evaluation=probe, fabric=fabric, progress=progress, description=what,
            )  # fmt: skip
        except torch.OutOfMemoryError:
            raise UnweaveError(
                "the GPU's memory is full: take a smaller --batch-size or --micro-batch, or --cache ram"
            ) from None
        if run.stopped:
            break
    skipped.gather()
    if run.resumed_from == phase.config.steps:
        say.print(f"{out} had taken all of its {run.resumed_from} steps before: nothing was left to do")
    if len(skipped):
        count = "1 image" if len(skipped) == 1 else f"{len(skipped)} images"
        say.print(f"{count} could not be read: see {skipped.path}")
    return run


@dataclass(frozen=True)
class _Phase:
    out: Path
    frozen: bool
    config: TrainConfig


def _phases(config: PretrainConfig, out: Path, steps_per_epoch: int) -> list[_Phase]:
    """The projectors alone, then everything; each where it has epochs. The last one's checkpoint is the run's."""
    devices, nodes = processes(config.devices, config.nodes)
    on_gpu = config.accelerator in ("auto", "cuda", "gpu") and torch.cuda.is_available()
    precision = {"auto": "bf16-mixed" if on_gpu else "32-true"}.get(config.precision, config.precision)
    phases = []
    for epochs, frozen in ((config.projector_epochs, True), (config.epochs, False)):
        if epochs:
            settings = make_train_config(
                config, epochs, steps_per_epoch, devices=devices, nodes=nodes, precision=precision
            )
            phases.append(_Phase(out / PROJECTORS if frozen and config.epochs else out, frozen, settings))
    return phases


def _keep_config(out: Path, data: str, config: PretrainConfig) -> None:
    """Writes the whole configuration beside the run; refuses a folder in which another one was started."""
    path = out / CONFIG
    if path.exists() and any((folder / CHECKPOINT).exists() for folder in (out, out / PROJECTORS)):
        theirs = read_yaml(path)
        ours = {"data": data, **to_mapping(config)}
        changed = [
            f"{'DATA' if name == 'data' else flag(name)} was {theirs.get(name)}, now {value}"
            for name, value in ours.items()
            if name not in MAY_CHANGE and theirs.get(name) != value
        ]
        if changed:
            raise UnweaveError(f"{out} holds another run ({', '.join(changed)}); choose an empty folder")
    if rank() == 0:
        write_config(path, {"data": data, **to_mapping(config), "unweave": __version__})


def write_config(path: Path, values: dict[str, Any]) -> None:
    """A YAML file, whole or not at all."""
    import yaml

    try:
        with atomically(path) as temporary:
            temporary.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), encoding="utf-8")
    except OSError as error:
        raise UnweaveError(f"cannot write {path}: {error.strerror}") from None


def read_config(path: Path) -> PretrainConfig:
    """The configuration that a run's folder holds; what a newer unweave has added is left out."""
    from unweave.training.pretrain_config import from_mapping

    values = {name: value for name, value in read_yaml(path).items() if name in FIELDS}
    return from_mapping(values, PretrainConfig(), str(path))


def _summary(data: str, source: Source, fabric: Fabric) -> str:
    classes = f" of {len(set(source.labels) - {MISSING})} classes" if source.labels else ", without labels"
    many = f", {world_size()} processes" if world_size() > 1 else ""
    others = source.others if isinstance(source, FolderImages) else Counter[str]()
    ignored = ", ".join(f"{count} {suffix}" for suffix, count in others.most_common(4))
    note = f"; left out by their names: {ignored}" if ignored else ""
    return f"{len(source):,} images from {data}{classes}, on {fabric.device}{many}{note}"


def _images(source: Source, config: PretrainConfig, fabric: Fabric, skipped: Skipped, progress: bool) -> Any:
    with ProgressBar(len(source), 0, "decoding", show=progress and rank() == 0, step="image") as bar:
        return load_images(
            source,
            config.working_size,
            cache=config.cache,
            workers=config.workers,
            device=fabric.device,
            skipped=skipped,
            watch=bar.advance,
        )


def _encoder(config: PretrainConfig, out: Path, say: Console) -> Encoder:
    try:
        encoder = make_encoder(config, pretrained=config.init == "pretrained")
    except UnweaveError:
        raise
    except Exception as error:  # whatever a download may raise
        if config.init != "pretrained":
            raise
        reason = " ".join(str(error).split())[:200]
        raise UnweaveError(f"--init pretrained: the weights of {config.backbone} cannot be had: {reason}") from None
    resuming = any((folder / CHECKPOINT).exists() for folder in (out, out / PROJECTORS))
    if config.init not in (None, "pretrained") and not resuming:
        say.print(initialise(encoder, str(config.init)))
    return encoder


def _probe(
    source: Source, config: PretrainConfig, views: Views, steps_per_epoch: int, say: Console
) -> OnlineProbe | None:
    """Of a few thousand labelled images, where there are any."""
    if config.probe == "none":
        return None
    if config.probe_data is not None:
        source = open_source(config.probe_data, image_column=config.image_column, label_column=config.label_column)
        if source.labels is None:
            raise UnweaveError(f"--probe-data {config.probe_data} has no labels")
    if source.labels is None:
        return None
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(1)).tolist()
    chosen = Subset(source, [i for i in order if source.labels[i] != MISSING][:PROBED])
    skipped = Skipped(len(chosen), 1.0)
    decoded = load_images(chosen, config.size, cache="ram", workers=config.workers, skipped=skipped)
    kept = [i for i in range(len(chosen)) if chosen.name(i) not in skipped.reasons]
    labels = torch.tensor(chosen.labels)[kept]
    if len(kept) < 20 or len(labels.unique()) < 2:
        say.print(f"too few labelled images for a probe: {len(kept)} of {len(labels.unique())} classes")
        return None
    return OnlineProbe(
        decoded[torch.tensor(kept)], labels, views, kind=config.probe, every=config.probe_every * steps_per_epoch
    )
