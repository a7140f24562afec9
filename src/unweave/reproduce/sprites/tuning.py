"""Which trial of each method and rule is best, by scores of validation images."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unweave.files import write_text
from unweave.report import number
from unweave.reproduce.results import Row, markdown
from unweave.reproduce.sprites.scores import FACTORS, STYLES
from unweave.reproduce.sprites.settings import Setting
from unweave.reproduce.sprites.views import color_groups
from unweave.settings import to_nested, to_yaml

TUNING_KEY = ("method", "rule", "strength", "views", "seed", "trial")
SHAPE = 0.98
"""Least accuracy of shape."""
MOST = {"color": 0.15, "scale": 0.22, "orientation": 0.05, "x": 0.05, "y": 0.05}
"""Largest scores of the styles; of color the groups of colors that jitter does not mix, + 0.05, where that is more."""


def limits(strength: str) -> dict[str, float]:
    """The largest score of each style at this strength."""
    return {**MOST, "color": max(MOST["color"], len(color_groups(strength)) / 10 + 0.05)}


def misses(row: Row) -> dict[str, float]:
    """By how much a row, or a mean of rows, misses each requirement; those it meets are left out."""
    most = limits(row["strength"])
    found = {"shape": SHAPE - row["shape"], **{style: row[style] - most[style] for style in STYLES}}
    return {name: value for name, value in found.items() if value > 0}


def loss(rows: list[Row]) -> tuple[float, float]:
    """What a trial is judged by: the mean over its rows of the sum of all misses; then the mean of the styles."""
    return (
        sum(sum(misses(row).values()) for row in rows) / len(rows),
        sum(row["style_mean"] for row in rows) / len(rows),
    )


def by_trial(rows: list[Row]) -> dict[tuple[str, str, int], list[Row]]:
    """The rows, strengths and seeds, of each trial."""
    found: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row["method"], row["rule"], row["trial"]), []).append(row)
    return found


def best_trials(rows: list[Row], counts: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], int]:
    """The trial with the smallest loss of every method and rule that has all of its trials, with the same rows each."""
    best = {}
    for method, rules in counts.items():
        for rule, trials in rules.items():
            mine = {trial: group for (m, r, trial), group in by_trial(rows).items() if (m, r) == (method, rule)}
            made = {frozenset((row["strength"], row["seed"]) for row in group) for group in mine.values()}
            if len(mine) == len(trials) and len(made) == 1:
                best[method, rule] = min(mine, key=lambda trial: loss(mine[trial]))
    return best


def write_tuning(
    out: Path,
    rows: list[Row],
    settings: Mapping[str, Mapping[str, Setting]],
    trials: Mapping[str, Mapping[str, tuple[Setting, ...]]],
) -> None:
    """``settings.yaml`` with the best trials in place of the present settings, and a table on the terminal."""
    best = best_trials(rows, trials)
    chosen = {method: dict(rules) for method, rules in settings.items()}
    for (method, rule), trial in best.items():
        chosen.setdefault(method, {})[rule] = trials[method][rule][trial]
    plain = {method: {rule: to_nested(value) for rule, value in rules.items()} for method, rules in chosen.items()}
    write_text(out / "settings.yaml", to_yaml(plain))
    print(trial_table(rows, best))


def trial_table(rows: list[Row], best: Mapping[tuple[str, str], int]) -> str:
    """Every trial: its loss, and its means over seeds at every strength."""
    body = []
    for (method, rule, trial), group in sorted(by_trial(rows).items()):
        cells = [
            " / ".join(number(sum(row[factor] for row in mine) / len(mine)) for mine in _by_strength(group).values())
            for factor in FACTORS
        ]
        mark = " (best)" if best.get((method, rule)) == trial else ""
        body.append([f"{method} {rule} {trial}{mark}", f"{loss(group)[0]:.3f}", "/".join(_by_strength(group)), *cells])
    return markdown(["trial", "loss", "strengths", *FACTORS], body)


def _by_strength(rows: list[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["strength"], []).append(row)
    return found
