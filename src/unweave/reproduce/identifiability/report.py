"""``figure.svg`` and ``README.md`` of the identifiability experiment."""

from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console

from unweave.report import render, save_svg
from unweave.reproduce.identifiability.settings import SETTINGS
from unweave.reproduce.results import ResultsTable, Row, markdown

MEASURES = {"content_r2": "content", "diagonal": "own", "leak": "leak", "exogenous": "exogenous", "mcc": "MCC"}


def write_report(out: Path, table: ResultsTable) -> None:
    """Both files, and the main table on the terminal."""
    rows = table.rows
    text = render(
        Path(__file__).with_name("report.md"),
        claims=claims(rows),
        sections={title: body for title, body in sections(rows).items() if body},
        settings={name: setting.meaning for name, setting in SETTINGS.items()},
        provenance=table.provenance_line(),
    )
    (out / "README.md").write_text(text)
    draw(out / "figure.svg", rows)
    Console().print(summary(main_rows(rows), ("setting", "styles", "dim_c")), soft_wrap=True)


def main_rows(rows: Iterable[Row]) -> list[Row]:
    """The rows of our objective without ablations, in the settings inside the theorem."""
    return [r for r in rows if r["objective"] == "ours" and r["ablation"] == "none" and "-" not in short(r["setting"])]


def short(setting: str) -> str:
    """Both forms of setting c are inside: only A2 is violated, which is the question."""
    return "c" if setting == "c-scaled" else setting


def sections(rows: list[Row]) -> dict[str, str]:
    """The tables by title."""
    compared = {(row["styles"], row["dim_c"]) for row in rows if row["objective"] == "theorem"}
    other = [
        r
        for r in rows
        if r["ablation"] == "none" and short(r["setting"]) in ("a", "b", "c") and (r["styles"], r["dim_c"]) in compared
    ]
    ablated = [r for r in rows if r["ablation"] != "none"]
    outside = [r for r in rows if r["objective"] == "ours" and r["ablation"] == "none" and "-" in short(r["setting"])]
    return {
        "Inside the theorem (a, b), and with A2 violated (c)": summary(main_rows(rows), ("setting", "styles", "dim_c")),
        "Other objectives": summary(other, ("objective", "setting", "styles", "dim_c")),
        "Ablations": summary(ablated, ("objective", "ablation", "setting", "styles", "dim_c")),
        "One step outside A1 and A3": summary(outside, ("setting", "styles", "dim_c")),
    }


def summary(rows: list[Row], by: tuple[str, ...]) -> str:
    """Mean and worst seed of every measure, for each combination of ``by``; nothing without rows."""
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
    return markdown([*by, *MEASURES.values()], body) if body else ""


def cell(values: list[float], worst: Callable[[list[float]], float]) -> str:
    """Mean and worst seed."""
    return f"{sum(values) / len(values):.3f} ({worst(values):.2f})"


def claims(rows: list[Row]) -> list[tuple[str, str]]:
    """The paper's statements, and the numbers that bear on them."""
    found = []
    main = main_rows(rows)
    for name, words in (("a", "styles independent of content"), ("b", "perfect interventions")):
        for few in (True, False):
            mine = [r for r in main if r["setting"] == name and (r["styles"] <= 4) == few]
            styles = "up to 4 styles" if few else "8 styles"
            if mine:
                found.append((f"({name}) {words}, {styles}: content and each style are recovered", extremes(mine)))
    for name, words in (("c", "additive noise"), ("c-scaled", "noise scaled by content")):
        for few in (True, False):
            mine = [r for r in main if r["setting"] == name and (r["styles"] <= 4) == few]
            styles = "up to 4 styles" if few else "8 styles"
            if mine:
                exogenous, own = (average(mine, measure) for measure in ("exogenous", "diagonal"))
                claim = (
                    f"({name}) styles caused by content, imperfect interventions, {words}, {styles}: conjecture that "
                    "φ_m recovers the exogenous part of s_m instead of s_m"
                )
                found.append((claim, f"r² of the rank of s̃_m given c {exogenous:.3f}, of s̃_m itself {own:.3f}"))
    for ablation, words in (
        ("per-space entropy", "without joint entropy, the style spaces copy content (against LooC)"),
        ("no style entropy", "without entropy of style, the style spaces need not encode anything"),
        ("no content entropy", "(not in the theorem: a content entropy)"),
        ("all pairs", "pair l mod (M + 1), or all pairs of every image: equivalent"),
    ):
        for objective in ("ours", "simclr"):
            mine = [r for r in rows if r["objective"] == objective and r["ablation"] == ablation]
            if mine:
                variance = sum(sum(r["variance"][1:]) / r["styles"] for r in mine) / len(mine)
                found.append(
                    (words, f"{objective}, {ablation}: {extremes(mine)}; variance of the style spaces {variance:.2g}")
                )
    return found


def average(rows: list[Row], measure: str) -> float:
    """The mean over rows."""
    return float(sum(row[measure] for row in rows) / len(rows))


def extremes(rows: list[Row]) -> str:
    """Means, and the worst run, of content, own and leak."""
    return ", ".join(
        f"{MEASURES[m]} {average(rows, m):.3f} (worst run {(max if m == 'leak' else min)(r[m] for r in rows):.3f})"
        for m in ("content_r2", "diagonal", "leak")
    )


def draw(path: Path, rows: list[Row]) -> None:
    """Scores of our objective against the number of styles: a panel for each setting, a dot for each run."""
    from matplotlib.figure import Figure

    main = main_rows(rows)
    settings = list(dict.fromkeys(row["setting"] for row in main))
    figure = Figure(figsize=(3.2 * max(len(settings), 1) + 0.6, 3.2), layout="constrained")
    axes = figure.subplots(1, max(len(settings), 1), sharey=True, squeeze=False)[0]
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
    save_svg(figure, path)
