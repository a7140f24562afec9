"""The part of the sprites' README that is about content and five style spaces at once, and its heat maps."""

from pathlib import Path

import torch

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
        "Orientation is scored on hearts, by sine and cosine. DCI by forests, importances summed over each space. A",
        "space is probed as its method's loss sees it: SimCLR's at unit length, Barlow Twins' standardised, VICReg's",
        "as it is.",
        "",
        "![what each space tells, for every row](spaces.svg)",
        "",
        *tables(rows),
    ]


def tables(rows: list[Row]) -> list[str]:
    """A line for each method and ablation, and the whole table of those that are not ablated."""
    groups = grouped(rows)
    body = []
    for name, mine in groups.items():
        own, leak, shape = extremes(mine)
        dci = [
            f"{sum(row['dci'][part] for row in mine) / len(mine):.2f}"
            for part in ("disentanglement", "completeness", "informativeness")
        ]
        body.append([*name, str(len(mine)), f"{own:.2f}", f"{leak:.2f}", f"{shape:.2f}", *dci])
    lines = [*markdown(["method", "ablation", "views", "seeds", "own", "leak", "shape", "D", "C", "I"], body), ""]
    for name, mine in groups.items():
        if name[1] != "none":
            continue
        chance = mine[0]["chance"]
        table = [
            [space, *(f"{value:.2f}" for value in line)]
            for space, line in zip(mine[0]["spaces"], mean_scores(mine).tolist(), strict=True)
        ]
        table.append(["*chance*", *(f"{chance[factor]:.2f}" for factor in mine[0]["factors"])])
        lines += [f"{name[0]}, {name[2]}, mean over seeds:", "", *markdown(["space", *mine[0]["factors"]], table), ""]
    return lines


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
                axis.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=7, color=ink)
        axis.set_xticks(range(len(factors)), factors, rotation=35, fontsize=7)
        axis.set_yticks(range(len(mine[0]["spaces"])), mine[0]["spaces"], fontsize=7)
        axis.set_title(", ".join(name), fontsize=8)
    drawing.savefig(path, metadata={"Date": None})
