"""``figure.svg`` and ``README.md`` of the numerical experiment."""

import itertools
from pathlib import Path
from typing import Any

from rich.console import Console

from unweave.report import render, save_svg
from unweave.reproduce.results import ResultsTable, Row, markdown

CONTENT_SIZE = 5
"""Dimensions of content."""
RATIOS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.1)
"""Bounds of the rows of the table by direction."""
COLORS = {"content_r2": "#7b3fe4", "style_r2": "#e8760c"}


def write_report(out: Path, table: ResultsTable) -> None:
    """Both files, and a line for each setting on the terminal."""
    draw(out / "figure.svg", table.rows)
    groups = grouped(table.rows)
    text = render(
        Path(__file__).with_name("report.md"),
        claims=claims(groups),
        table=score_table(groups),
        by_direction=by_direction(table.rows),
        provenance=table.provenance_line(),
    )
    (out / "README.md").write_text(text)
    console = Console()
    for (setting, weights), rows in groups.items():
        line = ", ".join(
            f"{size}: {mean(rows, size, 'content_r2'):.2f}/{mean(rows, size, 'style_r2'):.2f}" for size in sizes(rows)
        )
        console.print(f"{setting}, {weights} λ, content/style r² by size: {line}", soft_wrap=True)


def grouped(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """By setting and weights."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["setting"], row["weights"]), []).append(row)
    return groups


def sizes(rows: list[Row]) -> list[int]:
    """The sizes of the embedding."""
    return sorted({row["dim_z"] for row in rows})


def mean(rows: list[Row], size: int, name: str) -> float:
    """The mean over seeds."""
    values = [row[name] for row in rows if row["dim_z"] == size]
    return float(sum(values) / len(values))


def claims(groups: dict[tuple[str, str], list[Row]]) -> list[dict[str, Any]]:
    """The numbers that bear on the paper's claims."""
    found = []
    for setting in dict.fromkeys(name for name, _ in groups):
        fixed, adapted = groups[setting, "fixed"], groups[setting, "adapted"]
        small, large = min((s for s in sizes(fixed) if s >= 5), default=sizes(fixed)[0]), sizes(fixed)[-1]
        most, floor = max((mean(adapted, s, "style_r2"), mean(adapted, s, "style_floor")) for s in sizes(adapted))
        found.append(
            {
                "setting": setting,
                "small": small,
                "large": large,
                "style_small": mean(fixed, small, "style_r2"),
                "style_large": mean(fixed, large, "style_r2"),
                "style_most": most,
                "floor": floor,
                "content_least": min(mean(adapted, s, "content_r2") for s in sizes(adapted) if s >= small),
            }
        )
    return found


def score_table(groups: dict[tuple[str, str], list[Row]]) -> str:
    """Mean and range over seeds, for every size."""
    every = sizes([row for rows in groups.values() for row in rows])
    body = []
    for (setting, weights), rows in groups.items():
        for name in ("content_r2", "style_r2"):
            floor = f"{sum(row['style_floor'] for row in rows) / len(rows):.2f}" if name == "style_r2" else ""
            body.append([setting, weights, name.removesuffix("_r2"), *(spread(rows, s, name) for s in every), floor])
    return markdown(["setting", "λ", "of", *(str(size) for size in every), "floor"], body)


def spread(rows: list[Row], size: int, name: str) -> str:
    """The mean, and the range over seeds."""
    values = [row[name] for row in rows if row["dim_z"] == size]
    return f"{sum(values) / len(values):.3f} ({min(values):.2f} – {max(values):.2f})" if values else ""


def by_direction(rows: list[Row]) -> str:
    """r² of directions of style by how much they are perturbed, of adapted λ and embeddings that fit content."""
    directions = [
        (row["setting"], ratio, r2)
        for row in rows
        if row["weights"] == "adapted" and row["dim_z"] >= CONTENT_SIZE
        for ratio, r2 in zip(row["perturbed"], row["style_r2_by_direction"], strict=True)
    ]
    body = []
    for setting in dict.fromkeys(name for name, _, _ in directions):
        for low, high in itertools.pairwise(RATIOS):
            found = [r2 for name, ratio, r2 in directions if name == setting and low <= ratio < high]
            if found:
                mean_r2 = f"{sum(found) / len(found):.2f}"
                body.append([setting, f"{low:g} to {high:g}", str(len(found)), mean_r2, f"{max(found):.2f}"])
    return markdown(["setting", "ratio", "directions", "mean r²", "largest r²"], body) if body else ""


def draw(path: Path, rows: list[Row]) -> None:
    """r² against the size of the embedding: a panel for each setting, a dot for each seed."""
    from matplotlib.figure import Figure

    groups = grouped(rows)
    settings = list(dict.fromkeys(setting for setting, _ in groups))
    figure = Figure(figsize=(3.6 * len(settings) + 0.6, 3.4), layout="constrained")
    axes = figure.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    for axis, setting in zip(axes, settings, strict=True):
        for weights, style in (("fixed", "--"), ("adapted", "-")):
            mine = groups[setting, weights]
            for name, color in COLORS.items():
                label = f"{name.removesuffix('_r2')}, {weights} λ"
                line = [mean(mine, size, name) for size in sizes(mine)]
                axis.plot(sizes(mine), line, style, color=color, label=label)
                axis.plot([r["dim_z"] for r in mine], [r[name] for r in mine], ".", color=color, ms=3, alpha=0.5)
        floor = [row["style_floor"] for row in rows if row["setting"] == setting]
        axis.axhline(sum(floor) / len(floor), color="#999", lw=0.8, ls=":")
        axis.axvline(5, color="#ccc", lw=0.8)
        axis.set_title(setting)
        axis.set_xlabel("size of the embedding")
    axes[0].set_ylabel("r²")
    axes[0].legend(fontsize=8)
    save_svg(figure, path)
