"""Rows by model and features: means over seeds, and differences of two models that are paired by seed."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from unweave.reproduce.results import Row
from unweave.reproduce.transfer.names import BASE, ORDER, OTHER_BASES, SPATIAL, TASKS, group_averages

NOT_SPATIAL = "average without the spatial tasks"
"""A column: the mean over all other tasks."""
Matrix = dict[str, dict[str, float]]
"""A sensitivity matrix: the value of every space and group."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds."""

    mean: float
    half_width: float | None
    """Of the 95% interval by Student's t; None with one seed."""
    seeds: int


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of one value for each seed, with its 95% interval.

    Examples:
        >>> found = estimate([0.04, 0.05, 0.06])
        >>> round(found.mean, 3), round(found.half_width, 3), found.seeds
        (0.05, 0.025, 3)
    """
    if len(values) < 2:
        return Estimate(mean(values), None, len(values))
    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1)) * spread(values) / math.sqrt(len(values))
    return Estimate(mean(values), half, len(values))


def mean(values: Iterable[float]) -> float:
    """The mean; of nothing it is an error."""
    listed = list(values)
    return math.fsum(listed) / len(listed)


def spread(values: Sequence[float]) -> float:
    """The standard deviation of a sample; 0 of one value."""
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / max(len(values) - 1, 1))


def models_of(rows: Iterable[Row]) -> list[str]:
    """The models that have rows, in order; names that are not in ``ORDER`` follow at the end."""
    found = dict.fromkeys(row["model"] for row in rows)
    return [*(name for name in ORDER if name in found), *(name for name in found if name not in ORDER)]


def tasks_of(rows: Iterable[Row]) -> list[str]:
    """The tasks that have scores, in the order of the paper's table."""
    found = dict.fromkeys(task for row in rows for task in row["tasks"])
    return [*(task for task in TASKS if task in found), *(task for task in found if task not in TASKS)]


def comparable(rows: Sequence[Row]) -> list[Row]:
    """The rows with the tasks that all of them have, and the averages over these.

    Averages over different tasks cannot be compared: a folder of data may have been incomplete when a row was made.

    Examples:
        >>> rows = [{"tasks": {"pets": 0.9, "cars": 0.1}, "average": 0.5}, {"tasks": {"pets": 0.8}, "average": 0.8}]
        >>> [row["average"] for row in comparable(rows)]
        [0.9, 0.8]
    """
    common = set.intersection(*(set(row["tasks"]) for row in rows)) if rows else set()
    return [_restricted(row, common) for row in rows]


def comparable_trials(trials: Sequence[Row]) -> list[Row]:
    """The same for trials, each of which has scores by features."""
    scores = iter(comparable([of for trial in trials for of in trial["scores"].values()]))
    return [{**trial, "scores": {name: next(scores) for name in trial["scores"]}} for trial in trials]


def _restricted(row: Row, tasks: set[str]) -> Row:
    kept = {task: score for task, score in row["tasks"].items() if task in tasks}
    return row if len(kept) == len(row["tasks"]) else {**row, "tasks": kept, **group_averages(kept)}


def by_seed(rows: Iterable[Row], model: str, features: str, column: str = "average") -> dict[int, float]:
    """The value of a column or of a task, for each seed that has it."""
    found = {row["seed"]: row for row in rows if (row["model"], row["features"]) == (model, features)}
    values = {seed: _value(row, column) for seed, row in sorted(found.items())}
    return {seed: float(value) for seed, value in values.items() if value is not None}


def _value(row: Row, column: str) -> float | None:
    if column == NOT_SPATIAL:
        others = [score for task, score in row["tasks"].items() if task not in SPATIAL]
        return mean(others) if others else None
    return row["tasks"].get(column, row.get(column))


def difference(
    rows: Sequence[Row],
    model: str,
    base: str,
    features: str = "z",
    column: str = "average",
    *,
    base_features: str | None = None,
) -> Estimate | None:
    """Model minus base, by the seeds that both have; None where they have none in common."""
    ours = by_seed(rows, model, features, column)
    theirs = by_seed(rows, base, base_features or features, column)
    paired = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    return estimate(paired) if paired else None


def bases_of(model: str) -> list[str]:
    """The models that a model is compared with."""
    return [*([BASE[model]] if model in BASE else []), *OTHER_BASES.get(model, ())]


def style_spaces(rows: Iterable[Row], model: str) -> list[str]:
    """The style spaces of a model, by its sensitivity matrix and the rows of single spaces."""
    found: dict[str, None] = {}
    for row in rows:
        if row["model"] == model:
            names = (row["sensitivity"] or ()) if row["features"] == "z" else (row["features"],)
            found |= dict.fromkeys(names)
    return [space for space in found if space not in ("z", "h", "content")]


def matrices(rows: Iterable[Row], model: str) -> dict[int, Matrix]:
    """The sensitivity matrix of each seed: that of z, or the rows of the single spaces."""
    whole: dict[int, Matrix] = {}
    parts: dict[int, Matrix] = {}
    for row in rows:
        if row["model"] == model and row["sensitivity"]:
            if row["features"] == "z":
                whole[row["seed"]] = row["sensitivity"]
            else:
                parts.setdefault(row["seed"], {})[row["features"]] = row["sensitivity"]
    return dict(sorted((parts | whole).items()))


def mean_matrix(rows: Iterable[Row], model: str) -> Matrix:
    """The mean over the seeds that have each entry; empty without a matrix."""
    entries: dict[str, dict[str, list[float]]] = {}
    for matrix in matrices(rows, model).values():
        for space, line in matrix.items():
            for group, value in line.items():
                entries.setdefault(space, {}).setdefault(group, []).append(value)
    return {space: {group: mean(values) for group, values in line.items()} for space, line in entries.items()}


def off_diagonal(matrix: Matrix) -> list[float]:
    """Content's entries for every group, and those of each style space for the groups of the others.

    Examples:
        >>> off_diagonal({"content": {"a": 0.1, "b": 0.2}, "a": {"a": 0.9, "b": 0.3}, "b": {"a": 0.4, "b": 0.8}})
        [0.1, 0.2, 0.3, 0.4]
    """
    return [value for space, line in matrix.items() for group, value in line.items() if space != group]


def separation(rows: Iterable[Row], model: str) -> dict[int, float]:
    """The mean off-diagonal entry of the sensitivity matrix of each seed."""
    return {seed: mean(off_diagonal(matrix)) for seed, matrix in matrices(rows, model).items()}


def class_share(rows: Sequence[Row], model: str, space: str) -> dict[int, float]:
    """Top-1 accuracy of a space divided by content's, for each seed that has both."""
    content = by_seed(rows, model, "content", "pretraining_top1")
    own = by_seed(rows, model, space, "pretraining_top1")
    return {seed: own[seed] / content[seed] for seed in own if content.get(seed)}


def largest_class_share(rows: Sequence[Row], model: str) -> dict[int, float]:
    """The largest share of a style space, for each seed that has all of them."""
    shares = [class_share(rows, model, space) for space in style_spaces(rows, model)]
    seeds = [seed for seed in shares[0] if all(seed in share for share in shares)] if shares else []
    return {seed: max(share[seed] for share in shares) for seed in seeds}
