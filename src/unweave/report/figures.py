"""Parts of figures that several experiments share."""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unweave.report.templates import number

COLORS = ("#7b3fe4", "#e8760c", "#1170c9", "#2a9d5c", "#c2334d", "#8a6d3b")
"""One for each space, content first: the paper's purple, orange and blue."""


def color_of(spaces: Sequence[str], space: str) -> str:
    """The colour of a space, by its place."""
    return COLORS[list(spaces).index(space) % len(COLORS)]


def heat_map(
    axis: Any, scores: Tensor, chance: Tensor, rows: Sequence[str], columns: Sequence[str], *, fontsize: float = 8
) -> None:
    """Scores (rows × columns) as a heat map on a matplotlib axis; white is chance."""
    shade = ((scores - chance) / (1 - chance)).clamp(0, 1)
    axis.imshow(shade.numpy(), cmap="Blues", vmin=0, vmax=1.1, aspect="auto")
    for i, line in enumerate(scores.tolist()):
        for j, value in enumerate(line):
            ink = "white" if shade[i, j] > 0.6 else "black"
            axis.text(j, i, number(value), ha="center", va="center", fontsize=fontsize, color=ink)
    axis.set_xticks(range(len(columns)), columns, fontsize=fontsize)
    axis.set_yticks(range(len(rows)), rows, fontsize=fontsize)


def image_grid(images: Tensor, *, gap: int = 1) -> Tensor:
    """Images (rows, columns, c, h, w) in [0, 1] as one image (H, W, c) with gray lines between them."""
    padded = torch.nn.functional.pad(images, (gap, gap, gap, gap), value=0.4)
    rows, columns, c, h, w = padded.shape
    return padded.permute(0, 3, 1, 4, 2).reshape(rows * h, columns * w, c).clamp(0, 1)


def as_png(image: Tensor) -> str:
    """An image (H, W, c) in [0, 1] as a data URI."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray((image * 255).round().byte().numpy()).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def save_svg(figure: Any, to: Path | io.StringIO) -> None:
    """Saves a matplotlib figure: equal numbers give equal bytes."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "unweave"}):
        figure.savefig(to, format="svg", metadata={"Date": None})


def as_svg(figure: Any) -> str:
    """A matplotlib figure as an SVG element."""
    buffer = io.StringIO()
    save_svg(figure, buffer)
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]


def curves(
    metrics: Sequence[Mapping[str, float]], spaces: Sequence[str], panels: Mapping[str, tuple[str, bool]]
) -> Any:
    """A panel for each metric with a line for each space; ``panels`` gives its title and whether its axis is a log.

    A metric of the whole run, such as the loss, has one line.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.75 * len(panels), 2.6), layout="constrained")
    figure.patch.set_alpha(0)
    steps = [row["step"] for row in metrics]
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (metric, (title, log)) in zip(axes, panels.items(), strict=True):
        if metric in metrics[-1]:
            axis.plot(steps, [row[metric] for row in metrics], color="#777", lw=1.6)
        else:
            for space in spaces:
                axis.plot(steps, [row[f"{space}/{metric}"] for row in metrics], color=color_of(spaces, space), lw=1.6)
        axis.set_title(title, fontsize=10, color="#777")
        axis.patch.set_alpha(0)
        axis.tick_params(labelsize=8, colors="#777")
        for side in axis.spines.values():
            side.set_color("#9999")
        if log:
            axis.set_yscale("log")
        elif metric not in metrics[-1]:
            axis.set_ylim(bottom=0)
    return figure
