"""The tables of the README, in Markdown."""

from collections.abc import Iterable, Sequence

from unweave.report import number
from unweave.reproduce.results import Row, markdown
from unweave.reproduce.transfer import paper
from unweave.reproduce.transfer.checks import checks, points
from unweave.reproduce.transfer.names import BASE, GROUPS, MEANING, PAPER_SCALE_ONLY, REFERENCES, TASKS
from unweave.reproduce.transfer.seeds import (
    NOT_SPATIAL,
    bases_of,
    by_seed,
    class_share,
    difference,
    mean,
    mean_matrix,
    models_of,
    style_spaces,
    tasks_of,
)

SHOWN = ("z", "h")
"""The features of the main tables, in order."""
OWN_TASKS = ("cub-box", "cub-keypoints", "dtd-10", "dtd", "flowers")
"""The tasks of the table of single spaces."""


def is_paper_scale(rows: Iterable[Row]) -> bool:
    """Whether the rows are of ImageNet and all 13 tasks, by the tasks that only these have."""
    return any(PAPER_SCALE_ONLY & set(row["tasks"]) for row in rows)


def pretraining_data(rows: Iterable[Row]) -> str:
    """The name of the images that the models are trained on."""
    return "ImageNet" if is_paper_scale(rows) else "Tiny-ImageNet"


def main_rows(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Model and features of each line of the main tables: z, then h."""
    return [(model, features) for features in SHOWN for model in models_of(rows) if by_seed(rows, model, features)]


def cell(rows: Sequence[Row], model: str, features: str, column: str) -> str:
    """The mean over seeds in points; "—" where there is none."""
    values = by_seed(rows, model, features, column)
    return number(100 * mean(values.values()), 1) if values else "—"


def best(rows: Sequence[Row], features: str, column: str) -> str:
    """The largest cell of a column, references left out; empty where there are no others."""
    cells = [cell(rows, model, features, column) for model in models_of(rows) if model not in REFERENCES]
    return max((text for text in cells if text != "—"), key=float, default="")


def markdown_cell(rows: Sequence[Row], model: str, features: str, column: str) -> str:
    """A cell, bold where it is the best of its column."""
    text = cell(rows, model, features, column)
    return f"**{text}**" if is_best(text, rows, model, features, column) else text


def is_best(text: str, rows: Sequence[Row], model: str, features: str, column: str) -> bool:
    """Whether a cell is the best of its column."""
    return model not in REFERENCES and text != "—" and text == best(rows, features, column)


def model_table(rows: Sequence[Row]) -> str:
    """What each model is, and its epochs."""
    body = []
    for model in models_of(rows):
        epochs = sorted({row["epochs"] for row in rows if row["model"] == model})
        body.append([model, MEANING.get(model, ""), ", ".join(f"{value:g}" for value in epochs)])
    return markdown(["model", "what it is", "epochs"], body)


def grouped_table(rows: Sequence[Row]) -> str:
    """Means over seeds of the groups, and the paired difference of the average to the base."""
    body = [
        [
            model,
            features,
            str(len(by_seed(rows, model, features))),
            *(markdown_cell(rows, model, features, column) for column in ("pretraining_top1", *GROUPS)),
            differences(rows, model, features),
        ]
        for model, features in main_rows(rows)
    ]
    top1 = f"{pretraining_data(rows)} top-1"
    return markdown(["model", "features", "seeds", top1, *GROUPS.values(), "average − base"], body)


def differences(rows: Sequence[Row], model: str, features: str) -> str:
    """The differences of the average to the bases of a model, in points."""
    found = ((base, difference(rows, model, base, features)) for base in bases_of(model))
    return "; ".join(f"{points(value)} ({base})" for base, value in found if value) or "—"


def check_table(rows: Sequence[Row]) -> str:
    """Demanded, measured, met."""
    body = [[check.claim, check.bound, check.value, "yes" if check.met else "**no**"] for check in checks(rows)]
    return markdown(["demand", "demanded", "measured", "met"], body) if body else ""


def harder_table(rows: Sequence[Row]) -> str:
    """Comparisons that are harder than those demanded: without the spatial tasks, and with the h of the bases."""
    ours, fine_tuned = "SimCLR + Ours-Scratch", "SimCLR + Ours-FT"
    asked = [
        *((ours, "z", base, "z", NOT_SPATIAL) for base in ("SimCLR", "SimCLR wide", "SimCLR three heads")),
        (fine_tuned, "z", "SimCLR continued", "z", NOT_SPATIAL),
        (ours, "h", "SimCLR wide", "h", "average"),
        *((ours, "z", base, "h", "average") for base in ("SimCLR", "SimCLR wide")),
        (fine_tuned, "z", "SimCLR continued", "h", "average"),
    ]
    body = []
    for model, features, base, of_base, column in asked:
        found = difference(rows, model, base, features, column, base_features=of_base)
        if found:
            body.append([f"{features} of {model}", f"{of_base} of {base}", column, points(found, 2)])
    return markdown(["model", "compared with", "column", "difference"], body) if body else ""


def paper_table(rows: Sequence[Row]) -> str:
    """Ours / the paper's, for the models that both have."""
    body = [
        [
            model,
            features,
            *(
                f"{cell(rows, model, features, column)} / {paper.GROUPED[model, features][column]:.1f}"
                for column in ("pretraining_top1", *GROUPS)
            ),
            f"{paper.OTHER_WITH_VOC[model, features]:.1f}",
        ]
        for model, features in main_rows(rows)
        if (model, features) in paper.GROUPED
    ]
    header = ["model", "features", "pre-training top-1", *GROUPS.values(), "paper's Other with VOC2007"]
    return markdown(header, body) if body else ""


def paper_difference_table(rows: Sequence[Row]) -> str:
    """Our paired differences to the base / the paper's differences, for the models that both have."""
    body = []
    for model, features in main_rows(rows):
        if model not in paper.BASE or not difference(rows, model, BASE[model], features):
            continue
        theirs, base = paper.GROUPED[model, features], paper.GROUPED[paper.BASE[model], features]
        cells = []
        for group in GROUPS:
            found = difference(rows, model, BASE[model], features, group)
            paper_cell = f"{theirs[group] - base[group]:+.1f}".replace("-", "−")
            cells.append(f"{points(found) if found else '—'} / {paper_cell}")
        body.append([model, features, BASE[model], *cells])
    return markdown(["model", "features", "our base", *GROUPS.values()], body) if body else ""


def full_table(rows: Sequence[Row]) -> str:
    """The score of every task."""
    tasks = tasks_of(rows)
    body = [
        [model, features, *(markdown_cell(rows, model, features, c) for c in ("pretraining_top1", *tasks, "average"))]
        for model, features in main_rows(rows)
    ]
    titles = [TASKS.get(task, task) for task in tasks]
    return markdown(["model", "features", f"{pretraining_data(rows)} top-1", *titles, "Average"], body)


def space_table(rows: Sequence[Row]) -> str:
    """What each space predicts, for the models with style spaces."""
    tasks = [task for task in OWN_TASKS if task in tasks_of(rows)]
    body = [
        [model, space, *(cell(rows, model, space, column) for column in (*tasks, "pretraining_top1", "average"))]
        for model in models_of(rows)
        if (styles := style_spaces(rows, model))
        for space in ("content", *styles, "z")
        if by_seed(rows, model, space)
    ]
    titles = [TASKS[task] for task in tasks]
    return markdown(["model", "features", *titles, "class top-1", "Average"], body) if body else ""


def separation_table(rows: Sequence[Row]) -> str:
    """The sensitivity matrix of each model, mean over seeds, and the class accuracy of each space."""
    found = {model: matrix for model in models_of(rows) if (matrix := mean_matrix(rows, model))}
    groups = list(dict.fromkeys(group for matrix in found.values() for line in matrix.values() for group in line))
    body = []
    for model, matrix in found.items():
        for space, line in matrix.items():
            shares = class_share(rows, model, space)
            body.append(
                [
                    model,
                    space,
                    *(_sensitivity(line.get(group), own=group == space) for group in groups),
                    cell(rows, model, space, "pretraining_top1"),
                    f"{mean(shares.values()):.2f}" if shares else "—",
                ]
            )
    header = ["model", "space", *(f"to {group}" for group in groups), "class top-1", "÷ content's"]
    return markdown(header, body) if body else ""


def _sensitivity(value: float | None, *, own: bool) -> str:
    """An entry, bold where it is a space's own group."""
    text = "—" if value is None else number(value, 3)
    return f"**{text}**" if own and value is not None else text
