"""``figure.svg`` and ``README.md`` of the identifiability experiment: the theorem beside what was measured."""

from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console

from unweave.experiments.report import save_svg
from unweave.experiments.table import Row, Table, markdown

MEASURES = {"content_r2": "content", "diagonal": "own", "leak": "leak", "exogenous": "exogenous", "mcc": "MCC"}
PASS = {"content_r2": 0.95, "diagonal": 0.95, "leak": 0.05}


def write_report(out: Path, table: Table) -> None:
    """Both files, and the main table on the terminal."""
    (out / "README.md").write_text(readme(table))
    draw(out / "figure.svg", table.rows)
    console = Console()
    for line in summary(main_rows(table.rows), ("setting", "styles", "dim_c")):
        console.print(line, soft_wrap=True)


def main_rows(rows: Iterable[Row]) -> list[Row]:
    """Our objective, whole, in the settings inside the theorem."""
    return [r for r in rows if r["objective"] == "ours" and r["ablation"] == "none" and "-" not in short(r["setting"])]


def short(setting: str) -> str:
    """Setting c's two forms both lie inside: only A2 is broken, which is the question."""
    return "c" if setting == "c-scaled" else setting


def summary(rows: list[Row], by: tuple[str, ...]) -> list[str]:
    """Mean (and worst) over seeds of every measure, a line for each combination of ``by``."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row[name]) for name in by), []).append(row)
    body = [
        [
            *name,
            *(cell([row[measure] for row in mine], worst=max if measure == "leak" else min) for measure in MEASURES),
        ]
        for name, mine in groups.items()
    ]
    return markdown([*by, *MEASURES.values()], body)


def cell(values: list[float], worst: Callable[[list[float]], float]) -> str:
    """Mean, and the worst seed."""
    return f"{sum(values) / len(values):.3f} ({worst(values):.2f})"


def readme(table: Table) -> str:
    """The theorem's claims, what was measured, and the numbers behind it."""
    rows = table.rows
    ours = [row for row in rows if row["objective"] == "ours"]
    sections = {
        "Inside the theorem (a, b), and where A2 is broken (c)": summary(
            main_rows(rows), ("setting", "styles", "dim_c")
        ),
        "Other objectives": summary(
            [r for r in rows if r["ablation"] == "none" and short(r["setting"]) in ("a", "b", "c")
             and (r["styles"], r["dim_c"]) in {(o["styles"], o["dim_c"]) for o in rows if o["objective"] == "theorem"}],
            ("objective", "setting", "styles", "dim_c"),
        ),
        "Ablations": summary(
            [r for r in rows if r["ablation"] != "none"], ("objective", "ablation", "setting", "styles", "dim_c")
        ),
        "One step outside A1 and A3": summary(
            [r for r in ours if r["ablation"] == "none" and "-" in short(r["setting"])], ("setting", "styles", "dim_c")
        ),
    }  # fmt: skip
    lines = [
        "# The theorem put to the test",
        "",
        "The identifiability theorem of Eastwood et al.: with M + 1 alignment terms and joint entropy, φ_0 recovers",
        "content and each φ_m its own style variable, up to invertible functions. Written by the command below.",
        "",
        "![own, content and leak by setting](figure.svg)",
        "",
        "| the paper | measured |",
        "|---|---|",
        *(f"| {claim} | {found} |" for claim, found in claims(rows)),
        "",
        "Mean over seeds (worst seed). *Content*: r² of φ_0 to c. *Own*: mean r² of φ_m to s̃_m. *Leak*: largest r² of",
        "any φ_m to any single dimension that is not its own, less what its true variable tells of that. *Exogenous*:",
        "r² of φ_m to the rank of s̃_m given c. *MCC*: Spearman, styles. All on augmented data; r² by kernel ridge.",
    ]  # fmt: skip
    for title, body in sections.items():
        if len(body) > 2:
            lines += ["", f"## {title}", "", *body]
    return "\n".join([*lines, "", *settings_lines(), "", *table.provenance_lines()]) + "\n"


def settings_lines() -> list[str]:
    """What the names of the settings mean."""
    from unweave.experiments.identifiability import SETTINGS

    return ["## Settings", "", *(f"- `{name}`: {setting.meaning}" for name, setting in SETTINGS.items())]


def claims(rows: list[Row]) -> list[tuple[str, str]]:
    """The paper's statements, and the numbers that bear on them."""
    found = []
    main = main_rows(rows)
    for name, words in (("a", "styles independent of content"), ("b", "perfect interventions")):
        for few in (True, False):
            mine = [r for r in main if r["setting"] == name and (r["styles"] <= 4) == few]
            if mine:
                found.append((
                    f"({name}) {words}, {'up to 4' if few else 'more'} styles: content and each style recovered, apart",
                    extremes(mine),
                ))  # fmt: skip
    for name, words in (("c", "noise added"), ("c-scaled", "noise scaled by content")):
        mine = [r for r in main if r["setting"] == name and r["styles"] <= 4]
        if mine:
            exogenous, own = (average(mine, measure) for measure in ("exogenous", "diagonal"))
            found.append((
                f"({name}) content-dependent styles, imperfect interventions, {words}: conjecture that what is "
                "exogenous is recovered in place of s_m",
                f"r² of φ_m to the rank of s̃_m given c {exogenous:.3f}, to s̃_m itself {own:.3f}",
            ))  # fmt: skip
    for ablation, words in (
        ("per-space entropy", "without joint entropy, content is duplicated in the style spaces (against LooC)"),
        ("no style entropy", "without entropy on style, style spaces need hold nothing"),
        ("no content entropy", "(not in the theorem: content's entropy of its own)"),
        ("all pairs", "pair l mod (M + 1) and all pairs of every image: the same"),
    ):
        for objective in ("ours", "simclr"):
            mine = [r for r in rows if r["objective"] == objective and r["ablation"] == ablation]
            if mine:
                alive = sum(sum(r["variance"][1:]) / r["styles"] for r in mine) / len(mine)
                found.append((words, f"{objective}, {ablation}: {extremes(mine)}, variance of styles {alive:.2g}"))
    return found


def average(rows: list[Row], measure: str) -> float:
    """Over all rows."""
    return float(sum(row[measure] for row in rows) / len(rows))


def extremes(rows: list[Row]) -> str:
    """Means, and the worst single run of each measure."""
    words = [
        f"{MEASURES[m]} {average(rows, m):.3f} (worst run {(max if m == 'leak' else min)(r[m] for r in rows):.3f})"
        for m in PASS
    ]
    return ", ".join(words)


def draw(path: Path, rows: list[Row]) -> None:
    """Content, own and leak of our objective against the number of styles; a panel a setting, every run a dot."""
    from matplotlib.figure import Figure

    main = main_rows(rows)
    settings = list(dict.fromkeys(row["setting"] for row in main))
    drawing = Figure(figsize=(3.2 * max(len(settings), 1) + 0.6, 3.2), layout="constrained")
    axes = drawing.subplots(1, max(len(settings), 1), sharey=True, squeeze=False)[0]
    colors = {"content_r2": "#7b3fe4", "diagonal": "#e8760c", "exogenous": "#1b8f6a", "leak": "#444"}
    for axis, setting in zip(axes, settings, strict=False):
        mine = [row for row in main if row["setting"] == setting]
        counts = sorted({row["styles"] for row in mine})
        for measure, color in colors.items():
            line = [average([r for r in mine if r["styles"] == count], measure) for count in counts]
            places = [counts.index(row["styles"]) for row in mine]
            axis.plot(range(len(counts)), line, color=color, label=MEASURES[measure])
            axis.plot(places, [row[measure] for row in mine], ".", color=color, ms=3, alpha=0.5)
        axis.set_xticks(range(len(counts)), [str(count) for count in counts])
        axis.set_title(f"setting {setting}")
        axis.set_xlabel("styles")
    axes[0].set_ylabel("r²")
    axes[0].legend(fontsize=8)
    save_svg(drawing, path)
