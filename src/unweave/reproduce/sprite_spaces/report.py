"""``figure.svg`` and ``README.md`` of the six-space experiment."""

from pathlib import Path

import torch

from unweave.report import heat_map, number, render, save_svg
from unweave.reproduce.results import ResultsTable, Row, markdown
from unweave.reproduce.sprite_spaces.methods import ABLATIONS

KEY = ("method", "ablation", "mode", "seed")
OWN = {"content": "shape", "color": "color", "scale": "scale", "orientation": "orientation", "x": "x", "y": "y"}
METHODS, MODES = ("simclr", "vicreg", "barlow_twins"), ("latents", "pixels", "zoom")
REQUIRED = {"content": 0.99, "color": 0.90, "scale": 0.90, "orientation": 0.70, "x": 0.90, "y": 0.90}
"""The required score of each space's own factor."""
LEAK, SHAPE_LEAK = 0.10, 0.15
"""The accepted scores above chance of another style, and of shape from a style space."""

RowGroup = tuple[str, str, str]


def write_report(out: Path, table: ResultsTable) -> None:
    """Both files, and the summary on the terminal."""
    groups = grouped(table.rows)
    text = render(
        Path(__file__).with_name("report.md"),
        verdicts=[verdict(name, rows) for name, rows in groups.items() if name[1] == "none"],
        summary=summary(groups),
        tables={title(name): score_table(rows) for name, rows in groups.items() if name[1] == "none"},
        ablations={name: meaning for name, meaning in ABLATIONS.items() if name != "none"},
        provenance=table.provenance_line(),
    )
    (out / "README.md").write_text(text)
    draw(out / "figure.svg", groups)
    print(summary(groups))


def grouped(rows: list[Row]) -> dict[RowGroup, list[Row]]:
    """The seeds of each method, ablation and mode; rows without an ablation first."""
    groups: dict[RowGroup, list[Row]] = {}
    for row in sorted(
        rows,
        key=lambda r: (r["ablation"] != "none", MODES.index(r["mode"]), METHODS.index(r["method"]), r["ablation"]),
    ):
        groups.setdefault((row["method"], row["ablation"], row["mode"]), []).append(row)
    return groups


def title(name: RowGroup) -> str:
    """A method, an ablation and a mode in words."""
    method, ablation, mode = name
    return ", ".join([method, *([] if ablation == "none" else [ablation]), *([] if mode == "latents" else [mode])])


def mean_scores(rows: list[Row]) -> torch.Tensor:
    """Spaces × factors, mean over seeds."""
    spaces, factors = rows[0]["spaces"], rows[0]["factors"]
    return torch.tensor([[[row["scores"][s][f] for f in factors] for s in spaces] for row in rows]).mean(0)


def summary(groups: dict[RowGroup, list[Row]]) -> str:
    """A line for each method, ablation and mode."""
    body = []
    for name, rows in groups.items():
        own, leak, shape = extremes(rows)
        across = sum(worst_across(row) for row in rows) / len(rows)
        dci = [
            f"{sum(row['dci'][part] for row in rows) / len(rows):.2f}"
            for part in ("disentanglement", "completeness", "informativeness")
        ]
        body.append([*name, str(len(rows)), *map(number, (own, leak, shape, across)), *dci])
    header = ["method", "ablation", "views", "seeds", "own", "leak", "shape", "across", "D", "C", "I"]
    return markdown(header, body)


def score_table(rows: list[Row]) -> str:
    """Spaces × factors, mean over seeds, with chance."""
    factors, chance = rows[0]["factors"], rows[0]["chance"]
    lines = zip(rows[0]["spaces"], mean_scores(rows).tolist(), strict=True)
    body = [[space, *map(number, line)] for space, line in lines]
    body.append(["*chance*", *(f"{chance[factor]:.2f}" for factor in factors)])
    return markdown(["space", *factors], body)


def worst_across(row: Row) -> float:
    """The worst accuracy of scale by a probe that was fitted on another shape."""
    return min(v for fitted, scores in row["scale_across_shapes"].items() for on, v in scores.items() if on != fitted)


def verdict(name: RowGroup, rows: list[Row]) -> str:
    """How many runs of a group meet the requirements, by both kinds of scores."""
    line = f"{title(name)}: {_met(rows, 'scores')}. Unnormalised embeddings: {_met(rows, 'raw')}."
    widths = [row["width"] for row in rows if row["mode"] == "pixels" and "width" in row]
    if widths:
        line += f" The square root of the area is predicted from the scale space with r² {number(_mean(widths))}."
    return line


def _met(rows: list[Row], kind: str) -> str:
    missed = [(row["seed"], shortcomings(row, kind)) for row in sorted(rows, key=lambda row: row["seed"])]
    details = "".join(f"; seed {seed}: {', '.join(words)}" for seed, words in missed if words)
    return f"met by {sum(not words for _, words in missed)} of {len(rows)} runs{details}"


def shortcomings(row: Row, kind: str = "scores") -> list[str]:
    """The scores of a run that do not meet the requirements."""
    found = []
    for space, scores in row[kind].items():
        for factor, value in scores.items():
            most = row["chance"][factor] + (SHAPE_LEAK if factor == "shape" else LEAK)
            if value < REQUIRED[space] if OWN[space] == factor else value > most:
                found.append(f"{factor} {number(value)} from {space}")
    return found


def extremes(rows: list[Row]) -> tuple[float, float, float]:
    """The worst own score, and the largest leaks of style and of shape above chance, of the mean over seeds."""
    spaces, factors, chance = rows[0]["spaces"], rows[0]["factors"], rows[0]["chance"]
    scores = mean_scores(rows)
    own: list[float] = []
    leak: list[float] = []
    shape: list[float] = []
    for i, space in enumerate(spaces):
        for j, factor in enumerate(factors):
            value = float(scores[i, j])
            if OWN[space] == factor:
                own.append(value)
            else:
                (shape if factor == "shape" else leak).append(value - chance[factor])
    return min(own), max(leak), max(shape)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def draw(path: Path, groups: dict[RowGroup, list[Row]]) -> None:
    """A heat map of spaces × factors for every method and ablation."""
    from matplotlib.figure import Figure

    columns = min(len(groups), 4)
    lines = -(-len(groups) // columns)
    figure = Figure(figsize=(3.4 * columns, 3.0 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for axis in axes[len(groups) :]:
        axis.axis("off")
    for axis, (name, rows) in zip(axes, groups.items(), strict=False):
        chance = torch.tensor([rows[0]["chance"][factor] for factor in rows[0]["factors"]])
        heat_map(axis, mean_scores(rows), chance, rows[0]["spaces"], rows[0]["factors"], fontsize=7)
        axis.tick_params(axis="x", rotation=35)
        axis.set_title(title(name), fontsize=8)
    save_svg(figure, path)
