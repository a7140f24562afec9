"""``figure.png`` of the demo: scores, pairs and neighbours in one picture."""

from pathlib import Path

import torch

from unweave import Sprites, Views
from unweave.evaluation import SpaceScores
from unweave.report import color_of, draw_scores, image_grid, neighbour_images, view_pairs
from unweave.reproduce.demo.sprites import DemoSprites


def one_of_each_shape(sprites: DemoSprites) -> torch.Tensor:
    """The number of a sprite of each shape."""
    shape = sprites.factors["shape"]
    return torch.tensor([int((shape == kind).nonzero()[3 + kind]) for kind in range(len(Sprites.shapes))])


def draw_figure(
    path: Path, scores: SpaceScores, views: Views, sprites: DemoSprites, z: dict[str, torch.Tensor]
) -> None:
    """Writes the figure."""
    from matplotlib.figure import Figure

    spaces, images = views.spaces, sprites[torch.arange(len(sprites))]
    figure = Figure(figsize=(13, 3.6), layout="constrained")
    grid = figure.add_gridspec(2, len(spaces) + 1, width_ratios=[1.2, *[1] * len(spaces)], height_ratios=[2, 3])
    axis = figure.add_subplot(grid[:, 0])
    draw_scores(axis, scores, spaces)
    axis.set_title("accuracy (shape, color) and r² (x, y)\nof linear probes from each space", fontsize=10)
    pairs = view_pairs(views, images)
    near = neighbour_images({space: z[space] for space in spaces}, images, queries=one_of_each_shape(sprites), count=5)
    for column, space in enumerate(spaces, start=1):
        shares = "share content alone" if space == "content" else f"share content and {space}"
        for row, shown, title in (
            (0, pairs[space], f"view a, view b: {shares}"),
            (1, near[space], f"query and nearest images in {space}"),
        ):
            axis = figure.add_subplot(grid[row, column])
            axis.imshow(image_grid(shown).numpy())
            axis.set_title(title, fontsize=9, color=color_of(spaces, space))
            axis.axis("off")
    figure.savefig(path, dpi=110)
