"""``unweave probe``: what can be predicted from each space of a run, or from embeddings of any origin."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from unweave.data.tasks import Task, TaskPart
from unweave.errors import UnweaveError
from unweave.evaluation import ProbeScores, probe
from unweave.evaluation.linear_probe import Metric
from unweave.evaluation.targets import Kind
from unweave.inference.embedding_files import EmbeddingTable
from unweave.inference.features import ImageFeatures


def with_all_spaces(features: Mapping[str, Any]) -> dict[str, Any]:
    """h, z (all other spaces side by side) and each space.

    Examples:
        >>> z = with_all_spaces({"h": torch.zeros(2, 3), "content": torch.ones(2, 1), "style": torch.ones(2, 1)})
        >>> {name: tuple(x.shape) for name, x in z.items()}
        {'h': (2, 3), 'z': (2, 2), 'content': (2, 1), 'style': (2, 1)}
    """
    others = {name: x for name, x in features.items() if name != "h"}
    found = {name: x for name, x in features.items() if name == "h"}
    if len(others) > 1 and "z" not in others:
        parts = list(others.values())
        found["z"] = torch.cat(parts, 1) if isinstance(parts[0], Tensor) else np.concatenate(parts, 1)
    return {**found, **others}


def probe_task(
    task: Task,
    size: int,
    compute: Callable[[TaskPart], ImageFeatures],
    *,
    kind: Kind | Literal["auto"] = "auto",
    metric: Metric | Literal["auto"] = "auto",
    **settings: Any,
) -> ProbeScores:
    """Scores of every space on a task.

    Args:
        task: images and labels.
        size: the side in pixels of the network's input, in which boxes and key points are measured.
        compute: the features of the images of a part.
        kind: by default that of the task.
        metric: by default that of the task.
        settings: as for ``uw.probe``.

    Examples:
        >>> from unweave.data import Task, TaskPart, open_source
        >>> images = open_source([np.full((8, 8, 3), 100 * (i % 2), dtype=np.uint8) for i in range(40)])
        >>> task = Task(
        ...     name="mine",
        ...     content="classes",
        ...     metric="accuracy",
        ...     fit=TaskPart(images, "classes", np.arange(40) % 2),
        ...     test=None,
        ... )
        >>> def means(part):
        ...     rows = list(range(len(part.source)))
        ...     return ImageFeatures({"h": torch.tensor([[part.source.read(i).mean() / 255] for i in rows])}, rows)
        >>> probe_task(task, 8, means, knn=False).linear
        {'h': 1.0}
    """
    if metric == "auto" and kind in ("auto", task.kind):
        metric = task.metric
    fit, labels = _part(task.fit, size, compute)
    test = None if task.test is None else _part(task.test, size, compute)
    kind = task.kind if kind == "auto" else kind
    return probe(fit, labels, test=test, kind=kind, metric=metric, **settings)


def _part(part: TaskPart, size: int, compute: Callable[[TaskPart], ImageFeatures]) -> tuple[dict[str, Any], np.ndarray]:
    found = compute(part)
    return with_all_spaces(found.features), part.targets(size, found.rows)


def probe_table(table: EmbeddingTable, **settings: Any) -> ProbeScores:
    """Scores of every space of embeddings with labels; ``settings`` are those of ``uw.probe``."""
    if table.labels is None:
        raise UnweaveError("there is no column of labels in `embeddings`; name one with `label_column`")
    spaces, labels, test = with_all_spaces(table.spaces), table.labels, None
    if table.tested is not None:
        test = ({name: x[table.tested] for name, x in spaces.items()}, labels[table.tested])
        spaces, labels = {name: x[~table.tested] for name, x in spaces.items()}, labels[~table.tested]
    return probe(spaces, labels, test=test, **settings)


def score_factors(spaces: Mapping[str, Any], factors: Mapping[str, np.ndarray], seed: int = 0) -> dict[str, Any]:
    """The table of spaces × factors, DCI of the factors that are classes, and MCC of those that are numbers.

    Texts, booleans and whole numbers are classes; a column with fractions holds numbers.
    """
    from unweave.evaluation import as_targets, dci, mcc, score_spaces

    encoded: dict[str, Tensor] = {}
    categories = []
    for name, values in factors.items():
        targets = as_targets(values, name=name)
        encoded[name] = targets.values if targets.kind == "classes" else targets.values[:, 0]
        if targets.kind == "classes":
            categories.append(name)
    apart = {name: x for name, x in spaces.items() if name not in ("h", "z")} or dict(spaces)
    found: dict[str, Any] = score_spaces(with_all_spaces(spaces), encoded, categories=categories, seed=seed).as_dict()
    if categories and len(apart) > 1:
        scores = dci(apart, {name: encoded[name] for name in categories}, seed=seed)
        found["dci"] = {
            "disentanglement": scores.disentanglement,
            "completeness": scores.completeness,
            "informativeness": scores.informativeness,
            "importance": scores.importance,
            "spaces": list(apart),
            "factors": categories,
        }
    if numbers := [name for name in encoded if name not in categories]:
        together = np.concatenate([np.asarray(x) for x in apart.values()], 1)
        found["mcc"] = mcc(together, torch.stack([encoded[name] for name in numbers], 1))
    return found


def averages(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The mean score of each space over all tasks and over each of the paper's groups."""
    found: dict[str, dict[str, float]] = {}
    for group in dict.fromkeys(["all", *(str(row["group"]) for row in rows if row.get("group"))]):
        chosen = [row["linear"] for row in rows if group in ("all", row.get("group"))]
        found[group] = {space: sum(linear[space] for linear in chosen) / len(chosen) for space in chosen[0]}
    return found
