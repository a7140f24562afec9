"""The part of the sprites' README that is about content and five style spaces at once, and its heat maps."""

from pathlib import Path

import torch

from unweave.experiments.report import number, save_svg
from unweave.experiments.table import Row, markdown

OWN = {"content": "shape", "color": "color", "scale": "scale", "orientation": "orientation", "x": "x", "y": "y"}


METHODS, MODES = ("simclr", "vicreg", "barlow_twins"), ("latents", "pixels")


def grouped(rows: list[Row]) -> dict[tuple[str, str, str], list[Row]]:
    """The seeds of each method, ablation and mode: what is not ablated first, whichever was made first."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in sorted(
        rows,
        key=lambda r: (r["ablation"] != "none", MODES.index(r["mode"]), METHODS.index(r["method"]), r["ablation"]),
    ):
        groups.setdefault((row["method"], row["ablation"], row["mode"]), []).append(row)
    return groups


def mean_scores(rows: list[Row]) -> torch.Tensor:
    """Spaces × factors, mean over seeds."""
    spaces, factors = rows[0]["spaces"], rows[0]["factors"]
    return torch.tensor([[[row["scores"][s][f] for f in factors] for s in spaces] for row in rows]).mean(0)


def section(rows: list[Row]) -> list[str]:
    """What was asked, and the tables."""
    if not rows:
        return []
    return [
        "## Content and five style spaces at once",
        "",
        "Not in the paper. *Own*: the worst of the six spaces at its own factor. *Leak*: the most any space tells,",
        "above chance, of a style that is not its own. *Shape*: the most a style space tells of shape, above chance.",
        "*Across*: scale in its own space, by probes fitted on one shape and scored on another, the worst of six:",
        "whether a scale means the same for every shape. Orientation is scored on hearts, by sine and cosine. DCI by",
        "forests, importances summed over each space. A space is probed as its method's loss sees it: SimCLR's at unit",
        "length, Barlow Twins' standardised, VICReg's as it is.",
        "",
        *verdict(rows),
        "",
        "![what each space tells, for every row](spaces.svg)",
        "",
        *tables(rows),
        *READING,
    ]


READING = (
    "*Latents*: a factor is drawn anew and the sprite rendered again. *Pixels*: the sprite is found in its image",
    "and turned, scaled, moved and painted about its own centre. Each covers the factor's whole range and leaves",
    "the others alone. Where images cannot follow: a square looks the same after a quarter of a turn and an ellipse",
    "after half of one, so that an angle means something else for each shape; no space can hold it for all of them",
    "alike, and a forest asked for the angle has to look at the content space too. Nor do pixels show a scale, only",
    "an area, which at one scale is another for each shape: it is the area that *pixels* sets.",
    "",
    "Ablations, each less one part. *Per-space entropy*: one for each space in place of the joint one. *No content",
    "entropy*: the joint one alone. *No independence*: style spaces are not asked to tell nothing of content. *No",
    "ends*: the scale space is all of the sphere, where scale may close to a ring on which each shape begins at a",
    "place of its own. *Fixed weights*: λ stays 1. *Plain*: the paper's objective, that is neither independence nor",
    "ends, λ from 1, content invariant on its own pairs alone, SimCLR's one temperature; the widths, the schedule",
    "and the learning rate are ours.",
    "",
)


def words_of(name: tuple[str, str, str]) -> str:
    """A method, an ablation and a mode as a title."""
    method, ablation, mode = name
    return ", ".join([method, *([] if ablation == "none" else [ablation]), *([] if mode == "latents" else [mode])])


def tables(rows: list[Row]) -> list[str]:
    """A line for each method and ablation, and the whole table of those that are not ablated."""
    groups = grouped(rows)
    body = []
    for name, mine in groups.items():
        own, leak, shape = extremes(mine)
        across = sum(worst_across(row) for row in mine) / len(mine)
        dci = [
            f"{sum(row['dci'][part] for row in mine) / len(mine):.2f}"
            for part in ("disentanglement", "completeness", "informativeness")
        ]
        body.append([*name, str(len(mine)), *map(number, (own, leak, shape, across)), *dci])
    header = ["method", "ablation", "views", "seeds", "own", "leak", "shape", "across", "D", "C", "I"]
    lines = [*markdown(header, body), ""]
    for name, mine in groups.items():
        if name[1] != "none":
            continue
        chance = mine[0]["chance"]
        table = [
            [space, *map(number, line)]
            for space, line in zip(mine[0]["spaces"], mean_scores(mine).tolist(), strict=True)
        ]
        table.append(["*chance*", *(f"{chance[factor]:.2f}" for factor in mine[0]["factors"])])
        lines += [f"{words_of(name)}, mean over seeds:", "", *markdown(["space", *mine[0]["factors"]], table), ""]
    return lines


def worst_across(row: Row) -> float:
    """Of scale's probes, fitted on one shape and scored on another."""
    return min(v for fitted, scores in row["scale_across_shapes"].items() for on, v in scores.items() if on != fitted)


LEAST = {"content": 0.99, "color": 0.90, "scale": 0.90, "orientation": 0.70, "x": 0.90, "y": 0.90}
"""What each space should tell of its own factor."""
LEAK, SHAPE_LEAK = 0.10, 0.15
"""And at most, above chance, of another style; a style space of shape."""


def verdict(rows: list[Row]) -> list[str]:
    """What is asked of every run that is not ablated, and where it falls short."""
    lines = [
        "Asked of every run: its own factor at .99 (content), .90 or .70 (orientation) in each space, another style at "
        "most .10 above chance, shape in a style space at most .15.",
    ]
    for name, mine in grouped(rows).items():
        if name[1] == "none":
            seen, come = _met(mine, "scores"), _met(mine, "raw")
            lines += ["", f"- {words_of(name)}: {seen}. As the embeddings come: {come}.{_width(mine)}"]
    return lines


def _width(rows: list[Row]) -> str:
    """Of pixels, which set the area and not the scale."""
    told = [row["width"] for row in rows if row["mode"] == "pixels" and "width" in row]
    return f" The scale space tells the square root of the area to {number(sum(told) / len(told))}." if told else ""


def _met(rows: list[Row], way: str) -> str:
    short = [(row["seed"], falls_short(row, way)) for row in sorted(rows, key=lambda row: row["seed"])]
    told = "".join(f"; seed {seed}: {', '.join(words)}" for seed, words in short if words)
    return f"met by {sum(not words for _, words in short)} of {len(rows)} runs{told}"


def falls_short(row: Row, way: str = "scores") -> list[str]:
    """The scores of one run that are not as asked, in words; ``way`` is "raw" for the embeddings as they come."""
    found = []
    for space, scores in row[way].items():
        for factor, value in scores.items():
            most = row["chance"][factor] + (SHAPE_LEAK if factor == "shape" else LEAK)
            if value < LEAST[space] if OWN[space] == factor else value > most:
                found.append(f"{factor} {number(value)} in {space}")
    return found


def extremes(rows: list[Row]) -> tuple[float, float, float]:
    """The worst diagonal, the largest leak of style and of shape above chance, of the mean over seeds."""
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


def draw(path: Path, rows: list[Row]) -> None:
    """A heat map of spaces × factors for every method and ablation, 0 at chance."""
    from matplotlib.figure import Figure

    groups = grouped(rows)
    columns = min(len(groups), 4)
    lines = -(-len(groups) // columns)
    drawing = Figure(figsize=(3.4 * columns, 3.0 * lines), layout="constrained")
    axes = drawing.subplots(lines, columns, squeeze=False).ravel()
    for axis in axes[len(groups) :]:
        axis.axis("off")
    for axis, (name, mine) in zip(axes, groups.items(), strict=False):
        scores, factors = mean_scores(mine), mine[0]["factors"]
        chance = torch.tensor([mine[0]["chance"][factor] for factor in factors])
        axis.imshow(((scores - chance) / (1 - chance)).clamp(0, 1).numpy(), cmap="Blues", vmin=0, vmax=1.1)
        for i, line in enumerate(scores.tolist()):
            for j, value in enumerate(line):
                ink = "white" if value > 0.7 else "black"
                axis.text(j, i, number(value), ha="center", va="center", fontsize=7, color=ink)
        axis.set_xticks(range(len(factors)), factors, rotation=35, ha="right", rotation_mode="anchor", fontsize=7)
        axis.set_yticks(range(len(mine[0]["spaces"])), mine[0]["spaces"], fontsize=7)
        axis.set_title(words_of(name), fontsize=8)
    save_svg(drawing, path)
