"""``figure.svg``, sample images and ``README.md`` of the sprites experiment, the paper's numbers beside ours."""

from collections.abc import Sequence
from pathlib import Path

import torch

from unweave.data.sprites import Sprites
from unweave.experiments import sprite_spaces_report
from unweave.experiments.report import number, save_svg
from unweave.experiments.sprite_views import MEAN, STD, STRENGTHS, color_groups, cut_share, make_views
from unweave.experiments.sprites_scores import FACTORS, STYLES
from unweave.experiments.table import Row, Table, markdown

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
CHANCE = {"shape": 1 / 3, "color": 0.1, "scale": 1 / 6, "orientation": 0.0, "x": 0.0, "y": 0.0}


ORDER = {
    "method": ("simclr", "vicreg", "barlow_twins"),
    "weights": ("standard", "adapted"),
    "views": ("whole", "release"),
    "rule": ("raised", "fixed", "geometric", "squared", "paper"),
    "strength": ("weak", "medium", "strong"),
}
MAIN = (("raised", "whole"), ("geometric", "whole"))
"""Rule and views of the rows that stand beside the paper's."""

TABLE, SPACES = "table.json", "spaces.json"
WAYS = ("raw", "standardised", "noisy")
KEY = ("method", "weights", "rule", "strength", "views", "seed")
SPACES_KEY = ("method", "ablation", "mode", "seed")


def write_report(out: Path) -> None:
    """All of it, from the rows that either part has left in ``out``."""
    table, spaces = Table(out / TABLE, KEY), Table(out / SPACES, SPACES_KEY)
    parts = ["# ColorDSprites", ""]
    if table.rows:
        parts += paper_section(table)
        draw(out / "figure.svg", table.rows)
        draw_samples(out / "samples.png")
    if spaces.rows:
        parts += [*sprite_spaces_report.section(spaces.rows), *spaces.provenance_lines(), ""]
        sprite_spaces_report.draw(out / "spaces.svg", spaces.rows)
    (out / "README.md").write_text("\n".join(parts))
    shown = score_table(in_order(table.rows)) if table.rows else []
    print("\n".join([*shown, "", *(sprite_spaces_report.tables(spaces.rows) if spaces.rows else [])]))


def color_lines(rows: list[Row]) -> list[str]:
    """What of color even a perfect content space may tell, where jitter cannot join all of the palette."""
    found = []
    for strength in dict.fromkeys(row["strength"] for row in rows):
        groups = color_groups(strength)
        if len(groups) > 1:
            found += [
                f"{strength.capitalize()} jitter leaves the palette in {len(groups)} groups of colors that never meet: "
                f"a space that is fully invariant may still tell color to {len(groups) / 10:.2f}.",
                "",
            ]
    return found


def cut_lines(rows: list[Row]) -> list[str]:
    """Why most rows see other views than the release's."""
    strengths = list(dict.fromkeys(row["strength"] for row in rows))
    shares = ", ".join(f"{cut_share(strength):.0%} of {strength} ones" for strength in strengths)
    return [
        f"As the authors' release draws views, the edge cuts the sprite, or it is gone, in {shares}. What shape it was",
        "cannot always be told then: such a pair does not share its content, and content can be invariant to it only",
        "by giving some of shape up. Here a view that would cut its sprite is drawn again, up to eight times. The rows",
        "*views as released* do without.",
        "",
    ]


def name_of(row: Row) -> str:
    """A row in words."""
    rule = "" if row["rule"] == "raised" else f" ({row['rule']})"
    cut = ", views as released" if row["views"] == "release" else ""
    return f"{row['method']} {row['weights']}{rule} {row['strength']}{cut}"


RULE_LINES = (
    "*Standard* is SimCLR's λ of 1, VICReg's 25 and Barlow Twins' 1. VICReg and Barlow Twins begin below it and are",
    "raised to it by 60% of the steps; *(fixed)* rows have it from the first step. *Paper* is λ + η·relu(c − ε), from",
    "the standard λ on. *Geometric* is our rule: λ begins where the raised ones do, grows by the same factor each step",
    "while c > ε, and gives way where the variance or the effective rank of the space falls below a floor; with it",
    "Barlow Twins takes 1 − C at the first power, and VICReg in weak views the distance of two views at the power of",
    "1.5, since the pull of a square fades near invariance. *Squared* is the same rule without that; VICReg's λ",
    "then grows earlier and further.",
    "",
)


def in_order(rows: list[Row]) -> list[Row]:
    """As the paper's table has them, then what is not in it; the seeds of a row together."""
    place = {column: {name: i for i, name in enumerate(names)} for column, names in ORDER.items()}
    return sorted(rows, key=lambda row: (*(place[column][row[column]] for column in ORDER), row["seed"]))


def is_main(row: Row) -> bool:
    """Whether it is one of the eighteen."""
    return (row["rule"], row["views"]) in MAIN


def paper_section(table: Table) -> list[str]:
    """Tables, and how they were made."""
    rows = in_order(table.rows)
    main, others = [row for row in rows if is_main(row)], [row for row in rows if not is_main(row)]
    seeds = sorted({row["seed"] for row in rows})
    return [
        "## Content alone, whatever the strength of augmentation",
        "",
        "Section 5.2 of Eastwood et al. Shape, color and scale are accuracies of a linear classifier, orientation,",
        "x and y r² of a linear regression, from the embedding after the projector, scaled to unit length, with",
        "scikit-learn's default penalties (the paper does not say how its numbers were made; this is our reading of",
        "them). The paper's number follows ours after a slash. A style that is fully removed stands at chance: color",
        f".10, scale .17, the others 0. Means over seeds {', '.join(map(str, seeds))}; `{TABLE}` has each.",
        "",
        "![scores of every row](figure.svg)",
        "",
        *score_table(main),
        "",
        *verdict(main),
        *RULE_LINES,
        *cut_lines(rows),
        *color_lines(rows),
        *others_section(others),
        "### The same, probed harder",
        "",
        "*Raw*: at the length the embedding happens to have, which neither SimCLR nor Barlow Twins sees; the same",
        "penalties. *Standardised*: every dimension to variance 1, so that what a nearly dead space still whispers is",
        "heard. *Noisy*: with noise of 1% of the embedding's size, so that only what is said aloud is. Both choose",
        "their penalty on held-out rows.",
        "",
        *way_table(rows),
        "",
        "### r² throughout",
        "",
        "Of one-hot targets for shape, color and scale; orientation as sine and cosine of the angle times the order of",
        "the shape's symmetry (a square repeats every 90°, an ellipse every 180°).",
        "",
        *plain_table(rows, "one_hot"),
        "",
        "![an image of each shape, and views of it at the three strengths](samples.png)",
        "",
        *table.provenance_lines(),
        "",
    ]


def named(rows: list[Row]) -> dict[str, list[Row]]:
    """The seeds of each row, by its name."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(name_of(row), []).append(row)
    return found


def score_table(rows: list[Row]) -> list[str]:
    """Our numbers, in the mean over seeds, and the paper's."""
    body = []
    for name, seeds in named(rows).items():
        row = seeds[0]
        paper = PAPER.get((row["method"], row["weights"], row["strength"]))
        cells = [
            number(_mean([r[factor] for r in seeds])) + (f" / {value:.2f}" if paper else "")
            for factor, value in zip(FACTORS, paper or [0.0] * len(FACTORS), strict=True)
        ]
        alive = {"variance": ".2g", "effective_rank": ".1f", "weight": ".3g"}
        rest = [format(_mean([r[column] for r in seeds]), spec) for column, spec in alive.items()]
        body.append([name, str(len(seeds)), *cells, _style(seeds), *rest])
    return markdown(["row", "seeds", *FACTORS, "style", "variance", "rank", "λ"], body)


def verdict(rows: list[Row]) -> list[str]:
    """What of shape and style was asked and is there, run by run."""
    standard, adapted = ([row for row in rows if row["weights"] == kind] for kind in ("standard", "adapted"))
    lines = [f"Shape is at .99 or better in {_has_shape(rows)}."]
    if standard:
        lines += [f"With standard λ the mean over the five styles, of which chance is .05, is: {_left(standard)}."]
    if adapted:
        lines += [
            "With adapted λ every style is within .05 of what a perfect content space tells (chance, and of color "
            f"what jitter cannot join), at unit length in {_clean(adapted, adapted)}.",
            f"As the embeddings come, it is so in {_clean(adapted, [row['raw'] for row in adapted])}.",
            f"The least variance is {min(row['variance'] for row in adapted):.2g}, the least effective rank "
            f"{min(row['effective_rank'] for row in adapted):.2f} (three shapes span two directions).",
        ]
    return [line for text in lines for line in (text, "")]


def others_section(others: list[Row]) -> list[str]:
    """The rows that are not among the eighteen."""
    if not others:
        return []
    lines = ["### Other rules, other views", "", *score_table(others), ""]
    kinds = (
        ("paper's rule", "paper", "whole"),
        ("our rule on the square", "squared", "whole"),
        ("views as released", "geometric", "release"),
    )
    for words, rule, views in kinds:
        if rows := [row for row in others if (row["rule"], row["views"]) == (rule, views)]:
            told = f"shape is at .99 or better in {_has_shape(rows)}; no style is told in {_clean(rows, rows)}."
            lines += [f"{words.capitalize()}: {told}", ""]
    return lines


def _has_shape(rows: list[Row]) -> str:
    """How many of the rows tell shape, and how far the others get."""
    lost = [f"; {name_of(row)}, seed {row['seed']}: {row['shape']:.3f}" for row in rows if row["shape"] < 0.99]
    return f"{len(rows) - len(lost)} of {len(rows)} runs{''.join(lost)}"


def _left(standard: list[Row]) -> str:
    """The mean style in each row, and the paper's."""
    return ", ".join(f"{name.replace(' standard', '')} {_style(seeds)}" for name, seeds in named(standard).items())


def _style(seeds: list[Row]) -> str:
    """The mean over styles and seeds, the paper's after a slash."""
    row = seeds[0]
    paper = PAPER.get((row["method"], row["weights"], row["strength"]))
    return number(_mean([r["style_mean"] for r in seeds])) + (f" / {_mean(paper[1:]):.2f}" if paper else "")


def _clean(rows: list[Row], scores: list[dict[str, float]]) -> str:
    """How many of the rows tell no style, by these scores of theirs, and what the others tell."""
    told = []
    for row, score in zip(rows, scores, strict=True):
        floor = {**CHANCE, "color": len(color_groups(row["strength"])) / 10}
        over = [f"{style} {score[style]:.3f}" for style in STYLES if score[style] > floor[style] + 0.05]
        told += [f"; {name_of(row)}, seed {row['seed']}: {', '.join(over)}"] if over else []
    return f"{len(rows) - len(told)} of {len(rows)} runs{''.join(told)}"


def way_table(rows: list[Row]) -> list[str]:
    """Raw / standardised / noisy, in the mean over seeds."""
    body = [
        [
            name,
            f"{_mean([row['length'] for row in seeds]):.3g}",
            *(" / ".join(number(_mean([row[way][factor] for row in seeds])) for way in WAYS) for factor in FACTORS),
        ]
        for name, seeds in named(rows).items()
    ]
    return markdown(["row", "length", *(f"{factor}: {' / '.join(WAYS)}" for factor in FACTORS)], body)


def plain_table(rows: list[Row], way: str) -> list[str]:
    """One number a factor, the mean over seeds."""
    body = [
        [name, *(number(_mean([row[way][factor] for row in seeds])) for factor in FACTORS)]
        for name, seeds in named(rows).items()
    ]
    return markdown(["row", *FACTORS], body)


def draw(path: Path, rows: list[Row]) -> None:
    """A heat map: rows × factors, 0 at chance; the eighteen rows above the others."""
    from matplotlib.figure import Figure

    names = named(sorted(in_order(rows), key=lambda row: not is_main(row)))
    main = sum(is_main(seeds[0]) for seeds in names.values())
    means = torch.tensor([[_mean([r[f] for r in seeds]) for f in (*FACTORS, "style_mean")] for seeds in names.values()])
    chance = torch.tensor([*(CHANCE[f] for f in FACTORS), sum(CHANCE[f] for f in STYLES) / len(STYLES)])
    drawing = Figure(figsize=(8, 0.34 * len(names) + 1.2), layout="constrained")
    axis = drawing.add_subplot()
    shade = ((means - chance) / (1 - chance)).clamp(0, 1).numpy()
    axis.imshow(shade, cmap="Oranges", vmin=0, vmax=1.2, aspect="auto")
    for i, line in enumerate(means.tolist()):
        for j, value in enumerate(line):
            ink = "white" if shade[i, j] > 0.7 else "black"
            axis.text(j, i, number(value), ha="center", va="center", fontsize=8, color=ink)
    axis.set_xticks(range(len(FACTORS) + 1), [*FACTORS, "style, mean"])
    axis.set_yticks(range(len(names)), list(names), fontsize=8)
    axis.axhline(main - 0.5, color="black", linewidth=0.8)
    axis.set_title("what the embedding tells; white is chance", fontsize=10)
    save_svg(drawing, path)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def draw_samples(path: Path) -> None:
    """An image of each shape, and eight views of it at each strength."""
    from matplotlib.figure import Figure

    images = Sprites()[torch.tensor([20_000, 300_000, 600_000])]
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (MEAN, STD))
    drawing = Figure(figsize=(9, 3.2 * len(STRENGTHS)), layout="constrained")
    for axis, strength in zip(drawing.subplots(len(STRENGTHS), 1), STRENGTHS, strict=True):
        repeated = images.repeat_interleave(8, 0)
        views = make_views(strength, "whole")(repeated, generator=torch.Generator().manual_seed(0)).a * std + mean
        shown = torch.cat([images.float()[:, None] / 255, views.unflatten(0, (3, 8))], 1)
        padded = torch.nn.functional.pad(shown, (1, 1, 1, 1), value=0.4).clamp(0, 1)
        rows, columns, c, h, w = padded.shape
        axis.imshow(padded.permute(0, 3, 1, 4, 2).reshape(rows * h, columns * w, c).numpy())
        axis.set_title(strength, fontsize=10)
        axis.axis("off")
    drawing.savefig(path, dpi=90)
