import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unweave import __version__
from unweave.cli import main


def test_help_comes_at_once_and_imports_nothing_heavy():
    watch = "import sys, unweave.cli; assert not {'torch', 'numpy', 'matplotlib', 'torchvision'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", watch], check=True)
    times = []
    for _ in range(3):
        started = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "unweave.cli", "--help"], capture_output=True, text=True)
        times.append(time.perf_counter() - started)
    assert done.returncode == 0
    assert "demo" in done.stdout
    assert min(times) < 0.5


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.fixture(scope="module")
def quick_demo(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "run"
    assert main(["demo", "--quick", "--seed", "3", "--out", str(out)]) == 0
    return out


def test_the_demo_writes_what_it_promises(quick_demo):
    spaces = json.loads((quick_demo / "spaces.json").read_text())
    assert spaces["spaces"] == ["h", "content", "color", "spatial"]
    assert spaces["factors"] == ["shape", "color", "x", "y"]
    for space in spaces["spaces"]:
        assert set(spaces["scores"][space]) == set(spaces["factors"]) == set(spaces["chance"])
        assert spaces["variance"][space] > 0
        assert spaces["effective_rank"][space] >= 1
    assert spaces["seconds"] > 0


def test_the_report_stands_alone(quick_demo):
    report = (quick_demo / "report.html").read_text()
    assert report.count("<svg") == 1
    assert report.count("data:image/png;base64,") == 6  # three kinds of pairs, neighbours in three spaces
    assert "http://" not in report.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )
    for heading in ("What each space tells", "Nearest neighbours", "The pairs it learned from", "How it went"):
        assert heading in report


def test_a_second_run_in_the_same_folder_is_loaded_and_another_seed_refused(quick_demo, capsys):
    assert main(["demo", "--quick", "--seed", "3", "--out", str(quick_demo)]) == 0
    assert main(["demo", "--quick", "--seed", "4", "--out", str(quick_demo)]) == 2
    assert "seed was 3, now 4" in capsys.readouterr().err


def test_an_unwritable_folder_is_one_line_without_a_traceback():
    done = subprocess.run(
        [sys.executable, "-m", "unweave.cli", "demo", "--out", "/proc/nowhere"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("unweave: cannot write to the folder")


def test_a_wrong_flag_is_explained():
    done = subprocess.run([sys.executable, "-m", "unweave.cli", "demo", "--sede", "1"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--seed" in done.stderr
    assert "Traceback" not in done.stderr
