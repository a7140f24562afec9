"""``report.html`` and ``figure.png`` of the demo."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unweave import Sprites, Views
from unweave import augment as A
from unweave.evaluation import SpaceScores
from unweave.report import as_png, as_svg, color_of, curves, heat_map, image_grid, render
from unweave.reproduce.demo.sprites import DemoSprites
from unweave.reproduce.provenance import provenance
from unweave.training import Run

PANELS = {
    "invariance_gap": ("invariance gap", True),
    "lambda": ("λ", True),
    "variance": ("variance", False),
    "effective_rank": ("effective rank", False),
}


def write_html(
    path: Path, scores: SpaceScores, run: Run, views: Views, sprites: DemoSprites, z: dict[str, Tensor]
) -> None:
    """A self-contained page."""
    from markupsafe import Markup

    spaces = views.spaces
    text = render(
        Path(__file__).with_name("report.html"),
        spaces=spaces,
        colors={space: color_of(spaces, space) for space in spaces},
        scores=Markup(as_svg(_score_figure(scores))),
        measured=[
            {
                "name": space,
                "variance": f"{scores.variance[space]:.2f}",
                "rank": f"{scores.effective_rank[space]:.1f}",
            }
            for space in scores.spaces
        ],
        neighbours={space: _picture(images) for space, images in neighbour_images(spaces, sprites, z, 7).items()},
        pairs={space: _picture(images) for space, images in view_pairs(views, sprites).items()},
        curves=Markup(as_svg(curves(run.metrics, spaces, PANELS))),
        seconds=f"{run.seconds:.0f}",
        provenance=provenance(),
    )
    path.write_text(text)


def _picture(images: Tensor, scale: int = 2) -> dict[str, Any]:
    """Images (rows, columns, c, h, w) as one embedded picture."""
    grid = image_grid(images)
    return {"data": as_png(grid), "width": grid.shape[1] * scale}


def _score_figure(scores: SpaceScores) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 0.45 * len(scores.spaces) + 0.8), layout="constrained")
    _draw_scores(figure.add_subplot(), scores, scores.spaces)
    return figure


def _draw_scores(axis: Any, scores: SpaceScores, spaces: list[str] | tuple[str, ...]) -> None:
    values = torch.tensor([[scores.scores[s][f] for f in scores.factors] for s in spaces])
    chance = torch.tensor([scores.chance[f] for f in scores.factors])
    labels = [f"{factor}\nchance {scores.chance[factor]:.2f}" for factor in scores.factors]
    heat_map(axis, values, chance, spaces, labels, fontsize=9)


def nearest(z: Tensor, queries: Tensor, count: int) -> Tensor:
    """The ``count`` rows most similar to each query by cosine, the query itself first: (queries, 1 + count)."""
    unit = torch.nn.functional.normalize(z, dim=1)
    similarity = unit[queries] @ unit.T
    similarity[torch.arange(len(queries)), queries] = math.inf
    return similarity.topk(count + 1, 1).indices


def neighbour_images(
    spaces: tuple[str, ...], sprites: DemoSprites, z: dict[str, Tensor], count: int
) -> dict[str, Tensor]:
    """In each space, a query of each shape and its nearest images: (shapes, 1 + count, c, h, w) in [0, 1]."""
    shape = sprites.factors["shape"]
    queries = torch.tensor([int((shape == kind).nonzero()[3 + kind]) for kind in range(len(Sprites.shapes))])
    return {
        space: torch.stack([sprites[row] for row in nearest(z[space], queries, count)]).float() / 255
        for space in spaces
    }


def view_pairs(views: Views, sprites: DemoSprites, columns: int = 6) -> dict[str, Tensor]:
    """For each kind of pair, images and their two views: (3, columns, c, h, w) in [0, 1]."""
    images = sprites[torch.arange(columns * len(views.spaces))]
    pair = views(images, generator=torch.Generator().manual_seed(4))
    [normalize] = [transform for transform in views.preparation if isinstance(transform, A.Normalize)]
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (normalize.mean, normalize.std))
    shown = {}
    for kind, space in enumerate(views.spaces):
        rows = pair.shared == kind
        shown[space] = torch.stack(
            [images[rows].float() / 255, *(view[rows] * std + mean for view in (pair.a, pair.b))]
        )
    return shown


def draw_figure(path: Path, scores: SpaceScores, views: Views, sprites: DemoSprites, z: dict[str, Tensor]) -> None:
    """Scores, pairs and neighbours in one picture."""
    from matplotlib.figure import Figure

    spaces = views.spaces
    figure = Figure(figsize=(13, 3.9), layout="constrained")
    grid = figure.add_gridspec(2, len(spaces) + 1, width_ratios=[1.2, *[1] * len(spaces)])
    axis = figure.add_subplot(grid[:, 0])
    _draw_scores(axis, scores, spaces)
    axis.set_title("accuracy (shape, color) and r² (x, y)\nof linear probes from each space", fontsize=10)
    pairs, near = view_pairs(views, sprites), neighbour_images(spaces, sprites, z, count=5)
    for column, space in enumerate(spaces, start=1):
        shares = "share content alone" if space == "content" else f"share content and {space}"
        for row, images, title in (
            (0, pairs[space], f"image, view a, view b: {shares}"),
            (1, near[space], f"query and nearest images in {space}"),
        ):
            axis = figure.add_subplot(grid[row, column])
            axis.imshow(image_grid(images).numpy())
            axis.set_title(title, fontsize=9, color=color_of(spaces, space))
            axis.axis("off")
    figure.savefig(path, dpi=110)
