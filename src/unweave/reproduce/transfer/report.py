"""``README.md``, the tables in LaTeX and the figures of the transfer experiment."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unweave.report import render
from unweave.reproduce.results import ResultsTable, Row
from unweave.reproduce.transfer.budget import budget_table, draw_budget
from unweave.reproduce.transfer.checks import checks
from unweave.reproduce.transfer.figures import draw_frontier, draw_groups, frontier_models
from unweave.reproduce.transfer.latex import full_tex, grouped_tex
from unweave.reproduce.transfer.names import TASKS
from unweave.reproduce.transfer.seeds import comparable, comparable_trials, tasks_of
from unweave.reproduce.transfer.tables import (
    check_table,
    full_table,
    grouped_table,
    harder_table,
    is_paper_scale,
    main_rows,
    model_table,
    paper_difference_table,
    paper_table,
    separation_table,
    space_table,
)

KEY = ("model", "features", "seed")


def write_report(out: Path, table: ResultsTable) -> None:
    """All files, from the rows that exist, and the grouped table on the terminal; nothing without rows of z or h.

    Where ``out`` has the trials too, as ``tuning.json``, the report says what the search for settings contributes.
    """
    if not main_rows(table.rows):
        return
    rows = comparable(table.rows)
    tuning = out / "tuning.json"
    trials = comparable_trials(json.loads(tuning.read_text())["rows"]) if tuning.exists() else []
    values = {
        **contents(table.rows),
        "budget_table": budget_table(trials) if trials else "",
        "trial_tasks": len(trials[0]["scores"]["z"]["tasks"]) if trials else 0,
    }
    text = render(Path(__file__).with_name("report.md"), provenance=table.provenance_line(), **values)
    (out / "README.md").write_text(text)
    (out / "grouped.tex").write_text(grouped_tex(rows))
    (out / "full.tex").write_text(full_tex(all_tasks(table.rows)))
    draw_groups(out / "figure.svg", rows)
    if frontier_models(rows):
        draw_frontier(out / "frontier.svg", rows)
    if trials:
        draw_budget(out / "budget.svg", trials)
    print(grouped_table(rows))


def all_tasks(rows: Sequence[Row]) -> list[Row]:
    """The rows with every score they have, and averages over the tasks that all rows have."""
    return [{**one, "tasks": row["tasks"]} for one, row in zip(comparable(rows), rows, strict=True)]


def contents(every: Sequence[Row]) -> dict[str, Any]:
    """The values of the template."""
    rows = comparable(every)
    found = checks(rows)
    return {
        "paper_scale": is_paper_scale(rows),
        "tasks": [TASKS.get(task, task) for task in tasks_of(rows)],
        "left_out": [TASKS.get(task, task) for task in tasks_of(every) if task not in tasks_of(rows)],
        "seeds": sorted({row["seed"] for row in rows}),
        "met": f"{sum(check.met for check in found)} of {len(found)}" if found else "",
        "has_frontier": bool(frontier_models(rows)),
        "model_table": model_table(rows),
        "grouped_table": grouped_table(rows),
        "check_table": check_table(rows),
        "harder_table": harder_table(rows),
        "paper_table": paper_table(rows),
        "paper_difference_table": paper_difference_table(rows),
        "full_table": full_table(all_tasks(every)),
        "space_table": space_table(rows),
        "separation_table": separation_table(rows),
    }
