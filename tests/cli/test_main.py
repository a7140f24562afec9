import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from processes import Child, unweave
from unweave import __version__
from unweave.cli.main import main

HEAVY = {"torch", "numpy", "matplotlib", "torchvision", "pyarrow", "PIL", "lightning_fabric"}


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["probe", "--help"], ["presets"]])
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
    assert report.count("<svg") == 3  # sensitivity, scores and curves
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


def test_help_lists_the_basic_flags_and_help_all_the_others_too(capsys):
    listed = {}
    for word in ("--help", "--help-all"):
        with pytest.raises(SystemExit):
            main(["train", word])
        listed[word] = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    assert {"--out", "--styles", "--epochs", "--backbone", "--quiet"} <= listed["--help"] < listed["--help-all"]
    assert "--lambda-warmup" in listed["--help-all"] - listed["--help"]


def test_warnings_of_unweave_are_one_line_and_those_of_others_are_not_hidden(capsys, monkeypatch):
    from unweave.cli import main as module
    from unweave.errors import UnweaveWarning

    def warn():
        warnings.warn("`max_bad` is odd", UnweaveWarning, stacklevel=1)
        warnings.warn("of another library", UserWarning, stacklevel=1)

    monkeypatch.setitem(module.VERBS, "presets", warn)
    assert main(["presets"]) == 0
    said = capsys.readouterr().err
    assert "unweave: --max-bad is odd\n" in said
    assert said.count("--max-bad") == 1


def test_any_error_of_the_operating_system_is_one_line(capsys, monkeypatch):
    from unweave.cli import main as module

    def fail():
        raise OSError(errno.EIO, "Input/output error", "a\tb")

    monkeypatch.setitem(module.VERBS, "presets", fail)
    assert main(["presets"]) == 2
    assert capsys.readouterr().err == "unweave: Input/output error: a\\tb\n"


def test_sigterm_ends_a_verb_with_its_cleaning_up(capsys, monkeypatch, tmp_path):
    from unweave.cli import main as module
    from unweave.files import atomic_write

    def write():
        with atomic_write(tmp_path / "file") as temporary:
            temporary.touch()
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)

    monkeypatch.setitem(module.VERBS, "presets", write)
    before = signal.getsignal(signal.SIGTERM)
    assert main(["presets"]) == 143
    assert signal.getsignal(signal.SIGTERM) is before
    assert not list(tmp_path.iterdir())
