"""What people read is true: code in the README and the guides runs, and numbers are those of the results they cite."""

import itertools
import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import scipy.stats

from claims import CLAIMS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDES = [page for page in PAGES if "lab-notes" not in page.parts and "results" not in page.parts]
NEEDS_A_RUN = ("uw.load(", "uw.pretrain(", "photos.parquet")
"""Code on a run or on photographs of one's own, which tests of training and inference cover."""


def run_script(path, *arguments, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    runpy.run_path(str(path), run_name="__main__")


def test_the_plain_loop_runs(monkeypatch, capsys):
    run_script(ROOT / "examples" / "plain_loop.py", "3", monkeypatch=monkeypatch)
    assert "spatial/invariance_gap" in capsys.readouterr().out


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_on_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        if "tempfile" in block or not any(word in block for word in NEEDS_A_RUN):
            exec(compile(block, str(page), "exec"), names)


def commands(page):
    """The ``unweave`` commands on a page, with the lines that a backslash continues."""
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if match := re.search(r"(?:^|&& |\| )\s*(?:uv run )?unweave (.*?)(?:\s+#.*)?$", line):
                yield match[1].split()


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_flags_on_a_page_exist(page, capsys):
    from unweave.cli.main import main

    for words in commands(page):
        verb = words[:2] if words[0] == "reproduce" else words[:1]
        with pytest.raises(SystemExit):
            main([*verb, "--help-all"])
        listed = capsys.readouterr().out
        for flag in (word.split("=")[0] for word in words if word.startswith("--")):
            assert re.search(rf"{flag}\b", listed), f"{' '.join(words)}: {flag}"


@pytest.mark.parametrize(
    "name",
    [
        "views.py",
        "step.py",
        "training.py",
        "probes.py",
        "embed.py",
        "explore.py",
        "search.py",
        "retrieval.py",
        "lambda_rules.py",
        "cifar.py",
    ],
)
def test_benchmarks_run(name, tmp_path, monkeypatch):
    run_script(ROOT / "benchmarks" / name, "--quick", "--out", str(tmp_path / "out.json"), monkeypatch=monkeypatch)
    assert (tmp_path / "out.json").stat().st_size > 100


def test_random_faults_lose_nothing(tmp_path, monkeypatch):
    out = tmp_path / "out.json"
    run_script(ROOT / "benchmarks" / "faults.py", "--quick", "--out", str(out), monkeypatch=monkeypatch)
    for row in json.loads(out.read_text())["rows"]:
        assert row["trials"] > 0
        assert row["failures"] == 0, row


def test_an_interrupted_benchmark_resumes_with_the_next_case(tmp_path, monkeypatch):
    out = tmp_path / "out.json"
    measured = {"name": "quick, cached", "lightly_simclr_images_per_second": 5.0}
    out.write_text(json.dumps({"rows": [measured], "seconds": 1000.0}))
    run_script(ROOT / "benchmarks" / "training.py", "--quick", "--out", str(out), monkeypatch=monkeypatch)
    found = json.loads(out.read_text())
    assert found["seconds"] > 1000
    first, second = found["rows"]
    assert first == measured
    assert (second["name"], second["lightly_simclr_images_per_second"]) == ("quick", 5.0)


def mean(values):
    return sum(values := list(values)) / len(values)


def half_width(values):
    """Of the 95% interval of a mean, by Student's t."""
    values = list(values)
    low, _ = scipy.stats.t.interval(0.95, len(values) - 1, loc=mean(values), scale=scipy.stats.sem(values))
    return mean(values) - low


def evaluate(file, expression):
    data = json.loads((ROOT / file).read_text())
    names = {"data": data, "rows": data.get("rows", []), "mean": mean, "half_width": half_width}
    names["combinations"] = itertools.combinations
    safe = {"min": min, "max": max, "sum": sum, "len": len, "abs": abs, "all": all, "range": range, "set": set}
    return eval(expression, {"__builtins__": safe, **names})


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.text[:60])
def test_a_claim_has_the_numbers_of_its_results(claim):
    """The text of the claim, with the numbers computed from the results, is on the page."""
    values = [evaluate(file, expression) for file, expression in claim.numbers]
    expected = " ".join(claim.text.format(*values).split())
    page = " ".join((ROOT / claim.page).read_text().split())
    assert expected in page, expected
