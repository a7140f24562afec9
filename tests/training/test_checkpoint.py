import os
import signal
import time

import pytest
import torch
from safetensors.torch import save_file

from processes import Child
from unweave.errors import UnweaveError
from unweave.files import remove_partial_writes
from unweave.training import checkpoint, load_checkpoint, save_checkpoint


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.dtype == b.dtype
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b and type(a) is type(b)


def test_what_is_saved_is_loaded(tmp_path):
    weight = torch.randn(3, 4)
    state = {
        "step": 7,
        "optimizer": {"state": {0: {"exp_avg": weight.T, "step": torch.tensor(3.0)}}, "groups": [{"lr": None}]},
        "tied": [weight, weight],
        "flags": {"on": True, "name": "λ"},
        "random": torch.get_rng_state(),
    }  # fmt: skip
    save_checkpoint(tmp_path / "c.safetensors", state)
    assert same(load_checkpoint(tmp_path / "c.safetensors"), state)
    assert same(
        load_checkpoint(tmp_path / "c.safetensors", only=("step", "flags")), {k: state[k] for k in ("step", "flags")}
    )


def test_a_write_that_is_cut_short_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, {"step": 1})

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(path, {"step": 2})
    assert load_checkpoint(path)["step"] == 1


def write_forever(path):
    for step in range(10**6):
        save_checkpoint(path, {"step": step, "weights": torch.full((4_000_000,), float(step))})


def test_killed_in_the_middle_of_a_write_the_file_before_is_whole(tmp_path):
    path = tmp_path / "run" / "c.safetensors"
    path.parent.mkdir()
    process = Child(tmp_path / "child", write_forever, path)
    while not path.exists():
        time.sleep(0.01)
    until = time.monotonic() + 60
    while True:  # stopped in the act: a file that is not whole yet, beside the one that is
        assert time.monotonic() < until
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.01)
        if list(path.parent.glob(".c.safetensors.*.tmp")):
            break
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.process.join()
    state = load_checkpoint(path)
    assert (state["weights"] == state["step"]).all()
    remove_partial_writes(path)
    assert [p.name for p in path.parent.iterdir()] == ["c.safetensors"]


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, {"step": 1})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save_checkpoint(path, {"step": 2})
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]
    assert load_checkpoint(path)["step"] == 1


def test_files_that_are_not_checkpoints(tmp_path, monkeypatch):
    text, foreign, newer = (tmp_path / name for name in ("text", "foreign", "newer"))
    text.write_text("hello")
    save_file({"x": torch.zeros(1)}, foreign)
    with pytest.raises(UnweaveError, match="is damaged"):
        load_checkpoint(text)
    with pytest.raises(UnweaveError, match="not a checkpoint of unweave"):
        load_checkpoint(foreign)
    save_checkpoint(newer, {})
    monkeypatch.setattr(checkpoint, "FORMAT", 0)
    with pytest.raises(UnweaveError, match="update"):
        load_checkpoint(newer)
