import os

import pytest
import torch
from safetensors.torch import save_file

from unweave.errors import UnweaveError
from unweave.training import checkpoint as ckpt
from unweave.training import load_checkpoint, save_checkpoint


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


def test_a_write_that_is_cut_short_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, {"step": 1})

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(path, {"step": 2})
    assert load_checkpoint(path)["step"] == 1


def test_files_that_are_no_checkpoint(tmp_path, monkeypatch):
    text, foreign, newer = (tmp_path / name for name in ("text", "foreign", "newer"))
    text.write_text("hello")
    save_file({"x": torch.zeros(1)}, foreign)
    with pytest.raises(UnweaveError, match="cannot be read"):
        load_checkpoint(text)
    with pytest.raises(UnweaveError, match="no checkpoint of unweave"):
        load_checkpoint(foreign)
    save_checkpoint(newer, {})
    monkeypatch.setattr(ckpt, "FORMAT", 0)
    with pytest.raises(UnweaveError, match="update"):
        load_checkpoint(newer)
