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
from unweave.reproduce.sprites.views import STRENGTHS, color_groups, cut_share, sprite_views

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
ORDER = {
    "method": ("simclr", "vicreg", "barlow_twins"),
    "weights": ("standard", "adapted"),
    "views": ("whole", "release"),
    "rule": ("raised", "fixed", "geometric", "squared", "paper"),
    "strength": ("weak", "medium", "strong"),
}
MAIN = (("raised", "whole"), ("geometric", "whole"))
"""Rule and views of the rows of the main table."""
KEY = ("method", "weights", "rule", "strength", "views", "seed")
PROBES = ("raw", "standardised", "noisy")


def write_report(out: Path, table: ResultsTable) -> None:
    """All files, and the main table on the terminal."""
    rows = in_order(table.rows)
    main, others = [row for row in rows if is_main(row)], [row for row in rows if not is_main(row)]
    (out / "README.md").write_text(
        render(Path(__file__).with_name("report.md"), provenance=table.provenance_line(), **contents(main, others))
    )
    draw(out / "figure.svg", rows)
    draw_samples(out / "samples.png")
    print(score_table(rows))


def contents(main: list[Row], others: list[Row]) -> dict[str, Any]:
    """The values of the template."""
    rows = [*main, *others]
    standard, adapted = ([row for row in main if row["weights"] == kind] for kind in ("standard", "adapted"))
    strengths = list(dict.fromkeys(row["strength"] for row in rows))
    return {
        "seeds": sorted({row["seed"] for row in rows}),
        "clean": {probe: share_clean(adapted, probe) for probe in ("normalised", *PROBES)},
        "main_table": score_table(main),
        "shape": with_shape(main),
        "standard": ", ".join(
            f"{name.replace(' standard', '')} {style_mean(seeds)}" for name, seeds in by_name(standard).items()
        ),
        "adapted": {
            "normalised": styles_left(adapted, "normalised"),
            "raw": styles_left(adapted, "raw"),
            "variance": f"{min(row['variance'] for row in adapted):.2g}",
            "rank": f"{min(row['effective_rank'] for row in adapted):.2f}",
        }
        if adapted
        else None,
        "cut": ", ".join(f"{cut_share(strength):.0%} of {strength} views" for strength in strengths),
        "color": color_lines(strengths),
        "other_table": score_table(others) if others else "",
        "other_lines": other_lines(others),
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


def name_of(row: Row) -> str:
    """A row in words."""
    rule = "" if row["rule"] == "raised" else f" ({row['rule']})"
    released = ", views as released" if row["views"] == "release" else ""
    return f"{row['method']} {row['weights']}{rule} {row['strength']}{released}"


def in_order(rows: list[Row]) -> list[Row]:
    """In the order of the paper's table, then the others; the seeds of a row together."""
    place = {column: {name: i for i, name in enumerate(names)} for column, names in ORDER.items()}
    return sorted(rows, key=lambda row: (*(place[column][row[column]] for column in ORDER), row["seed"]))


def is_main(row: Row) -> bool:
    """Whether it belongs to the main table."""
    return (row["rule"], row["views"]) in MAIN


def by_name(rows: list[Row]) -> dict[str, list[Row]]:
    """The seeds of each row."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(name_of(row), []).append(row)
    return found


def score_table(rows: list[Row]) -> str:
    """Our means over seeds, and the paper's numbers."""
    body = []
    for name, seeds in by_name(rows).items():
        row = seeds[0]
        paper = PAPER.get((row["method"], row["weights"], row["strength"]))
        cells = [
            number(_mean([r[factor] for r in seeds])) + (f" / {value:.2f}" if paper else "")
            for factor, value in zip(FACTORS, paper or [0.0] * len(FACTORS), strict=True)
        ]
        formats = {"variance": ".2g", "effective_rank": ".1f", "weight": ".3g"}
        rest = [format(_mean([r[column] for r in seeds]), spec) for column, spec in formats.items()]
        body.append([name, str(len(seeds)), *cells, style_mean(seeds), *rest])
    return markdown(["row", "seeds", *FACTORS, "style", "variance", "rank", "λ"], body)


def style_mean(seeds: list[Row]) -> str:
    """The mean over styles and seeds, the paper's after a slash."""
    row = seeds[0]
    paper = PAPER.get((row["method"], row["weights"], row["strength"]))
    return number(_mean([r["style_mean"] for r in seeds])) + (f" / {_mean(paper[1:]):.2f}" if paper else "")


def with_shape(rows: list[Row]) -> str:
    """How many of the rows predict shape, and the accuracy of the others."""
    lost = [f"; {name_of(row)}, seed {row['seed']}: {row['shape']:.3f}" for row in rows if row["shape"] < 0.99]
    return f"{len(rows) - len(lost)} of {len(rows)} runs{''.join(lost)}"


def _left(row: Row, probe: str) -> list[str]:
    """The styles of a row that are more than 0.05 above their floor, by a probe."""
    scores = row if probe == "normalised" else row[probe]
    floor = {**CHANCE, "color": len(color_groups(row["strength"])) / 10}
    return [f"{style} {scores[style]:.3f}" for style in STYLES if scores[style] > floor[style] + 0.05]


def share_clean(rows: list[Row], probe: str) -> str:
    """How many of the rows have every style at its floor, by a probe."""
    return f"{sum(not _left(row, probe) for row in rows)} of {len(rows)}"


def styles_left(rows: list[Row], probe: str) -> str:
    """The same, with the styles of the other rows."""
    found = [f"; {name_of(row)}, seed {row['seed']}: {', '.join(over)}" for row in rows if (over := _left(row, probe))]
    return f"none in {share_clean(rows, probe)} runs{''.join(found)}"


def other_lines(others: list[Row]) -> list[str]:
    """Summaries of the rows that are not in the main table."""
    kinds = (
        ("The paper's rule", "paper", "whole"),
        ("Our rule with the squared invariance", "squared", "whole"),
        ("Views as released", "geometric", "release"),
    )
    return [
        f"{words}: shape has accuracy 0.99 or better in {with_shape(rows)}. Styles above their floor: "
        f"{styles_left(rows, 'normalised')}."
        for words, rule, views in kinds
        if (rows := [row for row in others if (row["rule"], row["views"]) == (rule, views)])
    ]


def probe_table(rows: list[Row]) -> str:
    """Raw / standardised / noisy, means over seeds."""
    body = [
        [
            name,
            f"{_mean([row['length'] for row in seeds]):.3g}",
            *(" / ".join(number(_mean([row[p][factor] for row in seeds])) for p in PROBES) for factor in FACTORS),
        ]
        for name, seeds in by_name(rows).items()
    ]
    return markdown(["row", "length", *(f"{factor}: {' / '.join(PROBES)}" for factor in FACTORS)], body)


def one_hot_table(rows: list[Row]) -> str:
    """r² of one-hot and circular targets, means over seeds."""
    body = [
        [name, *(number(_mean([row["one_hot"][factor] for row in seeds])) for factor in FACTORS)]
        for name, seeds in by_name(rows).items()
    ]
    return markdown(["row", *FACTORS], body)


def draw(path: Path, rows: list[Row]) -> None:
    """A heat map of rows × factors; the rows of the main table above the others."""
    from matplotlib.figure import Figure

    names = by_name(sorted(in_order(rows), key=lambda row: not is_main(row)))
    main = sum(is_main(seeds[0]) for seeds in names.values())
    means = torch.tensor([[_mean([r[f] for r in seeds]) for f in (*FACTORS, "style_mean")] for seeds in names.values()])
    chance = torch.tensor([*(CHANCE[f] for f in FACTORS), sum(CHANCE[f] for f in STYLES) / len(STYLES)])
    figure = Figure(figsize=(8, 0.34 * len(names) + 1.2), layout="constrained")
    axis = figure.add_subplot()
    heat_map(axis, means, chance, list(names), [*FACTORS, "style, mean"])
    axis.axhline(main - 0.5, color="black", linewidth=0.8)
    axis.set_title("scores of linear probes, L2-normalised embeddings; white is chance", fontsize=10)
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
        views = sprite_views(strength, "whole")(repeated, generator=torch.Generator().manual_seed(0)).a * std + mean
        axis.imshow(image_grid(torch.cat([images.float()[:, None] / 255, views.unflatten(0, (3, 8))], 1)).numpy())
        axis.set_title(strength, fontsize=10)
        axis.axis("off")
    figure.savefig(path, dpi=90)
