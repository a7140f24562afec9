"""Two processes train to the weights of one, and resume what the other has left."""

import json

import pytest
import torch

import small_runs
from processes import Child, torchrun_environment
from unweave.training import load_checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")
CHECKPOINT = "checkpoint.safetensors"
SETTINGS = {"norm": False, "steps": 20, "log_every": 5, "checkpoint_every": 0}


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("one")
    small_runs.run(out, **SETTINGS)
    return load_checkpoint(out / CHECKPOINT)


def two_processes(out, first=None, **settings):
    """A run of two processes; ``first`` are settings of the first process alone."""
    settings = [{**SETTINGS, **settings, **(first or {})}, {**SETTINGS, **settings}]
    children = [
        Child(out / f"child-{rank}", small_runs.run_in_child, out, settings[rank], env=environment)
        for rank, environment in enumerate(torchrun_environment(2))
    ]
    for child in children:
        done = child.wait()
        assert done.returncode == 0, done.stderr[-2000:]


def assert_same_weights(path, one):
    two = load_checkpoint(path)
    assert two["step"] == one["step"] == SETTINGS["steps"]
    for part in ("encoder", "objective"):
        for name, value in one[part].items():
            torch.testing.assert_close(two[part][name], value, atol=1e-5, rtol=1e-5, msg=f"{part}.{name}")


@pytest.mark.parametrize("micro_batch", [None, 4])
def test_two_processes_train_to_the_weights_of_one(tmp_path, one, micro_batch):
    two_processes(tmp_path, micro_batch=micro_batch)
    assert_same_weights(tmp_path / CHECKPOINT, one)
    lines = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [5, 10, 15, 20]


def test_stopped_on_two_by_a_signal_to_one_of_them_and_resumed_by_one(tmp_path, one):
    two_processes(tmp_path, first={"stop_after": 8})
    assert load_checkpoint(tmp_path / CHECKPOINT)["step"] == 10
    done, _, _ = small_runs.run(tmp_path, **SETTINGS)
    assert done.resumed_from == 10
    assert_same_weights(tmp_path / CHECKPOINT, one)


def test_stopped_on_one_and_resumed_by_two(tmp_path, one):
    done, _, _ = small_runs.run(tmp_path, stop_after=8, **SETTINGS)
    assert done.stopped
    assert done.steps == load_checkpoint(tmp_path / CHECKPOINT)["step"] == 8
    two_processes(tmp_path)
    assert_same_weights(tmp_path / CHECKPOINT, one)
