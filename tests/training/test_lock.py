import os
import subprocess
import sys

import pytest
import tiny
import torch

import unweave as uw
from unweave.training import lock
from unweave.training.lock import only_run

CPU = torch.device("cpu")
HOLD = """
import sys, time, torch
from pathlib import Path
from unweave.training.lock import only_run
with only_run(Path(sys.argv[1]), torch.device("cpu")):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_run_in_the_same_folder_is_refused_until_the_first_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "PATIENCE", 0.5)
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "held\n"
    with pytest.raises(uw.UnweaveError, match="another run is writing"), only_run(tmp_path, CPU):
        pass
    other.kill()  # not by its own will
    other.wait()
    with only_run(tmp_path, CPU):
        assert os.listdir(tmp_path) == []


def test_one_after_the_other_is_no_trouble(tmp_path):
    for _ in range(2):
        with only_run(tmp_path, CPU):
            pass


def test_training_holds_the_folder_and_touches_nothing_that_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "PATIENCE", 0.1)
    (tmp_path / "metrics.jsonl").write_text("another run's\n")
    with only_run(tmp_path, CPU), pytest.raises(uw.UnweaveError, match="another run is writing"):
        tiny.run(tmp_path)
    assert (tmp_path / "metrics.jsonl").read_text() == "another run's\n"
