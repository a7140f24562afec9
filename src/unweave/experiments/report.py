"""Parts of reports, most of a self-contained HTML page: for people who would rather look than read."""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unweave.evaluation import SpaceScores

COLORS = ("#7b3fe4", "#e8760c", "#1170c9", "#2a9d5c", "#c2334d", "#8a6d3b")
"""One for each space, content first: the paper's purple, orange and blue."""

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.9rem; margin-bottom: .2rem } h2 { margin-top: 2.4rem; border-bottom: 1px solid var(--line) }
p.lead { font-size: 1.1rem; margin-top: 0 } .quiet { opacity: .7; font-size: .9rem }
img.sprites { image-rendering: pixelated; display: block; border-radius: 4px; background: #000 }
table { border-collapse: separate; border-spacing: 3px } th { font-weight: 600; text-align: left; padding: .3rem .7rem }
td { padding: .45rem .8rem; text-align: right; border-radius: 4px; font-variant-numeric: tabular-nums }
td.plain { background: var(--soft) } .row { display: flex; gap: 1.2rem; flex-wrap: wrap; align-items: flex-start }
figure { margin: .6rem 0 } figcaption { font-size: .92rem; margin-bottom: .35rem } svg { max-width: 100%; height: auto }
.tag { display: inline-block; width: .75em; height: .75em; border-radius: 50%; margin-right: .45em }
"""


def page(title: str, lead: str, sections: Sequence[tuple[str, str]]) -> str:
    """A whole document; ``lead`` and the sections' bodies are HTML."""
    body = "\n".join(f"<h2>{html.escape(name)}</h2>\n{content}" for name, content in sections)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n'
        f'<body><h1>{html.escape(title)}</h1><p class="lead">{lead}</p>\n{body}\n</body></html>\n'
    )


def image_grid(images: Tensor, *, scale: int = 2, gap: int = 1) -> str:
    """Images (rows, columns, c, h, w) in [0, 1] as one picture."""
    from PIL import Image

    rows, columns, c, h, w = images.shape
    canvas = torch.full((c, rows * (h + gap) - gap, columns * (w + gap) - gap), 0.35)
    for i in range(rows):
        for j in range(columns):
            canvas[:, i * (h + gap) : i * (h + gap) + h, j * (w + gap) : j * (w + gap) + w] = images[i, j]
    pixels = (canvas.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img class="sprites" width="{pixels.shape[1] * scale}" src="data:image/png;base64,{data}" alt="">'


def figure(caption: str, picture: str) -> str:
    """A picture with words above it."""
    return f"<figure><figcaption>{caption}</figcaption>{picture}</figure>"


def tag(spaces: Sequence[str], space: str) -> str:
    """The space's name behind a dot of its colour."""
    return f'<span class="tag" style="background:{color_of(spaces, space)}"></span>{html.escape(space)}'


def color_of(spaces: Sequence[str], space: str) -> str:
    """The colour of a space, by its place."""
    return COLORS[list(spaces).index(space) % len(COLORS)]


def heat_map(table: SpaceScores, spaces: Sequence[str]) -> str:
    """Spaces × factors: the darker, the further above chance; beside it, whether the space is alive."""
    head = "".join(f"<th>{html.escape(f)}</th>" for f in table.factors)
    rows = []
    for space in table.spaces:
        name = tag(spaces, space) if space in spaces else html.escape(space)
        cells = "".join(_cell(table.scores[space][f], table.chance[f]) for f in table.factors)
        measures = (f"{table.variance[space]:.2f}", f"{table.effective_rank[space]:.1f}")
        alive = "".join(f'<td class="plain">{measure}</td>' for measure in measures)
        rows.append(f"<tr><th>{name}</th>{cells}{alive}</tr>")
    chance = "".join(f'<td class="plain">{table.chance[f]:.2f}</td>' for f in table.factors)
    rows.append(f'<tr><th class="quiet">chance</th>{chance}<td></td><td></td></tr>')
    return f"<table><tr><th></th>{head}<th>variance</th><th>effective rank</th></tr>{''.join(rows)}</table>"


def number(score: float) -> str:
    """Two digits, and no minus before a zero."""
    return f"{score:.2f}".replace("-0.00", "0.00")


def save_svg(drawing: Any, to: Path | io.StringIO) -> None:
    """A figure of matplotlib's, the same bytes from the same numbers."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "unweave"}):
        drawing.savefig(to, format="svg", metadata={"Date": None})


def _cell(score: float, chance: float) -> str:
    above = min(1.0, max(0.0, (score - chance) / (1 - chance)))
    ink = "#fff" if above > 0.55 else "inherit"
    return f'<td style="background:rgba(30,90,170,{0.06 + 0.94 * above:.2f});color:{ink}">{number(score)}</td>'


def curves(
    metrics: Sequence[Mapping[str, float]], spaces: Sequence[str], panels: Mapping[str, tuple[str, bool]]
) -> str:
    """Small multiples as SVG, a line a space: ``panels`` maps a metric to its title and whether its axis is a log's."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(11, 2.6), layout="constrained")
    drawing.patch.set_alpha(0)
    axes: Any = drawing.subplots(1, len(panels))
    steps = [row["step"] for row in metrics]
    for axis, (metric, (title, log)) in zip(axes, panels.items(), strict=True):
        for space in spaces:
            axis.plot(steps, [row[f"{space}/{metric}"] for row in metrics], color=color_of(spaces, space), lw=1.6)
        axis.set_title(title, fontsize=10, color="#777")
        axis.patch.set_alpha(0)
        axis.tick_params(labelsize=8, colors="#777")
        for side in axis.spines.values():
            side.set_color("#9999")
        if log:
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
    buffer = io.StringIO()
    save_svg(drawing, buffer)
    legend = " &nbsp; ".join(tag(spaces, space) for space in spaces)
    return f"<p>{legend}</p>{buffer.getvalue()[buffer.getvalue().index('<svg') :]}"
