"""What the experiment is demanded to show, and what was measured."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from unweave.reproduce.results import Row
from unweave.reproduce.transfer.names import TASKS
from unweave.reproduce.transfer.seeds import (
    Estimate,
    by_seed,
    class_share,
    difference,
    estimate,
    mean,
    mean_matrix,
    separation,
    style_spaces,
    tasks_of,
)

OURS = "SimCLR + Ours-Scratch"
PER_SPACE = "SimCLR + per-space entropy"
CONTENT_AT_MOST, OTHERS_AT_MOST, OWN_AT_LEAST, SHARE_AT_MOST = 0.15, 0.05, 0.5, 0.5
"""Bounds on the sensitivity of content, of a style space to other groups and to its own, and on its class accuracy."""


class Check(NamedTuple):
    """A demand and its measurement, by means over seeds."""

    claim: str
    value: str
    """Measured; a difference has the half-width of its 95% interval, where there are several seeds."""
    bound: str
    met: bool


def checks(rows: Sequence[Row]) -> list[Check]:
    """Every demand whose rows exist, in the order of the demands."""
    parts = (_transfer(rows), _baselines(rows), _separation(rows), _per_space(rows), _own_tasks(rows))
    return [check for part in parts for check in part]


def points(found: Estimate, digits: int = 1) -> str:
    """A difference in points, with the half-width of its interval.

    Examples:
        >>> points(Estimate(0.0512, 0.004, 3)), points(Estimate(-0.01, None, 1))
        ('+5.1 ± 0.4', '−1.0 ± —')
    """
    half = "—" if found.half_width is None else f"{100 * found.half_width:.{digits}f}"
    return f"{100 * found.mean:+.{digits}f} ± {half}".replace("-", "−")


def _ahead(claim: str, found: Estimate | None, least: float | None = None) -> Iterator[Check]:
    """Whether a difference is at least ``least`` points; without it, whether it is above 0."""
    if found is None:
        return
    value = round(100 * found.mean, 9)
    if least is None:
        yield Check(claim, points(found, 2), "> 0", value > 0)
    else:
        yield Check(claim, points(found, 2), f"≥ {least:+g}" if least else "≥ 0", value >= least)


def _transfer(rows: Sequence[Row]) -> Iterator[Check]:
    """Demands 1 to 3: against the bases."""
    yield from _ahead("z: Ours-Scratch − SimCLR, average", difference(rows, OURS, "SimCLR"), 5)
    yield from _ahead("z: Ours-Scratch − SimCLR wide, average", difference(rows, OURS, "SimCLR wide"), 4)
    for group, least in (("spatial", 12), ("appearance", 2), ("other", 0)):
        found = difference(rows, OURS, "SimCLR", column=group)
        yield from _ahead(f"z: Ours-Scratch − SimCLR, {group}", found, least)
    ours_ft = difference(rows, "SimCLR + Ours-FT", "SimCLR continued")
    yield from _ahead("z: Ours-FT − SimCLR continued, average", ours_ft, 1)
    for model, base in (
        (OURS, "SimCLR"),
        ("SimCLR + Ours-FT", "SimCLR continued"),
        ("VICReg + Ours-FT", "VICReg"),
        ("VICReg + Ours-Scratch", "VICReg"),
        ("Barlow Twins + Ours-Scratch", "Barlow Twins"),
    ):
        yield from _ahead(f"h: {model} − {base}, average", difference(rows, model, base, "h"), 0)
    for base in ("VICReg", "Barlow Twins"):
        found = difference(rows, f"{base} + Ours-Scratch", base)
        yield from _ahead(f"z: {base} + Ours-Scratch − {base}, average", found, 4)


def _baselines(rows: Sequence[Row]) -> Iterator[Check]:
    """Demand 4: z against the z of other methods that keep style, and against the h that their authors evaluate."""
    for model in ("AugSelf", "LooC++"):
        yield from _ahead(f"z: Ours-Scratch − {model}, average", difference(rows, OURS, model))
        found = difference(rows, OURS, model, base_features="h")
        yield from _ahead(f"z of Ours-Scratch − h of {model}, average", found)


def _separation(rows: Sequence[Row]) -> Iterator[Check]:
    """Demand 5: each space alone changes with its group, and style spaces do not predict classes."""
    matrix, styles = mean_matrix(rows, OURS), style_spaces(rows, OURS)
    for group, value in matrix.get("content", {}).items():
        yield _at_most(f"Ours-Scratch: sensitivity of content to {group}", value, CONTENT_AT_MOST, 3)
    for space in (space for space in styles if space in matrix):
        for group, value in matrix[space].items():
            claim = f"Ours-Scratch: sensitivity of the {space} space to {group}"
            if group == space:
                yield Check(claim, f"{value:.3f}", f"≥ {OWN_AT_LEAST}", value >= OWN_AT_LEAST)
            else:
                yield _at_most(claim, value, OTHERS_AT_MOST, 3)
    for space in styles:
        if shares := class_share(rows, OURS, space):
            claim = f"Ours-Scratch: class accuracy of the {space} space, divided by content's"
            yield _at_most(claim, mean(shares.values()), SHARE_AT_MOST, 2)


def _at_most(claim: str, value: float, bound: float, digits: int) -> Check:
    return Check(claim, f"{value:.{digits}f}", f"≤ {bound}", value <= bound)


def _per_space(rows: Sequence[Row]) -> Iterator[Check]:
    """Demand 5: ahead of one entropy per space both in transfer and in separation."""
    yield from _ahead(f"z: Ours-Scratch − {PER_SPACE}, average", difference(rows, OURS, PER_SPACE))
    ours, theirs = separation(rows, OURS), separation(rows, PER_SPACE)
    if paired := [ours[seed] - theirs[seed] for seed in ours if seed in theirs]:
        found = estimate(paired)
        half = "—" if found.half_width is None else f"{found.half_width:.3f}"
        claim = f"Ours-Scratch − {PER_SPACE}, mean off-diagonal sensitivity"
        yield Check(claim, f"{found.mean:+.3f} ± {half}".replace("-", "−"), "< 0", found.mean < 0)


def _own_tasks(rows: Sequence[Row]) -> Iterator[Check]:
    """Demand 6: each style space predicts best what its group changes."""
    existing = tasks_of(rows)
    for better, worse, tasks, least in (
        ("spatial", "appearance", ("cub-box", "cub-keypoints"), 10),
        ("appearance", "spatial", ("flowers", "dtd-10", "dtd"), None),
    ):
        for task in (task for task in tasks if task in existing):
            ours, theirs = by_seed(rows, OURS, better, task), by_seed(rows, OURS, worse, task)
            if paired := [ours[seed] - theirs[seed] for seed in ours if seed in theirs]:
                claim = f"{TASKS[task]}: {better} space − {worse} space of Ours-Scratch"
                yield from _ahead(claim, estimate(paired), least)
