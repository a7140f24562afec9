"""The transfer study (paper, section 5.3).

    photographs ─► a model for each row, by ``pretrain`` ─► frozen features: z, h and each space
                ─► linear probes on the tasks, classes of pre-training, sensitivity matrix ─► table.json

Each model has a folder below OUT/runs with its checkpoint and its scores, so that an interrupted study resumes.
"""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from unweave import UnweaveError, load, pretrain
from unweave.evaluation import PENALTIES
from unweave.inference import SpacesModel
from unweave.reproduce.results import ResultsTable, Row
from unweave.reproduce.transfer.data import TransferData, pretraining_files
from unweave.reproduce.transfer.names import group_averages
from unweave.reproduce.transfer.processes import Processes
from unweave.reproduce.transfer.report import KEY, write_report
from unweave.reproduce.transfer.scores import ScoresFile, score_model
from unweave.reproduce.transfer.settings import SUPERVISED, UNTRAINED, Scale, chosen_models, read_scale
from unweave.reproduce.transfer.supervised import train_supervised

QUICK: dict[str, Any] = {
    "backbone": "test_resnet",
    "size": 32,
    "dim": 8,
    "hidden": 16,
    "style_layers": (),
    "queue_size": 8,
    "epochs": 1,
    "projector_epochs": 0,
    "steps": 2,
    "batch_size": 12,
    "graph": False,
    "compile": False,
    "cache": "none",
    "workers": 0,
}
"""Settings of a test."""
FIT = 20_000
"""Images on which the probe of the classes of pre-training is fitted."""


@dataclass(frozen=True)
class Study:
    """What all models of a study share."""

    out: Path
    scale: Scale
    data: TransferData
    changes: Mapping[str, Any]
    """Settings of `unweave train` in place of those of the scale, for every model."""
    processes: Processes
    """Those that train each model together."""
    penalties: Sequence[float] = PENALTIES

    def folder(self, model: str, seed: int) -> Path:
        """Of a model's checkpoint and scores."""
        return self.out / "runs" / f"{folder_name(model)}-{seed}"


def folder_name(model: str) -> str:
    """A model's name without characters that are unusual in file names.

    Examples:
        >>> folder_name("SimCLR + Ours-Scratch, 200 epochs")
        'simclr-ours-scratch-200-epochs'
    """
    return "-".join(re.findall(r"[a-z0-9]+", model.lower()))


def run_transfer(
    out: Path,
    data: Path,
    *,
    scale: str = "mini",
    pretraining: Path | None = None,
    seeds: Sequence[int] = (0,),
    only: str = "",
    device: str | None = None,
    quick: bool = False,
    changes: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Trains and scores the models that ``out`` does not contain yet; returns all rows.

    Args:
        out: folder for the results.
        data: folder of the tasks' data sets.
        scale: ``mini`` or ``paper``.
        pretraining: folder of the pre-training images; by default ``tiny-imagenet`` or ``imagenet`` in ``data``.
        seeds: of the networks, the order of images and the views; every model is made with each.
        only: names of models, or parts of them, separated by commas.
        device: cpu or cuda.
        quick: a test: two steps of a small network, few images of each task.
        changes: settings of `unweave train` that replace those of the scale.
    """
    if not seeds:
        raise UnweaveError("`seed` needs at least one number")
    settings = read_scale(scale)
    models = chosen_models(settings, only)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    photographs = pretraining or data / ("imagenet" if scale == "paper" else "tiny-imagenet")
    found = TransferData(data, photographs, device=device, fit=FIT, few=quick)
    _ = found.tasks  # an unreadable one raises here, before training
    changes = {"accelerator": device, **(QUICK if quick else {}), **(changes or {})}
    processes = Processes(settings.config(models[0], changes).training.launch)
    study = Study(out, settings, found, changes, processes, PENALTIES[::11] if quick else PENALTIES)
    (out / "runs").mkdir(parents=True, exist_ok=True)
    table = ResultsTable(out / "table.json", KEY, settings)
    with table.counting() if processes.first else nullcontext():
        for model, seed in product(models, seeds):
            with processes.claimed(study.folder(model, seed)) as mine:
                table.read_again()
                if processes.agree(mine and (model, "h", seed) not in table.done):
                    train_model(study, model, seed)
                    if processes.first:
                        table.add(rows_of(study, model, seed))
    if processes.first:
        table.read_again()
        write_report(out, table)
    return table.rows


def train_model(study: Study, model: str, seed: int) -> Path:
    """Trains a model, and first the one it starts from; returns its folder. A finished one is not trained again."""
    folder = study.folder(model, seed)
    changes: dict[str, Any] = {**study.changes, "seed": seed}
    if start := study.scale.start(model):
        with study.processes.claimed(study.folder(start, seed), math.inf):
            changes["init"] = str(train_model(study, start, seed))
    config = study.scale.config(model, changes)
    if model == SUPERVISED:
        if study.processes.first:
            with study.processes.training(study.out / "runs"):
                train_supervised(study.data, config, folder)
    elif model != UNTRAINED:
        with study.processes.training(study.out / "runs"):
            run = pretrain(pretraining_files(study.data.pretraining), folder, config=config)
        if run.stopped:
            raise KeyboardInterrupt
    return folder


def load_model(study: Study, model: str, seed: int) -> SpacesModel:
    """The trained network of a row."""
    if model != UNTRAINED:
        return load(study.folder(model, seed))
    config = study.scale.config(model, study.changes)
    torch.manual_seed(seed)
    views = config.views.build()
    return SpacesModel(config.build_encoder(views.spaces), views.preparation, (3, *[config.views.size] * 2))


def rows_of(study: Study, model: str, seed: int) -> list[Row]:
    """Scores a trained model: a row for z, for h and for each space."""
    folder, common = study.folder(model, seed), study.scale.views_config()
    folder.mkdir(parents=True, exist_ok=True)
    config = study.scale.config(model, study.changes)
    scores = score_model(
        load_model(study, model, seed),
        common.views.build(),
        study.data,
        ScoresFile(folder / "scores.json"),
        decode_size=common.decode_size,
        projected=model not in (UNTRAINED, SUPERVISED),
        penalties=study.penalties,
    )
    about = {"epochs": config.training.epochs + config.start.projector_epochs}
    return [
        {"model": model, "features": name, "seed": seed, **row_scores(scores, name), **about} for name in scores["top1"]
    ]


def row_scores(scores: Mapping[str, Any], features: str) -> Row:
    """The scores of some features: of each task, and their means; and the penalty of each task's probe."""
    tasks = {name: by_features[features] for name, by_features in scores["tasks"].items()}
    matrix = scores["sensitivity"]
    return {
        "pretraining_top1": scores["top1"][features],
        "tasks": tasks,
        "penalties": {name: by_features[features] for name, by_features in scores["penalties"].items()},
        **{group: round(score, 5) for group, score in group_averages(tasks).items()},
        "sensitivity": None if matrix is None or features == "h" else matrix.get(features, matrix),
    }
