"""What the search for settings contributes: the best of k trials, in expectation, for every model.

Models have different numbers of trials. The expectation of the best of k of them, drawn at random, compares models at
the same number (Dodge et al. 2019, "Show Your Work: Improved Reporting of Experimental Results").

Legend: n trials, k of them drawn.
"""

from collections.abc import Sequence
from math import comb, fsum
from pathlib import Path

from unweave.report import save_svg
from unweave.reproduce.results import Row, markdown
from unweave.reproduce.transfer.figures import MARKERS, color_of_model, plain_axis
from unweave.reproduce.transfer.seeds import models_of

BUDGETS = (1, 2, 4, 8, 16, 32)
"""Numbers of trials of the table."""


def expected_best(scores: Sequence[float], k: int) -> float:
    """The expectation of the largest of k scores, drawn without replacement.

    Examples:
        >>> expected_best([0.1, 0.2, 0.6], 3)
        0.6
        >>> round(expected_best([0.1, 0.2, 0.6], 2), 3)  # 0.2, 0.6 and 0.6 for the three pairs
        0.467
    """
    ranked = sorted(scores)
    return fsum(score * comb(below, k - 1) for below, score in enumerate(ranked)) / comb(len(ranked), k)


def scores_of(trials: Sequence[Row], model: str, features: str) -> list[float]:
    """The average over tasks of every trial of a model, on validation images."""
    return [trial["scores"][features]["average"] for trial in trials if trial["model"] == model]


def budget_table(trials: Sequence[Row]) -> str:
    """A line for z and one for h of every model: the expected best of k trials, in points."""
    body = []
    for features in ("z", "h"):
        for model in models_of(trials):
            scores = scores_of(trials, model, features)
            cells = [f"{100 * expected_best(scores, k):.1f}" if k <= len(scores) else "—" for k in BUDGETS]
            body.append([model, features, str(len(scores)), *cells, f"{100 * max(scores):.1f}"])
    return markdown(["model", "features", "trials", *(f"best of {k}" for k in BUDGETS), "best of all"], body)


def draw_budget(path: Path, trials: Sequence[Row]) -> None:
    """The expected best of k trials against k: z on the left, h on the right."""
    from matplotlib.figure import Figure

    models = models_of(trials)
    figure = Figure(figsize=(10.5, 3.6 + 0.22 * -(-len(models) // 4)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, features in zip(axes, ("z", "h"), strict=True):
        for model in models:
            scores = scores_of(trials, model, features)
            numbers = range(1, len(scores) + 1)
            best = [100 * expected_best(scores, k) for k in numbers]
            marker, color = MARKERS.get(model, "o"), color_of_model(model)
            axis.plot(numbers, best, color=color, marker=marker, markevery=[-1], ms=6, lw=1.8, label=model)
        axis.set_xscale("log", base=2)
        axis.set_xticks(BUDGETS, [str(k) for k in BUDGETS])
        axis.set_xlabel("trials")
        axis.set_title(features, fontsize=11)
        plain_axis(axis, "both")
    axes[0].set_ylabel("expected best average (%)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(models)), fontsize=8.5, frameon=False)
    save_svg(figure, path)
