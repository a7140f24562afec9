"""The report of the transfer experiment, on made-up rows."""

import itertools
import json
import re

import numpy as np
import pytest
import scipy.stats

from unweave.reproduce.results import ResultsTable
from unweave.reproduce.transfer import paper
from unweave.reproduce.transfer.budget import expected_best
from unweave.reproduce.transfer.checks import checks, points
from unweave.reproduce.transfer.figures import COLORS, MARKERS, draw_frontier, draw_groups, draw_trials
from unweave.reproduce.transfer.latex import full_tex, grouped_tex
from unweave.reproduce.transfer.names import BASE, ORDER, OTHER_BASES, TASKS, group_averages
from unweave.reproduce.transfer.report import KEY, write_report
from unweave.reproduce.transfer.seeds import (
    by_seed,
    class_share,
    comparable,
    comparable_trials,
    difference,
    estimate,
    largest_class_share,
    matrices,
    mean_matrix,
    models_of,
    off_diagonal,
    separation,
    spread,
    style_spaces,
)
from unweave.reproduce.transfer.tables import (
    cell,
    full_table,
    grouped_table,
    harder_table,
    paper_difference_table,
    paper_table,
    separation_table,
    space_table,
)
from unweave.reproduce.transfer.tuning import best_table

MINI = [task for task in TASKS if task not in ("aircraft", "dtd", "sun397")]
OURS = "SimCLR + Ours-Scratch"
WITH_STYLES = [
    name
    for name in ORDER
    if any(word in name for word in ("Ours", "per-space", "heads", "narrow", "objective", "LooC"))
]


def make_row(model, features, seed, level, *, top1=0.2, sensitivity=None, tasks=MINI, **changed):
    """A row whose tasks all score ``level``, except those in ``changed`` (``cub_box`` for cub-box)."""
    scores = {task: changed.get(task.replace("-", "_"), level) for task in tasks}
    return {
        "model": model, "features": features, "seed": seed, "pretraining_top1": top1, "tasks": scores,
        **group_averages(scores), "sensitivity": sensitivity, "epochs": 100.0, "seconds": 50.0,
    }  # fmt: skip


def matrix(content=0.1, other=0.04, own=0.6):
    return {
        "content": {"spatial": content, "appearance": content},
        "spatial": {"spatial": own, "appearance": other},
        "appearance": {"spatial": other, "appearance": own},
    }


def make_rows(models=ORDER, seeds=(0, 1, 2), tasks=MINI):
    """Rows of every kind, with noise."""
    rng = np.random.default_rng(0)
    rows = []
    for place, model in enumerate(models):
        for seed in seeds:
            found = matrix(*(rng.uniform(0.02, 0.2, 2)), rng.uniform(0.5, 0.8)) if model in WITH_STYLES else None
            for features in ("z", "h", *(found or ())):
                noise = {task.replace("-", "_"): rng.uniform(0.2, 0.5) + 0.005 * place for task in tasks}
                part = found if features == "z" else found[features] if found and features in found else None
                top1 = rng.uniform(0.05, 0.3)
                rows.append(make_row(model, features, seed, 0.3, top1=top1, sensitivity=part, tasks=tasks, **noise))
    return rows


def write(folder, rows):
    table = ResultsTable(folder / "table.json", KEY)
    table.add(rows)
    write_report(folder, table)
    return (folder / "README.md").read_text()


def body(table):
    """The cells of a table in Markdown, without its header."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_paired_difference_and_its_interval_are_those_of_scipy():
    ours, base = [0.41, 0.43, 0.40, 0.47], [0.35, 0.38, 0.37, 0.36]
    rows = [make_row("a", "z", seed, value) for seed, value in enumerate(ours)]
    rows += [make_row("b", "z", seed, value) for seed, value in enumerate(base)]
    found = difference(rows, "a", "b")
    expected = scipy.stats.ttest_rel(ours, base)
    low, high = expected.confidence_interval(0.95)
    assert found.mean == pytest.approx(np.mean(ours) - np.mean(base))
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx((low, high))
    assert found.seeds == 4


def test_differences_are_paired_by_seed_and_not_by_place():
    rows = [make_row("a", "z", seed, 0.5 + seed / 10) for seed in (2, 0, 7)]
    rows += [make_row("b", "z", seed, 0.4 + seed / 10) for seed in (0, 1, 2)]
    found = difference(rows, "a", "b")
    assert (found.seeds, found.mean, found.half_width) == (2, pytest.approx(0.1), pytest.approx(0, abs=1e-9))
    assert difference(rows, "a", "b", "h") is None
    assert difference(rows[:1], "a", "b") is None


def test_one_seed_has_no_interval():
    assert estimate([0.3]).half_width is None
    assert points(estimate([0.3])) == "+30.0 ± —"
    assert spread([0.3]) == 0
    assert spread([0.1, 0.2, 0.4]) == pytest.approx(np.std([0.1, 0.2, 0.4], ddof=1))


def test_cells_are_means_over_seeds_in_points():
    rows = [make_row("SimCLR", "z", seed, 0.3, cub_box=box) for seed, box in ((0, -0.2), (1, 0.1))]
    assert cell(rows, "SimCLR", "z", "cub-box") == "-5.0"
    assert cell(rows, "SimCLR", "z", "spatial") == "12.5"
    assert cell(rows, "SimCLR", "z", "average") == "26.8"
    assert cell(rows, "SimCLR", "h", "average") == "—"
    (line,) = body(grouped_table(rows))
    assert line == ["SimCLR", "z", "2", "**20.0**", "**12.5**", "**30.0**", "**30.0**", "**26.8**", "—"]


def test_a_task_that_one_seed_lacks_is_averaged_over_the_others():
    rows = [make_row("SimCLR", "z", 0, 0.3), make_row("SimCLR", "z", 1, 0.5, tasks=["pets"])]
    assert cell(rows, "SimCLR", "z", "pets") == "40.0"
    assert cell(rows, "SimCLR", "z", "cars") == "30.0"
    rows[1] |= {"spatial": None}
    assert by_seed(rows, "SimCLR", "z", "spatial") == {0: pytest.approx(0.3)}


def test_group_averages_are_over_the_tasks_of_each_group():
    scores = {task: i / 10 for i, task in enumerate(MINI)}
    found = group_averages(scores)
    assert found["spatial"] == pytest.approx((scores["cub-box"] + scores["cub-keypoints"]) / 2)
    assert found["appearance"] == pytest.approx((scores["dtd-10"] + scores["flowers"] + scores["pets"]) / 3)
    weighted = (2 * found["spatial"] + 3 * found["appearance"] + 6 * found["other"]) / 11
    assert found["average"] == pytest.approx(weighted) == pytest.approx(np.mean(list(scores.values())))


@pytest.mark.parametrize("name", list(paper.GROUPED), ids=" ".join)
def test_the_papers_tables_agree_with_each_other(name):
    """To the rounding of both tables; "Other" of the grouped one is without VOC2007."""
    tasks, grouped = paper.FULL[name], paper.GROUPED[name]
    found = group_averages(tasks)
    without = group_averages({task: score for task, score in tasks.items() if task != "voc2007"})
    for group in ("spatial", "appearance", "average"):
        assert found[group] == pytest.approx(grouped[group], abs=0.06)
    assert without["other"] == pytest.approx(grouped["other"], abs=0.06)
    assert paper.OTHER_WITH_VOC[name] > grouped["other"] + 1


def test_models_are_in_order_and_unknown_ones_last():
    rows = [make_row(model, "z", 0, 0.3) for model in ("mine", "AugSelf", "SimCLR wide", "SimCLR")]
    assert models_of(rows) == ["SimCLR", "SimCLR wide", "AugSelf", "mine"]
    assert {*BASE, *BASE.values(), *OTHER_BASES, *sum(OTHER_BASES.values(), ())} <= set(ORDER)
    assert all(ORDER.index(base) < ORDER.index(model) for model, base in BASE.items())
    assert set(COLORS) == set(ORDER)
    assert len(set(COLORS.values())) == len(ORDER)
    assert set(MARKERS) == set(WITH_STYLES)
    assert len(set(MARKERS.values())) == len(MARKERS)


def test_ours_is_compared_with_both_bases():
    rows = [make_row(model, "z", s, level) for model, level in (("SimCLR", 0.3), ("SimCLR wide", 0.32)) for s in (0, 1)]
    rows += [make_row(OURS, "z", seed, 0.35) for seed in (0, 1)]
    last = {line[0]: line[-1] for line in body(grouped_table(rows))}
    assert last["SimCLR"] == "—"
    assert last["SimCLR wide"] == "+2.0 ± 0.0 (SimCLR)"
    assert last[OURS] == "+5.0 ± 0.0 (SimCLR); +3.0 ± 0.0 (SimCLR wide)"


def test_the_best_of_each_column_is_bold_but_references_do_not_compete():
    rows = [make_row("SimCLR", "z", 0, 0.3), make_row("VICReg", "z", 0, 0.2), make_row("supervised", "z", 0, 0.9)]
    bold = {line[0]: [text.startswith("**") for text in line[4:8]] for line in body(grouped_table(rows))}
    assert bold == {"SimCLR": [True] * 4, "VICReg": [False] * 4, "supervised": [False] * 4}


def test_separation_is_the_mean_of_all_entries_off_the_diagonal():
    rows = [make_row(OURS, "z", seed, 0.3, sensitivity=matrix(0.1 + seed / 10, 0.02, 0.9)) for seed in (0, 1)]
    assert sorted(off_diagonal(matrix(0.1, 0.02, 0.9))) == [0.02, 0.02, 0.1, 0.1]
    assert separation(rows, OURS) == {0: pytest.approx(0.06), 1: pytest.approx(0.11)}
    assert mean_matrix(rows, OURS)["content"] == pytest.approx({"spatial": 0.15, "appearance": 0.15})
    assert style_spaces(rows, OURS) == ["spatial", "appearance"]


def test_the_matrix_of_single_spaces_is_used_where_z_has_none():
    rows = [make_row(OURS, space, 0, 0.3, sensitivity=line) for space, line in matrix().items()]
    assert matrices(rows, OURS) == {0: matrix()}
    one_space = [make_row("SimCLR", "z", 0, 0.3, sensitivity={"content": {"spatial": 0.2, "appearance": 0.3}})]
    assert style_spaces(one_space, "SimCLR") == []


def test_class_accuracy_is_divided_by_contents_of_the_same_seed():
    rows = [
        make_row(OURS, space, seed, 0.3, top1=top1)
        for seed, scores in ((0, (0.2, 0.04, 0.1)), (1, (0.4, 0.32, 0.1)))
        for space, top1 in zip(("content", "spatial", "appearance"), scores, strict=True)
    ]
    assert class_share(rows, OURS, "spatial") == {0: pytest.approx(0.2), 1: pytest.approx(0.8)}
    assert largest_class_share(rows, OURS) == {0: pytest.approx(0.5), 1: pytest.approx(0.8)}
    lines = body(space_table(rows))
    assert [line[1] for line in lines] == ["content", "spatial", "appearance"]
    assert lines[1][-2] == "18.0"


def ideal():
    """Rows that meet every demand."""
    levels = {"SimCLR": 0.30, "SimCLR wide": 0.31, "SimCLR continued": 0.31, "VICReg": 0.25, "Barlow Twins": 0.25}
    levels |= {"AugSelf": 0.32, "LooC++": 0.33, "SimCLR + per-space entropy": 0.34}
    rows = []
    for seed in (0, 1, 2):
        for model, level in levels.items():
            loose = matrix(0.3, 0.3) if "entropy" in model else None
            rows += [make_row(model, "z", seed, level, sensitivity=loose), make_row(model, "h", seed, level)]
        for model in (OURS, "SimCLR + Ours-FT", "VICReg + Ours-FT", "VICReg + Ours-Scratch"):
            rows += [make_row(model, "h", seed, 0.36)]
            rows += [make_row(model, "z", seed, 0.36, cub_box=0.6, cub_keypoints=0.5, sensitivity=matrix())]
        rows += [make_row("Barlow Twins + Ours-Scratch", features, seed, 0.36) for features in "zh"]
        rows += [make_row(OURS, "content", seed, 0.3, top1=0.2)]
        rows += [make_row(OURS, "spatial", seed, 0.1, top1=0.05, cub_box=0.6, cub_keypoints=0.5)]
        rows += [make_row(OURS, "appearance", seed, 0.2, top1=0.1)]
    return rows


def test_rows_that_meet_every_demand_pass_every_check():
    found = checks(ideal())
    assert len({check.claim for check in found}) == len(found) == 31
    assert [check.claim for check in found if not check.met] == []


@pytest.mark.parametrize(
    ("select", "change", "failing"),
    [
        ((OURS, "z"), {"average": 0.349}, ["SimCLR, average", "SimCLR wide, average"]),
        ((OURS, "z"), {"average": 0.351}, []),
        ((OURS, "z"), {"spatial": 0.41}, ["SimCLR, spatial"]),
        ((OURS, "z"), {"appearance": 0.315}, ["SimCLR, appearance"]),
        ((OURS, "z"), {"other": 0.299}, ["SimCLR, other"]),
        (("SimCLR + Ours-FT", "z"), {"average": 0.319}, ["SimCLR continued, average"]),
        ((OURS, "h"), {"average": 0.299}, ["h: SimCLR + Ours-Scratch − SimCLR, average"]),
        (("VICReg + Ours-Scratch", "z"), {"average": 0.28}, ["z: VICReg + Ours-Scratch − VICReg, average"]),
        (("AugSelf", "z"), {"average": 0.9}, ["z: Ours-Scratch − AugSelf, average"]),
        (("AugSelf", "h"), {"average": 0.9}, ["h of AugSelf, average"]),
        (("LooC++", "h"), {"average": 0.9}, ["h of LooC++, average"]),
        ((OURS, "z"), {"sensitivity": matrix(content=0.16)}, ["content to spatial", "content to appearance"]),
        ((OURS, "z"), {"sensitivity": matrix(other=0.06)}, ["space to appearance", "space to spatial"]),
        ((OURS, "z"), {"sensitivity": matrix(own=0.4)}, ["spatial space to spatial", "appearance space to appearance"]),
        ((OURS, "spatial"), {"pretraining_top1": 0.11}, ["class accuracy of the spatial space, divided by content's"]),
    ],
)  # fmt: skip
def test_each_demand_that_is_missed_fails_its_check(select, change, failing):
    rows = [row | change if (row["model"], row["features"]) == select else row for row in ideal()]
    missed = [check.claim for check in checks(rows) if not check.met]
    assert len(missed) == len(failing)
    assert all(claim.endswith(end) for claim, end in zip(missed, failing, strict=True))


def test_spaces_that_predict_the_other_groups_tasks_fail():
    rows = ideal()
    swap = {"spatial": "appearance", "appearance": "spatial"}
    tasks = {(row["features"], row["seed"]): row["tasks"] for row in rows if row["features"] in swap}
    swapped = [
        row | {"tasks": tasks[swap[row["features"]], row["seed"]]} if row["features"] in swap else row for row in rows
    ]
    missed = [check.claim.split(":")[0] for check in checks(swapped) if not check.met]
    assert missed == ["CUB box", "CUB key points", "Flowers", "DTD-10"]


def test_checks_without_rows_are_left_out():
    assert checks([]) == []
    assert checks([make_row("SimCLR", "z", 0, 0.3)]) == []
    rows = [make_row("SimCLR", "z", 0, 0.3), make_row(OURS, "z", 0, 0.4)]
    assert {check.claim.split(",")[0] for check in checks(rows)} == {"z: Ours-Scratch − SimCLR"}


def test_the_papers_numbers_stand_beside_ours():
    rows = [make_row("SimCLR", "z", 0, 0.3), make_row(OURS, "z", 0, 0.4)]
    assert body(paper_table(rows))[1][-2:] == ["40.0 / 50.6", "48.8"]
    assert body(paper_difference_table(rows)) == [
        [OURS, "z", "SimCLR", *(f"+10.0 ± — / {theirs}" for theirs in ("+15.3", "−5.0", "+2.9", "+2.7"))]
    ]
    assert paper_table([make_row("AugSelf", "z", 0, 0.3)]) == ""


@pytest.mark.parametrize("tex", [grouped_tex, full_tex])
@pytest.mark.parametrize("rows", [make_rows(), make_rows(["VICReg"], [3]), make_rows(["100% _new_"], [0])],
                         ids=["all", "one", "special characters"])  # fmt: skip
def test_latex_has_as_many_cells_as_columns_and_its_braces_and_environments_match(tex, rows):
    text = tex(rows)
    (columns,) = re.findall(r"\\begin\{tabular\}\{@\{\}(l?c+)@\{\}\}", text)
    table = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    lines = [line for line in table.splitlines() if line.endswith(r"\\")]
    assert len(lines) == 1 + sum(row["features"] in "zh" for row in rows) / len({row["seed"] for row in rows})
    assert {len(re.findall(r"(?<!\\)&", line)) + 1 for line in lines} == {len(columns)}
    plain = re.sub(r"\\[&%$#_{}]", "", text)
    depth = np.cumsum([(c == "{") - (c == "}") for c in plain])
    assert (depth.min(), depth[-1]) == (0, 0)
    assert all(line.count("$") % 2 == 0 for line in plain.splitlines())
    assert re.findall(r"\\begin\{(\w+)\}", text) == re.findall(r"\\end\{(\w+)\}", text)[::-1]
    assert not re.search(r"[^\x00-\x7f]", text)
    assert plain.count("%") == 2  # the first line's comment, and the one that ends the line of \resizebox


@pytest.mark.parametrize(
    "rows",
    [
        make_rows(),
        make_rows(tasks=[task for task in TASKS if task != "dtd-10"]),
        make_rows(["SimCLR"], [0]),
        make_rows([OURS], [0]),
        make_rows(["SimCLR", OURS], [0])[:3],
        [row for row in make_rows(["SimCLR", OURS, "VICReg"]) if row["seed"] <= len(row["model"]) % 3],
        make_rows(["something new"], [0, 1]),
        [row for row in make_rows([OURS], [0]) if row["features"] != "z"],
    ],
    ids=["all", "paper", "one model", "ours", "one seed", "uneven seeds", "unknown", "without z"],
)
def test_the_report_is_written_from_whatever_rows_exist(tmp_path, rows):
    text = write(tmp_path, rows)
    assert {"README.md", "figure.svg", "grouped.tex", "full.tex"} <= {path.name for path in tmp_path.iterdir()}
    assert all(model in text for model in models_of(rows))
    shown = set(re.findall(r"\]\((\w+\.svg)\)", text))
    assert shown == {path.name for path in tmp_path.glob("*.svg")}
    assert ("frontier.svg" in shown) == any(row["sensitivity"] and row["features"] == "z" for row in rows)
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1
    assert not re.search(r"^[^|\n].*\n\|", text, re.MULTILINE)  # a table needs an empty line before it
    assert "nan" not in text
    assert "None" not in text
    assert text.rstrip().endswith(ResultsTable(tmp_path / "table.json", KEY).provenance_line())


def test_a_table_without_rows_writes_nothing(tmp_path):
    table = ResultsTable(tmp_path / "table.json", KEY)
    table.add([])
    write_report(tmp_path, table)
    assert [path.name for path in tmp_path.iterdir()] == ["table.json"]


def test_the_scale_is_named_by_the_tasks(tmp_path):
    assert "Tiny-ImageNet" in write(tmp_path, make_rows(["SimCLR"], [0]))
    other = tmp_path / "paper"
    other.mkdir()
    tasks = [task for task in TASKS if task != "dtd-10"]
    text = write(other, make_rows(["SimCLR"], [0], tasks))
    assert "Tiny-ImageNet" not in text
    assert "miniature" not in text
    assert "13 downstream tasks" in text


def test_figures_are_equal_in_every_byte_when_written_again(tmp_path):
    rows = make_rows(["SimCLR", OURS, "LooC++"])
    for draw in (draw_groups, draw_frontier):
        draw(tmp_path / "a.svg", rows)
        draw(tmp_path / "b.svg", json.loads(json.dumps(rows[::-1])))
        first = (tmp_path / "a.svg").read_bytes()
        assert first == (tmp_path / "b.svg").read_bytes()
        changed = [row | {"average": row["average"] + 0.1} if row["model"] == OURS else row for row in rows]
        draw(tmp_path / "b.svg", changed)
        assert first != (tmp_path / "b.svg").read_bytes()


def test_the_tables_have_a_line_for_each_model_features_and_space():
    rows = make_rows()
    assert len(body(grouped_table(rows))) == len(body(full_table(rows))) == 2 * len(ORDER)
    assert len(body(space_table(rows))) == 4 * len(WITH_STYLES)
    assert len(body(separation_table(rows))) == 3 * len(WITH_STYLES)


def test_the_figure_of_trials_has_a_point_for_each_trial_with_styles(tmp_path):
    matrix = {"content": {"a": 0.1}, "a": {"a": 0.9}}
    scores = {"z": {"average": 0.4, "sensitivity": matrix}, "content": {"pretraining_top1": 0.2}}
    scores["a"] = {"pretraining_top1": 0.1}
    with_styles = {"model": "SimCLR + Ours-Scratch", "scores": scores, "settings": {"lambda_rule": "dual-ascent"}}
    without = {"model": "SimCLR", "scores": {"z": {"average": 0.3, "sensitivity": {"content": {"a": 0.1}}}}}
    draw_trials(tmp_path / "trials.svg", [with_styles, {**without, "settings": {}}])
    text = (tmp_path / "trials.svg").read_text()
    assert "SimCLR, content+joint, λ adapted" in text
    assert "fixed" not in text


def test_harder_comparisons_leave_out_the_spatial_tasks_and_take_the_h_of_the_base():
    rows = [make_row("SimCLR", "z", seed, 0.3) for seed in (0, 1)]
    rows += [make_row("SimCLR", "h", seed, 0.37) for seed in (0, 1)]
    rows += [make_row(OURS, "z", seed, 0.35, cub_box=0.9, cub_keypoints=0.9) for seed in (0, 1)]
    lines = body(harder_table(rows))
    assert [line[:3] for line in lines] == [
        [f"z of {OURS}", "z of SimCLR", "average without the spatial tasks"],
        [f"z of {OURS}", "h of SimCLR", "average"],
    ]
    assert lines[0][3] == "+5.00 ± 0.00"
    whole = (2 * 0.9 + (len(MINI) - 2) * 0.35) / len(MINI)
    assert lines[1][3] == f"+{100 * (whole - 0.37):.2f} ± 0.00"


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_the_expected_best_is_the_mean_over_all_choices_of_trials(k):
    scores = [0.3, 0.1, 0.1, 0.7, 0.65, 0.2]
    assert expected_best(scores, k) == pytest.approx(np.mean([max(some) for some in itertools.combinations(scores, k)]))


def trial_score(level):
    return {"tasks": {"pets": level, "cars": level}, **group_averages({"pets": level, "cars": level})}


def test_averages_are_over_the_tasks_that_every_row_has(tmp_path):
    rows = [make_row("SimCLR", "z", 0, 0.3), make_row(OURS, "z", 0, 0.4, tasks=["pets", "cars", "flowers"])]
    rows[0]["tasks"]["voc2007"] = 0.9  # would raise the average if it counted
    found = comparable(rows)
    assert [row["average"] for row in found] == pytest.approx([0.3, 0.4])
    assert all(set(row["tasks"]) == {"pets", "cars", "flowers"} for row in found)
    text = write(tmp_path, rows)
    assert "Averages leave out Caltech-101, " in text
    assert "90.0" in text  # the score itself is still in the table of every task


def test_the_best_trial_is_the_best_on_the_tasks_that_all_trials_have():
    few, all_tasks = trial_score(0.5), {"tasks": {"pets": 0.6, "cars": 0.6, "voc2007": 0.0}, "average": 0.4}
    trials = [
        {"model": "SimCLR", "trial": i, "settings": {"lr": i}, "scores": {"z": score, "h": score}}
        for i, score in enumerate((few, all_tasks))
    ]
    assert body(best_table(comparable_trials(trials))) == [["SimCLR", "2", "1", "60.0", "60.0", "lr 1"]]


def test_trials_beside_the_table_add_what_the_search_contributes(tmp_path):
    trials = [
        {"model": model, "trial": trial, "scores": {name: trial_score(level + 0.1 * trial) for name in ("z", "h")}}
        for model, level, count in (("SimCLR", 0.3, 2), (OURS, 0.4, 3))
        for trial in range(count)
    ]
    (tmp_path / "tuning.json").write_text(json.dumps({"rows": trials}))
    text = write(tmp_path, make_rows(["SimCLR", OURS]))
    assert "| SimCLR | z | 2 | 35.0 | 40.0 | — |" in text  # the mean of 30 and 40, then the better one
    assert f"| {OURS} | z | 3 | 50.0 | 56.7 | — |" in text
    assert (tmp_path / "budget.svg").stat().st_size > 1000
