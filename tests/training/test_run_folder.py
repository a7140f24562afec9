import os
import re
import time

import pytest
import torch

import small_runs
import unweave as uw
from processes import Child
from unweave.training import RunFolder, run_folder

CPU = torch.device("cpu")


def hold(path, ready):
    with RunFolder(path).locked(CPU):
        ready.touch()
        time.sleep(60)


def test_a_second_run_in_the_same_folder_is_refused_until_the_first_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "LOCK_TIMEOUT", 0.3)
    folder, ready = tmp_path / "run", tmp_path / "ready"
    folder.mkdir()
    other = Child(tmp_path / "child", hold, folder, ready)
    while not ready.exists():
        assert other.is_running()
        time.sleep(0.02)
    with pytest.raises(uw.UnweaveError, match="another run is writing"), RunFolder(folder).locked(CPU):
        pass
    other.process.kill()
    other.process.join()
    with RunFolder(folder).locked(CPU):
        assert os.listdir(folder) == []


def test_a_folder_can_be_locked_again(tmp_path):
    for _ in range(2):
        with RunFolder(tmp_path).locked(CPU):
            pass


def test_training_changes_nothing_in_a_folder_that_is_in_use(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "LOCK_TIMEOUT", 0.1)
    (tmp_path / "metrics.jsonl").write_text("another run's\n")
    with RunFolder(tmp_path).locked(CPU), pytest.raises(uw.UnweaveError, match="another run is writing"):
        small_runs.run(tmp_path)
    assert (tmp_path / "metrics.jsonl").read_text() == "another run's\n"


def test_partial_writes_of_a_killed_run_are_removed(tmp_path):
    (tmp_path / ".checkpoint.safetensors.123.tmp").touch()
    with RunFolder(tmp_path).locked(CPU):
        assert os.listdir(tmp_path) == []


def test_too_little_disk_is_found_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(uw.UnweaveError, match=r"checkpoints need .* choose another `out`"):
        small_runs.run(tmp_path)


def test_differences_are_named_by_their_place(tmp_path):
    old, new = {"a": {"b": 1, "c": [1, {"d": 2}]}}, {"a": {"b": 1, "c": [1, {"d": 3}]}}
    with pytest.raises(uw.UnweaveError, match=re.escape("`a.c[1].d` was 2, now 3")):
        RunFolder(tmp_path).require_same(old, new)
    RunFolder(tmp_path).require_same(old, old)
