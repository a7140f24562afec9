import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from processes import Child, unweave
from unweave import __version__
from unweave.cli.main import main

HEAVY = {"torch", "numpy", "matplotlib", "torchvision", "pyarrow", "PIL", "lightning_fabric"}


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["presets"]])
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys\nfrom unweave.cli.main import main\n"
        f"try: main({arguments})\nexcept SystemExit: pass\n"
        f"found = {HEAVY} & set(sys.modules)\nassert not found, found"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.fixture(scope="module")
def quick_demo(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "run"
    assert main(["demo", "--quick", "--seed", "3", "--out", str(out)]) == 0
    return out


def test_the_demo_writes_its_scores(quick_demo):
    spaces = json.loads((quick_demo / "spaces.json").read_text())
    assert spaces["spaces"] == ["h", "content", "color", "spatial"]
    assert spaces["factors"] == ["shape", "color", "x", "y"]
    for space in spaces["spaces"]:
        assert set(spaces["scores"][space]) == set(spaces["factors"]) == set(spaces["chance"])
        assert spaces["variance"][space] > 0
        assert spaces["effective_rank"][space] >= 1
    assert spaces["seconds"] > 0
    assert {"command", "commit", "hardware", "versions", "settings"} <= set(spaces)


def test_the_report_is_self_contained(quick_demo):
    report = (quick_demo / "report.html").read_text()
    assert report.count("<svg") == 2  # scores and curves
    assert report.count("<img") == 6  # three kinds of pairs, neighbours in three spaces
    assert not re.search(r"(src|href)=.?https?://", report)


def test_a_second_demo_in_the_same_folder_is_loaded_and_another_seed_refused(quick_demo, capsys):
    assert main(["demo", "--quick", "--seed", "3", "--out", str(quick_demo)]) == 0
    assert main(["demo", "--quick", "--seed", "4", "--out", str(quick_demo)]) == 2
    assert "--seed was 3, now 4" in capsys.readouterr().err


def test_an_unwritable_folder_is_one_line_without_a_traceback(tmp_path):
    done = unweave(tmp_path, ["demo", "--out", "/proc/nowhere"])
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("unweave: cannot write to the folder")


def test_a_wrong_flag_is_explained(tmp_path):
    done = unweave(tmp_path, ["demo", "--sede", "1"])
    assert done.returncode == 2
    assert "--seed" in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_lists_versions_devices_and_threads(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    for word in ("unweave", "torch", "pillow", "cores", "threads", "memory free", "libjpeg-turbo"):
        assert word in said


def print_presets_to_a_closed_pipe():
    read, write = os.pipe()
    os.close(read)
    sys.stdout = os.fdopen(write, "w", buffering=1)
    return main(["presets"])


def test_a_reader_that_ends_early_causes_no_traceback(tmp_path):
    done = Child(tmp_path, print_presets_to_a_closed_pipe).wait()
    assert "Traceback" not in done.stderr
    assert done.returncode == 141


def test_styles_are_listed_with_a_picture_of_each(tmp_path, photo_folder, capsys):
    from unweave.augment.config import STYLES

    for photo in ([], [str(next(photo_folder.rglob("*.jpg")))]):
        out = tmp_path / f"{len(photo)}.html"
        assert main(["styles", *photo, "--out", str(out)]) == 0
        assert out.read_text().count("<img") == len(STYLES)
    listed = capsys.readouterr().out
    assert all(name in listed for name in STYLES)
    assert main(["styles", str(tmp_path / "nothing.jpg"), "--out", str(out)]) == 2
    assert "no such file" in capsys.readouterr().err
