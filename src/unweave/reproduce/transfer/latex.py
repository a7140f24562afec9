"""``grouped.tex`` and ``full.tex``: the paper's two tables with our numbers, in LaTeX with booktabs."""

from collections.abc import Callable, Sequence

from unweave.reproduce.results import Row
from unweave.reproduce.transfer.names import BASE, GROUPS, TASKS
from unweave.reproduce.transfer.seeds import Estimate, difference, models_of, tasks_of
from unweave.reproduce.transfer.tables import SHOWN, cell, is_best, main_rows, pretraining_data

SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"}


def grouped_tex(rows: Sequence[Row]) -> str:
    """The grouped table, with a column of paired differences to the base."""

    def line(model: str, features: str) -> list[str]:
        found = difference(rows, model, BASE[model], features) if model in BASE else None
        return [*(tex_cell(rows, model, features, c) for c in ("pretraining_top1", *GROUPS)), tex_difference(found)]

    data = pretraining_data(rows)
    bases = "; ".join(f"{tex_text(model)}: {tex_text(BASE[model])}" for model in models_of(rows) if model in BASE)
    caption = (
        f"Linear probes of models trained on {data}, by group of tasks: accuracy and mAP (\\%), $r^2$ for Spatial. "
        "Means over seeds; the average is over tasks. $\\Delta$: paired difference of the average to the base, with "
        "the half-width of its 95\\% interval over seeds."
    )
    caption += f" Bases: {bases}." if bases else ""
    return tex_table(rows, "transfer-grouped", caption, [f"{data} top-1", *GROUPS.values(), "$\\Delta$"], line)


def full_tex(rows: Sequence[Row]) -> str:
    """The table of all tasks."""
    tasks, data = tasks_of(rows), pretraining_data(rows)
    columns = ("pretraining_top1", *tasks, "average")
    caption = (
        f"Linear probes of models trained on {data}, by task (\\%): accuracy; the mean of the classes' accuracies for "
        "Aircraft, Caltech-101, Flowers and Pets; $r^2$ for CUB boxes and key points; 11-point mAP for VOC2007. "
        "Means over seeds."
    )
    header = [f"{data} top-1", *(tex_text(TASKS.get(task, task)) for task in tasks), "Average"]
    return tex_table(
        rows, "transfer-full", caption, header, lambda m, f: [tex_cell(rows, m, f, column) for column in columns]
    )


def tex_table(
    rows: Sequence[Row], label: str, caption: str, header: list[str], line: Callable[[str, str], list[str]]
) -> str:
    """A table whose lines are those of ``main_rows``, z above h; ``line`` gives the cells of model and features."""
    titles = [f"\\textbf{{{title}}}" for title in ("Model", "Features", *header)]
    blocks = [" & ".join(titles) + r" \\"]
    for shown in SHOWN:
        lines = [(m, f) for m, f in main_rows(rows) if f == shown]
        if lines:
            blocks.append("\n".join(" & ".join([tex_text(m), f"${f}$", *line(m, f)]) + r" \\" for m, f in lines))
    body = "\n\\midrule\n".join(blocks)
    return (
        "% needs \\usepackage{booktabs,graphicx}\n\\begin{table}[tb]\n\\centering\n"
        f"\\caption{{{caption}}}\\label{{tab:{label}}}\n\\resizebox{{\\textwidth}}{{!}}{{%\n"
        f"\\begin{{tabular}}{{@{{}}lc{'c' * len(header)}@{{}}}}\n\\toprule\n{body}\n\\bottomrule\n"
        "\\end{tabular}}\n\\end{table}\n"
    )


def tex_cell(rows: Sequence[Row], model: str, features: str, column: str) -> str:
    """The mean over seeds in points, bold where it is the best of its column."""
    text = cell(rows, model, features, column)
    number = "--" if text == "—" else f"$-${text[1:]}" if text.startswith("-") else text
    return f"\\textbf{{{number}}}" if is_best(text, rows, model, features, column) else number


def tex_difference(found: Estimate | None) -> str:
    """A difference in points, with the half-width of its interval where there are several seeds.

    Examples:
        >>> print(tex_difference(Estimate(0.0512, 0.004, 3)), tex_difference(Estimate(-0.01, None, 1)))
        $+5.1 \\pm 0.4$ $-1.0$
    """
    if found is None:
        return "--"
    half = "" if found.half_width is None else f" \\pm {100 * found.half_width:.1f}"
    return f"${100 * found.mean:+.1f}{half}$"


def tex_text(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    return "".join(SPECIAL.get(character, character) for character in text)
