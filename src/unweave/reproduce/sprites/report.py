"""``figure.svg``, sample images and ``README.md`` of the sprites experiment, with the paper's numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from unweave import Sprites
from unweave.report import heat_map, image_grid, number, render, save_svg
from unweave.reproduce.results import ResultsTable, Row, markdown
from unweave.reproduce.sprite_training import MEAN, STD
from unweave.reproduce.sprites.scores import CHANCE, FACTORS, STYLES
from unweave.reproduce.sprites.settings import Setting
from unweave.reproduce.sprites.tuning import limits, misses
from unweave.reproduce.sprites.views import STRENGTHS, color_groups, cut_share, sprite_views
from unweave.settings import to_nested

PAPER = {  # tab:aug-strengths:full: shape, color, scale, orientation, x, y
    ("simclr", "standard", "weak"): (1.0, 0.93, 0.89, 0.30, 0.82, 0.83),
    ("simclr", "standard", "medium"): (1.0, 0.73, 1.00, 0.19, 0.89, 0.89),
    ("simclr", "standard", "strong"): (1.0, 0.31, 1.00, 0.05, 0.23, 0.30),
    ("simclr", "adapted", "weak"): (1.0, 0.21, 0.17, 0.00, 0.01, 0.01),
    ("simclr", "adapted", "medium"): (1.0, 0.10, 0.16, 0.00, 0.00, 0.00),
    ("simclr", "adapted", "strong"): (1.0, 0.10, 0.11, 0.00, 0.00, 0.00),
    ("vicreg", "standard", "weak"): (1.0, 0.87, 0.71, 0.29, 0.45, 0.45),
    ("vicreg", "standard", "medium"): (1.0, 0.40, 1.00, 0.05, 0.56, 0.56),
    ("vicreg", "standard", "strong"): (1.0, 0.12, 0.99, 0.08, 0.62, 0.62),
    ("vicreg", "adapted", "weak"): (1.0, 0.20, 0.17, 0.00, 0.00, 0.00),
    ("vicreg", "adapted", "medium"): (1.0, 0.10, 0.52, 0.00, 0.00, 0.01),
    ("vicreg", "adapted", "strong"): (1.0, 0.10, 0.53, 0.00, 0.00, 0.00),
}
KEY = ("method", "rule", "strength", "views", "seed")
ORDER = {
    "views": ("release", "whole"),
    "method": ("simclr", "vicreg", "barlow_twins"),
    "rule": ("standard", "paper", "ours"),
    "strength": tuple(STRENGTHS),
}
DEFAULTS = to_nested(Setting())
PROBES = ("noiseless", "normalised", "standardised")
"""The scores beside the headline."""


def write_report(out: Path, table: ResultsTable) -> None:
    """All files, and the main table on the terminal."""
    rows = in_order(table.rows)
    (out / "README.md").write_text(
        render(
            Path(__file__).with_name("report.md"),
            provenance=table.provenance_line(),
            settings_file=table.settings["settings_file"],
            **contents(rows),
        )
    )
    draw(out / "figure.svg", rows)
    draw_samples(out / "samples.png")
    print(score_table(rows))


def contents(rows: list[Row]) -> dict[str, Any]:
    """The values of the template."""
    strengths = list(dict.fromkeys(row["strength"] for row in rows))
    by_views = {views: [row for row in rows if row["views"] == views] for views in ORDER["views"]}
    return {
        "seeds": sorted({row["seed"] for row in rows}),
        "tables": {views: score_table(mine) if mine else "" for views, mine in by_views.items()},
        "failures": {views: failures(mine) for views, mine in by_views.items()},
        "limits": {strength: ", ".join(f"{s} {v:.2f}" for s, v in limits(strength).items()) for strength in strengths},
        "cut": ", ".join(f"{cut_share(strength):.0%} of {strength} views" for strength in strengths),
        "color": color_lines(strengths),
        "settings": setting_lines(rows),
        "probe_table": probe_table(rows),
        "one_hot_table": one_hot_table(rows),
    }


def color_lines(strengths: Sequence[str]) -> list[str]:
    """The floor of color, where jitter cannot mix all of the palette."""
    return [
        f"{strength.capitalize()} jitter leaves the palette in {len(groups)} groups of colors that it does not mix: a "
        f"fully invariant space can still predict color with an accuracy of {len(groups) / 10:.2f}."
        for strength in strengths
        if len(groups := color_groups(strength)) > 1
    ]


def setting_lines(rows: list[Row]) -> list[str]:
    """What the setting of every method and rule has other than the defaults; one setting, whatever the strength."""
    found: dict[str, list[str]] = {}
    for row in rows:
        changed = {name: value for name, value in row["setting"].items() if value != DEFAULTS[name]}
        setting = ", ".join(f"{name} {value}" for name, value in changed.items())
        if setting not in (seen := found.setdefault(f"{row['method']} {row['rule']}", [])):
            seen.append(setting)
    return [f"{name}: {' | '.join(settings)}" for name, settings in found.items()]


def name_of(row: Row) -> str:
    """A row in words."""
    return f"{row['method']} {row['rule']} {row['strength']}{', whole' if row['views'] == 'whole' else ''}"


def in_order(rows: list[Row]) -> list[Row]:
    """In the order of the paper's table, released views first; the seeds of a row together."""
    place = {column: {name: i for i, name in enumerate(names)} for column, names in ORDER.items()}
    return sorted(rows, key=lambda row: (*(place[column][row[column]] for column in ORDER), row["seed"]))


def by_name(rows: list[Row]) -> dict[str, list[Row]]:
    """The seeds of each row."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(name_of(row), []).append(row)
    return found


def mean_row(seeds: list[Row]) -> Row:
    """The first of these rows, with means over seeds for its numbers at the top level."""
    columns = (*FACTORS, "style_mean", "variance", "effective_rank", "weight", "length")
    return {**seeds[0], **{column: _mean([row[column] for row in seeds]) for column in columns}}


def paper_scores(row: Row) -> tuple[float, ...] | None:
    """The paper's scores of this row; both adaptive rules stand beside its adapted λ."""
    return PAPER.get((row["method"], "standard" if row["rule"] == "standard" else "adapted", row["strength"]))


def score_table(rows: list[Row]) -> str:
    """Headline scores, means over seeds, and the paper's numbers."""
    body = []
    for name, seeds in by_name(rows).items():
        row, paper = mean_row(seeds), paper_scores(seeds[0])
        ours = [*(row[factor] for factor in FACTORS), row["style_mean"]]
        theirs = [*paper, _mean(paper[1:])] if paper else [None] * len(ours)
        cells = [number(a) + (f" / {b:.2f}" if b is not None else "") for a, b in zip(ours, theirs, strict=True)]
        rest = [f"{row['variance']:.2g}", f"{row['effective_rank']:.1f}", f"{row['weight']:.3g}"]
        body.append([name, str(len(seeds)), *cells, *rest])
    return markdown(["row", "seeds", *FACTORS, "style", "variance", "rank", "λ"], body)


def failures(rows: list[Row]) -> dict[str, Any]:
    """Of our rule: how many rows, means over seeds, meet every requirement, and what the others miss."""
    ours = {name: mean_row(seeds) for name, seeds in by_name(rows).items() if seeds[0]["rule"] == "ours"}
    missed = {name: misses(row) for name, row in ours.items()}
    lines = [
        f"{name}: {', '.join(f'{factor} {number(ours[name][factor])}' for factor in found)}"
        for name, found in missed.items()
        if found
    ]
    return {"met": sum(not found for found in missed.values()), "of": len(missed), "lines": lines}


def probe_table(rows: list[Row]) -> str:
    """The scores beside the headline, means over seeds."""
    body = [
        [
            name,
            f"{_mean([row['length'] for row in seeds]):.3g}",
            *(" / ".join(number(_mean([row[p][factor] for row in seeds])) for p in PROBES) for factor in FACTORS),
        ]
        for name, seeds in by_name(rows).items()
    ]
    return markdown(["row", "length", *FACTORS], body)


def one_hot_table(rows: list[Row]) -> str:
    """r² of one-hot and circular targets, means over seeds."""
    body = [
        [name, *(number(_mean([row["one_hot"][factor] for row in seeds])) for factor in FACTORS)]
        for name, seeds in by_name(rows).items()
    ]
    return markdown(["row", *FACTORS], body)


def draw(path: Path, rows: list[Row]) -> None:
    """A heat map of rows × factors; released views above the others."""
    from matplotlib.figure import Figure

    names = by_name(in_order(rows))
    released = sum(seeds[0]["views"] == "release" for seeds in names.values())
    means = torch.tensor([[_mean([r[f] for r in seeds]) for f in (*FACTORS, "style_mean")] for seeds in names.values()])
    chance = torch.tensor([*(CHANCE[f] for f in FACTORS), sum(CHANCE[f] for f in STYLES) / len(STYLES)])
    figure = Figure(figsize=(8, 0.34 * len(names) + 1.2), layout="constrained")
    axis = figure.add_subplot()
    heat_map(axis, means, chance, list(names), [*FACTORS, "style, mean"])
    axis.axhline(released - 0.5, color="black", linewidth=0.8)
    axis.set_title("scores of linear probes, unnormalised embeddings with 1% noise; white is chance", fontsize=10)
    save_svg(figure, path)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def draw_samples(path: Path) -> None:
    """An image of each shape, and eight views of it at each strength."""
    from matplotlib.figure import Figure

    images = Sprites()[torch.tensor([20_000, 300_000, 600_000])]
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (MEAN, STD))
    figure = Figure(figsize=(9, 3.2 * len(STRENGTHS)), layout="constrained")
    for axis, strength in zip(figure.subplots(len(STRENGTHS), 1), STRENGTHS, strict=True):
        repeated = images.repeat_interleave(8, 0)
        views = sprite_views(strength, "release")(repeated, generator=torch.Generator().manual_seed(0)).a * std + mean
        axis.imshow(image_grid(torch.cat([images.float()[:, None] / 255, views.unflatten(0, (3, 8))], 1)).numpy())
        axis.set_title(strength, fontsize=10)
        axis.axis("off")
    figure.savefig(path, dpi=90)
