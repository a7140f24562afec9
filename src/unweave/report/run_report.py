"""The report of a run: a page to look at and its numbers.

images ─► pairs of views ─► sensitivity of each space to each group ─► verdict ┐
       └► h and z ─► variance, effective rank, nearest neighbours, kNN ────────┴─► report.html, report.json
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from unweave import augment as A
from unweave.console import ProgressBar
from unweave.errors import UnweaveError
from unweave.evaluation import SpaceScores, compute_embeddings, knn_accuracy, sensitivity
from unweave.files import write_text
from unweave.objectives import effective_rank, variance
from unweave.report.figures import as_png, as_svg, color_of, curves, heat_map, image_grid
from unweave.report.templates import render
from unweave.report.verdict import Finding, assess, summary

QUERIES, NEIGHBOURS, COLUMNS = 8, 6, 6
PANELS = {
    "lambda": ("λ", True),
    "invariance": ("invariance", False),
    "invariance_gap": ("invariance gap", True),
    "variance": ("variance", False),
    "effective_rank": ("effective rank", False),
}
CHANGED = 1000
"""Images on which sensitivity is measured at most."""
EARLY = 100
"""Steps before which a verdict means little."""


class Model(Protocol):
    """What a report needs of a model, as ``uw.load`` returns it."""

    encoder: nn.Module

    @property
    def spaces(self) -> tuple[str, ...]:
        """The names of the spaces."""
        ...

    def normalize(self, z: Tensor) -> Tensor:
        """An embedding in the geometry of the loss."""
        ...


@dataclass(frozen=True)
class ReportImages:
    """The images of a report, in two sizes, and their classes.

    Args:
        large: (n, c, H, W), uint8, from which views are made.
        small: (n, c, h, w), uint8, as the network sees them without augmentation.
        labels: (n,), or None.
        held_out: whether the network was not trained on them.
    """

    large: Tensor
    small: Tensor
    labels: Tensor | None = None
    held_out: bool = True


@dataclass(frozen=True)
class RunReport:
    """What was measured, and the pictures of the page."""

    spaces: tuple[str, ...]
    groups: tuple[str, ...]
    sensitivity: dict[str, dict[str, float]]
    variance: dict[str, float]
    effective_rank: dict[str, float]
    knn: dict[str, float] | None
    images: int
    held_out: bool
    seconds: float
    findings: list[Finding]
    neighbours: dict[str, Tensor]
    pairs: dict[str, Tensor]
    metrics: list[dict[str, float]]

    @property
    def verdict(self) -> str:
        """One sentence, or two where the run was short."""
        steps = int(self.metrics[-1].get("step", EARLY)) if self.metrics else EARLY
        after = f"after {steps} {'step' if steps == 1 else 'steps'}"
        early = f"It is too early to judge {after}: train longer. " if steps < EARLY else ""
        return early + summary(self.findings)

    def as_dict(self) -> dict[str, Any]:
        """The numbers, as ``report.json`` has them."""
        rounded = {
            "sensitivity": {space: _rounded(row) for space, row in self.sensitivity.items()},
            "variance": _rounded(self.variance),
            "effective_rank": _rounded(self.effective_rank),
            "knn": None if self.knn is None else _rounded(self.knn),
        }
        return {
            "spaces": list(self.spaces),
            "groups": list(self.groups),
            **rounded,
            "images": self.images,
            "held_out": self.held_out,
            "verdict": self.verdict,
            "findings": [{"space": f.space, "good": f.good, "text": f.text} for f in self.findings],
            "seconds": round(self.seconds, 1),
        }


def make_report(
    model: Model,
    views: A.Views,
    images: ReportImages,
    *,
    metrics: Sequence[Mapping[str, float]] = (),
    fitted: ReportImages | None = None,
    queries: Tensor | None = None,
    seed: int = 0,
    progress: bool = False,
) -> RunReport:
    """Measures a model.

    Args:
        model: with its encoder, spaces and geometry.
        views: the groups whose parameters are changed.
        images: on which everything is measured.
        metrics: the lines of the run's metrics.jsonl.
        fitted: labelled images among which kNN looks for neighbours; by default half of ``images``.
        queries: numbers of the images whose nearest neighbours are shown; by default eight.
        seed: of the views.
        progress: show a progress bar.
    """
    started = time.perf_counter()
    if len(images.small) < 2:
        raise UnweaveError(f"a report needs at least 2 images, not {len(images.small)}")
    large, known = images.large[:CHANGED], None if fitted is None else fitted.small
    steps = len(images.small) + 2 * len(views.groups) * len(large) + (0 if known is None else len(known))
    found: dict[str, dict[str, float]] = {}
    with ProgressBar(steps, 0, "report", show=progress, step="image") as bar:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            bar.advance(done)

        z = embed(model, views, images.small, advance)
        z_known = None if known is None else embed(model, views, known, advance)
        if views.groups:
            found = sensitivity(model.encoder, views, large, normalize=model.normalize, seed=seed, on_progress=advance)
    spread = {space: float(variance(model.normalize(z[space]))) for space in model.spaces}
    knn = _knn(z, images.labels)
    if fitted is not None and z_known is not None:
        knn = _knn_from(z_known, fitted, z, images)
    return RunReport(
        spaces=model.spaces,
        groups=views.groups,
        sensitivity=found,
        variance=spread,
        effective_rank={space: float(effective_rank(model.normalize(z[space]))) for space in model.spaces},
        knn=knn,
        images=len(images.small),
        held_out=images.held_out,
        seconds=time.perf_counter() - started,
        findings=assess(model.spaces, found, spread) if found else [],
        neighbours=neighbour_images({space: z[space] for space in model.spaces}, images.small, queries=queries),
        pairs=view_pairs(views, images.large),
        metrics=[dict(row) for row in metrics],
    )


def embed(model: Model, views: A.Views, images: Tensor, on_progress: Callable[[int], None]) -> dict[str, Tensor]:
    """h and the embedding in every space, on the CPU."""
    device = next(model.encoder.parameters()).device
    z = compute_embeddings(
        model.encoder,
        lambda rows: views.prepare(images[rows].to(device)),
        torch.arange(len(images)),
        batch_size=256,
        on_progress=on_progress,
    )
    return {name: value.float().cpu() for name, value in z.items()}


def _knn(z: dict[str, Tensor], labels: Tensor | None) -> dict[str, float] | None:
    if labels is None or len(labels) < 20 or len(labels.unique()) < 2:
        return None
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    fit, test = order[::2], order[1::2]
    return {name: knn_accuracy(value[fit], labels[fit], value[test], labels[test]) for name, value in z.items()}


def _knn_from(
    z_fit: dict[str, Tensor], fitted: ReportImages, z: dict[str, Tensor], images: ReportImages
) -> dict[str, float] | None:
    if fitted.labels is None or images.labels is None or len(fitted.labels.unique()) < 2:
        return None
    return {name: knn_accuracy(z_fit[name], fitted.labels, z[name], images.labels) for name in z}


def nearest(z: Tensor, queries: Tensor, count: int) -> Tensor:
    """The query and the ``count`` rows most similar to it by cosine, for each query: (queries, 1 + count)."""
    unit = torch.nn.functional.normalize(z, dim=1)
    similarity = unit[queries] @ unit.T
    similarity[torch.arange(len(queries)), queries] = torch.inf
    return similarity.topk(min(count + 1, len(z)), 1).indices


def neighbour_images(
    z: Mapping[str, Tensor], images: Tensor, *, queries: Tensor | None = None, count: int = NEIGHBOURS
) -> dict[str, Tensor]:
    """In each space, queries and their nearest images: (queries, 1 + count, c, h, w) in [0, 1]."""
    if queries is None:
        queries = torch.linspace(0, len(images) - 1, min(QUERIES, len(images))).long()
    return {
        space: torch.stack([images[row] for row in nearest(values, queries, count)]).float() / 255
        for space, values in z.items()
    }


def view_pairs(views: A.Views, images: Tensor, columns: int = COLUMNS) -> dict[str, Tensor]:
    """For each kind of pair, views a and b of some images as the network saw them: (2, columns, c, h, w) in [0, 1]."""
    kinds = len(views.spaces)
    some = images[torch.arange(columns * kinds) % len(images)]
    pair = views(some, generator=torch.Generator().manual_seed(4), start=0, total=len(some))
    a, b = (_denormalised(view, views) for view in (pair.a, pair.b))
    return {
        space: torch.stack([a[pair.shared == kind][:columns], b[pair.shared == kind][:columns]])
        for kind, space in enumerate(views.spaces)
    }


def _denormalised(images: Tensor, views: A.Views) -> Tensor:
    """Pixels in [0, 1] from what ``Normalize`` has made of them."""
    for transform in reversed(views.preparation):
        if isinstance(transform, A.Normalize):
            mean, std = (torch.tensor(value).view(-1, 1, 1) for value in (transform.mean, transform.std))
            images = images.cpu() * std + mean
    return images.cpu().clamp(0, 1)


def write_report(
    folder: Path, report: RunReport, *, provenance: Mapping[str, Any], scores: SpaceScores | None = None
) -> None:
    """Writes ``report.html`` and ``report.json``; ``scores`` of known factors are shown where there are any."""
    from markupsafe import Markup

    spaces = report.spaces
    page = render(
        Path(__file__).with_name("run.html"),
        spaces=spaces,
        groups=report.groups,
        colors={space: color_of(spaces, space) for space in spaces},
        report=report,
        matrix=Markup(as_svg(_matrix_figure(report))) if report.sensitivity else "",
        scores=Markup(as_svg(score_figure(scores))) if scores else "",
        neighbours={space: _picture(images) for space, images in report.neighbours.items()},
        pairs={space: _picture(images) for space, images in report.pairs.items()},
        curves=Markup(as_svg(curves(report.metrics, spaces, _panels(report)))) if len(report.metrics) > 1 else "",
        provenance=provenance,
    )
    write_text(folder / "report.html", page)
    write_text(folder / "report.json", json.dumps({**report.as_dict(), **provenance}, indent=1) + "\n")


def _panels(report: RunReport) -> dict[str, tuple[str, bool]]:
    """The panels whose metrics were written for every space."""
    last = report.metrics[-1]
    loss = {"loss": ("loss", False)} if "loss" in last else {}
    return loss | {name: panel for name, panel in PANELS.items() if all(f"{s}/{name}" in last for s in report.spaces)}


def _matrix_figure(report: RunReport) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6 + 1.3 * len(report.groups), 0.8 + 0.45 * len(report.spaces)), layout="constrained")
    figure.patch.set_alpha(0)
    axis = figure.add_subplot()
    values = torch.tensor([[report.sensitivity[space][group] for group in report.groups] for space in report.spaces])
    heat_map(axis, values, torch.zeros(len(report.groups)), report.spaces, report.groups, fontsize=9)
    axis.set_xlabel("group that changes", fontsize=9)
    axis.set_ylabel("space", fontsize=9)
    return figure


def score_figure(scores: SpaceScores) -> Any:
    """Scores of known factors from each space as a heat map."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 0.45 * len(scores.spaces) + 0.8), layout="constrained")
    draw_scores(figure.add_subplot(), scores, scores.spaces)
    return figure


def draw_scores(axis: Any, scores: SpaceScores, spaces: Sequence[str]) -> None:
    """The heat map on a matplotlib axis."""
    values = torch.tensor([[scores.scores[s][f] for f in scores.factors] for s in spaces])
    chance = torch.tensor([scores.chance[f] for f in scores.factors])
    labels = [f"{factor}\nchance {scores.chance[factor]:.2f}" for factor in scores.factors]
    heat_map(axis, values, chance, spaces, labels, fontsize=9)


def _picture(images: Tensor) -> dict[str, Any]:
    """Images (rows, columns, c, h, w) as one embedded picture."""
    rgb = images[:, :, :3] if images.shape[2] >= 3 else images[:, :, :1].expand(-1, -1, 3, -1, -1)
    grid = image_grid(rgb)
    enlarge = max(1, 64 // images.shape[-1])
    return {"data": as_png(grid), "width": grid.shape[1] * enlarge}


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}
