"""What is measured of a trained model: linear probes on every task, and the sensitivity matrix."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unweave import sensitivity
from unweave.augment import Views
from unweave.data import Task, TaskPart
from unweave.evaluation import PENALTIES
from unweave.files import write_text
from unweave.inference import ImageFeatures, SpacesModel, probe_task
from unweave.reproduce.transfer.data import TransferData

PHOTOGRAPHS = 2000
"""Held-out photographs on which the sensitivity matrix is measured."""


class ScoresFile:
    """Scores as they are found, so that an interrupted evaluation resumes with the next probe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """The value of this name; it is computed where the file does not contain it."""
        if name not in self.values:
            self.values[name] = make()
            write_text(self.path, json.dumps(self.values, indent=1) + "\n")
        return self.values[name]


def score_model(
    model: SpacesModel,
    views: Views,
    data: TransferData,
    file: ScoresFile,
    *,
    decode_size: int,
    alone: bool = True,
    projected: bool = True,
    penalties: Sequence[float] = PENALTIES,
) -> dict[str, Any]:
    """Linear probes on every task and on the classes of pre-training, and the sensitivity matrix.

    Args:
        model: the trained model.
        views: the groups whose sensitivity is measured; the same for every model.
        data: tasks and photographs.
        file: keeps the scores.
        decode_size: side of the photographs from which views are cut.
        alone: probe each space alone too, besides h and z.
        projected: whether the model's spaces mean anything; otherwise h alone is probed.
        penalties: of the probes.

    Returns:
        scores by task and features, and the penalties that cross-validation chose:
        ``{"tasks": {task: {"h": …, "z": …}}, "penalties": {task: {…}}, "top1": {…}, "sensitivity": …}``.
    """
    model.to(data.device)
    compute = data.images.features_of(model)

    def chosen(part: TaskPart) -> ImageFeatures:
        found = compute(part)
        return ImageFeatures(_features(found.features, alone=alone, projected=projected), found.rows)

    def probed(task: Task) -> dict[str, Mapping[str, float]]:
        scores = probe_task(task, model.size, chosen, penalties=penalties, knn=False, device=data.device)
        linear = {name: round(score, 5) for name, score in scores.linear.items()}
        return {"scores": linear, "penalties": {name: float(f"{value:.3g}") for name, value in scores.penalty.items()}}

    def measured() -> dict[str, dict[str, float]]:
        found = sensitivity(model, views, data.photographs(PHOTOGRAPHS, decode_size))
        return {space: {group: round(v, 5) for group, v in row.items()} for space, row in found.items()}

    found = {task.name: file.get(task.name, partial(probed, task)) for task in data.tasks}
    tasks, chosen_penalties = ({name: one[part] for name, one in found.items()} for part in ("scores", "penalties"))
    top1 = file.get("top1", partial(probed, data.classes))["scores"]
    matrix = file.get("sensitivity", measured) if projected else None
    return {"tasks": tasks, "penalties": chosen_penalties, "top1": top1, "sensitivity": matrix}


def _features(by_space: Mapping[str, Tensor], *, alone: bool, projected: bool) -> dict[str, Tensor]:
    """h, z (all spaces side by side), and the spaces themselves where there are several."""
    spaces = {name: z for name, z in by_space.items() if name != "h"}
    found = {"h": by_space["h"]}
    if projected:
        found["z"] = torch.cat(list(spaces.values()), 1)
    return {**found, **spaces} if alone and projected and len(spaces) > 1 else found
