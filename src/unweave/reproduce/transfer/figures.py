"""``figure.svg``: bars by group of tasks; ``frontier.svg`` and ``trials.svg``: transfer against separation."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unweave.report import save_svg
from unweave.reproduce.results import Row
from unweave.reproduce.transfer.names import GROUPS
from unweave.reproduce.transfer.seeds import (
    by_seed,
    largest_class_share,
    mean,
    models_of,
    off_diagonal,
    separation,
    spread,
    style_spaces,
)

COLORS: dict[str, str] = {
    "SimCLR": "#a9d3ef",
    "SimCLR wide": "#79b8e3",
    "SimCLR continued": "#4b9bd3",
    "SimCLR + Ours-FT": "#1f78b4",
    "SimCLR + Ours-Scratch": "#08306b",
    "SimCLR + per-space entropy": "#cc79a7",
    "SimCLR + narrow styles": "#d55e00",
    "SimCLR + Ours-Scratch on h": "#5e4fa2",
    "SimCLR three heads": "#d8b7dd",
    "SimCLR + paper's objective": "#7a4172",
    "VICReg": "#fbd08f",
    "VICReg + Ours-FT": "#e69f00",
    "VICReg + Ours-Scratch": "#a35200",
    "Barlow Twins": "#8fdcc3",
    "Barlow Twins + Ours-Scratch": "#007a5a",
    "LooC++": "#f0e442",
    "AugSelf": "#b3a800",
    "supervised": "#4d4d4d",
    "random weights": "#bdbdbd",
    "SimCLR, 200 epochs": "#56b4e9",
    "SimCLR + Ours-Scratch, 200 epochs": "#000000",
}
"""A hue for each base (after Okabe and Ito, safe for colour-blind readers), darker for models of ours."""
MARKERS: dict[str, str] = {
    "SimCLR + Ours-FT": "s",
    "SimCLR + Ours-Scratch": "o",
    "SimCLR + per-space entropy": "D",
    "SimCLR + narrow styles": "<",
    "SimCLR + Ours-Scratch on h": "p",
    "SimCLR three heads": "d",
    "SimCLR + paper's objective": "^",
    "VICReg + Ours-FT": "v",
    "VICReg + Ours-Scratch": "P",
    "Barlow Twins + Ours-Scratch": "*",
    "LooC++": "X",
    "SimCLR + Ours-Scratch, 200 epochs": "h",
}
"""Of the points of the frontier, so that they do not depend on colour alone."""
ENTROPY_MARKERS = {
    "content+joint": "^", "content+conditional": "v", "content+pairwise": "o", "per-space": "D",
}  # fmt: skip
"""Of the points of the trials, by entropy."""
BY_SENSITIVITY = "mean off-diagonal sensitivity  (← better separated)"
LARGEST_SHARE = 1.5
"""End of the axis of class accuracies of trials; a content space that predicts almost nothing lies beyond it."""
BY_CLASSES = "largest class accuracy of a style space ÷ content's  (← better separated)"


def color_of_model(model: str) -> str:
    """The colour of a model; gray where the name is unknown."""
    return COLORS.get(model, "#888888")


def draw_groups(path: Path, rows: Sequence[Row]) -> None:
    """Bars per model for every group of tasks: z on the left, h on the right; lines are standard deviations."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    models = models_of(rows)
    figure = Figure(figsize=(12, 3.9 + 0.22 * -(-len(models) // 4)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, features in zip(axes, ("z", "h"), strict=True):
        shown = [model for model in models if by_seed(rows, model, features)]
        _bars(axis, rows, shown, features)
        axis.set_title(f"{features} ({'after' if features == 'z' else 'before'} the projectors)", fontsize=11)
    axes[0].set_ylabel("score (%); Spatial: r² × 100")
    handles = [Patch(color=color_of_model(model), label=model) for model in models]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(models)), fontsize=8.5, frameon=False)
    save_svg(figure, path)


def _bars(axis: Any, rows: Sequence[Row], models: Sequence[str], features: str) -> None:
    """The bars of one panel."""
    width = 0.84 / max(len(models), 1)
    for place, model in enumerate(models):
        for x, group in enumerate(GROUPS):
            values = [100 * value for value in by_seed(rows, model, features, group).values()]
            if values:
                at = x + (place - (len(models) - 1) / 2) * width
                axis.bar(at, mean(values), 0.92 * width, color=color_of_model(model))
                if len(values) > 1:
                    axis.errorbar(at, mean(values), spread(values), color="#222", lw=0.8)
    axis.set_xticks(range(len(GROUPS)), list(GROUPS.values()))
    axis.tick_params(axis="x", length=0)
    axis.axhline(0, color="#444", lw=0.8)
    plain_axis(axis, "y")


def frontier_models(rows: Sequence[Row]) -> list[str]:
    """The models with style spaces and scores of z."""
    return [model for model in models_of(rows) if style_spaces(rows, model) and by_seed(rows, model, "z")]


def draw_frontier(path: Path, rows: Sequence[Row]) -> None:
    """z's average against separation by sensitivity and by class accuracy, for the models with style spaces.

    Points are means over seeds, lines standard deviations; the dashed line is SimCLR's average.
    """
    from matplotlib.figure import Figure

    models = frontier_models(rows)
    figure = Figure(figsize=(10.5, 3.9 + 0.22 * -(-len(models) // 3)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    panels = (
        (separation, BY_SENSITIVITY),
        (largest_class_share, BY_CLASSES),
    )
    simclr = by_seed(rows, "SimCLR", "z")
    for axis, (measure, label) in zip(axes, panels, strict=True):
        for model in models:
            _point(axis, model, measure(rows, model), by_seed(rows, model, "z"))
        if simclr:
            axis.axhline(100 * mean(simclr.values()), color="#444", lw=1.2, ls="--", label="SimCLR (one space)")
        _from_zero(axis, label)
    _finish_frontier(figure, axes, path)


def draw_trials(path: Path, trials: Sequence[Row]) -> None:
    """The same for trials of one seed, by validation scores: a point for each trial with style spaces.

    The marker is the entropy, filled where λ was adapted; the colour is the base method. Points whose style spaces
    predict classes far better than content does are not shown in the second panel.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for trial in (trial for trial in trials if len(trial["scores"]["z"]["sensitivity"] or ()) > 1):
        scores, settings = trial["scores"], trial["settings"]
        styles = [space for space in scores["z"]["sensitivity"] if space != "content"]
        classes = {space: scores[space]["pretraining_top1"] for space in ("content", *styles)}
        adapted = settings.get("lambda_rule", "fixed") != "fixed"
        entropy = settings.get("entropy", "content+joint")
        label = f"{trial['model'].partition(' + ')[0]}, {entropy}, λ {'adapted' if adapted else 'fixed'}"
        share = max(classes[space] for space in styles) / max(classes["content"], 1e-9)
        color = color_of_model(trial["model"])
        for axis, x in zip(axes, (mean(off_diagonal(scores["z"]["sensitivity"])), share), strict=True):
            axis.plot(
                x, 100 * scores["z"]["average"], ENTROPY_MARKERS.get(entropy, "d"), ms=7, mew=1.2, label=label,
                mec=color, mfc=color if adapted else "none",
            )  # fmt: skip
    for axis, label in zip(axes, (BY_SENSITIVITY, BY_CLASSES), strict=True):
        _from_zero(axis, label)
    axes[1].set_xlim(0, LARGEST_SHARE)
    _finish_frontier(figure, axes, path)


def _from_zero(axis: Any, label: str) -> None:
    """An axis of separation: from 0, with room beside the last point."""
    last = axis.dataLim.x1
    axis.set_xlim(0, 1.12 * last if last > 0 else 1)
    axis.set_xlabel(label, fontsize=9)
    plain_axis(axis, "both")


def _finish_frontier(figure: Any, axes: Any, path: Path) -> None:
    axes[0].set_ylabel("transfer: average of z (%)")
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    if handles:
        figure.legend(
            list(handles.values()), list(handles), loc="outside lower center", ncols=3, fontsize=8.5, frameon=False
        )
    save_svg(figure, path)


def _point(axis: Any, model: str, x: Mapping[int, float], y: Mapping[int, float]) -> None:
    """The mean of the seeds that have both values, with standard deviations."""
    seeds = [seed for seed in x if seed in y]
    if not seeds:
        return
    across, up = [x[seed] for seed in seeds], [100 * y[seed] for seed in seeds]
    errors = {"xerr": spread(across), "yerr": spread(up)} if len(seeds) > 1 else {}
    axis.errorbar(
        mean(across), mean(up), **errors, fmt=MARKERS.get(model, "d"), color=color_of_model(model), ecolor="#888",
        elinewidth=1, ms=8, mec="#222", mew=0.6, label=model,
    )  # fmt: skip


def plain_axis(axis: Any, grid: str) -> None:
    """Without a frame, with a light grid below the data."""
    axis.set_axisbelow(True)
    axis.grid(axis=grid, color="#dddddd", lw=0.7)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
