"""Two processes train to the weights of one, and take up what the other has left."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from unweave.training import load_checkpoint

sys.path.insert(0, str(Path(__file__).parent))
import several

CHECKPOINT = "checkpoint.safetensors"


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    out = tmp_path_factory.mktemp("one")
    several.run(out)
    return load_checkpoint(out / CHECKPOINT)


def two_processes(out, *numbers: int) -> None:
    command = [sys.executable, several.__file__, str(out), "2", *map(str, numbers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


def assert_same_weights(path, one):
    two = load_checkpoint(path)
    assert two["step"] == one["step"] == several.STEPS
    for part in ("encoder", "objective"):
        for name, value in one[part].items():
            torch.testing.assert_close(two[part][name], value, atol=1e-5, rtol=1e-5, msg=f"{part}.{name}")


def test_two_processes_train_to_the_weights_of_one(tmp_path, one):
    two_processes(tmp_path)
    assert_same_weights(tmp_path / CHECKPOINT, one)
    lines = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [5, 10, 15, 20]


def test_two_processes_with_micro_batches_too(tmp_path, one):
    two_processes(tmp_path, 4)
    assert_same_weights(tmp_path / CHECKPOINT, one)


def test_stopped_on_two_by_sigterm_to_one_of_them_and_taken_up_by_one(tmp_path, one):
    two_processes(tmp_path, 0, 8)
    assert load_checkpoint(tmp_path / CHECKPOINT)["step"] == 10
    done, _ = several.run(tmp_path)
    assert done.resumed_from == 10
    assert_same_weights(tmp_path / CHECKPOINT, one)


def test_stopped_on_one_and_taken_up_by_two(tmp_path, one):
    done, _ = several.run(tmp_path, stop_after=8)
    assert done.stopped
    assert done.steps == load_checkpoint(tmp_path / CHECKPOINT)["step"] == 8
    two_processes(tmp_path)
    assert_same_weights(tmp_path / CHECKPOINT, one)


def test_a_run_that_is_not_told_to_stop_says_so(tmp_path):
    done, _ = several.run(tmp_path, steps=3)
    assert not done.stopped
    assert done.steps == 3
