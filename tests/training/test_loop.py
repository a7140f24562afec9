import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import unweave as uw
import unweave.augment as A
from unweave.errors import UnweaveError
from unweave.training import load_checkpoint, loop
from unweave.training.checkpoint import save_checkpoint

sys.path.insert(0, str(Path(__file__).parent))
import tiny

CHECKPOINT = "checkpoint.safetensors"


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums in the same order, whoever adds them
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("whole")
    done, _, _ = tiny.run(out)
    return done, load_checkpoint(out / CHECKPOINT)


def assert_same_end(one, two):
    assert one["step"] == two["step"]
    for part in ("encoder", "objective"):
        assert one[part].keys() == two[part].keys()
        for name, value in one[part].items():
            assert torch.equal(value, two[part][name]), f"{part}.{name}"
    for i, state in one["optimizer"]["state"].items():
        for name, value in state.items():
            assert torch.equal(value, two["optimizer"]["state"][i][name]), f"optimizer {i} {name}"


@pytest.mark.parametrize("patience", [0.3, 0.9])
def test_killed_and_started_again_it_ends_in_the_same_weights(tmp_path, uninterrupted, patience):
    command = [sys.executable, str(Path(tiny.__file__)), str(tmp_path), "0.1"]
    first = subprocess.Popen(command)
    while not (tmp_path / CHECKPOINT).exists():
        assert first.poll() is None, "the run ended before it could be killed"
        time.sleep(0.02)
    time.sleep(patience)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    reached = load_checkpoint(tmp_path / CHECKPOINT)["step"]
    assert 0 < reached < tiny.STEPS
    done, _, _ = tiny.run(tmp_path)
    assert done.resumed_from == reached
    assert_same_end(load_checkpoint(tmp_path / CHECKPOINT), uninterrupted[1])
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, tiny.STEPS + 1))
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)  # all calls together
    assert done.seconds == seconds[-1]


def test_a_finished_run_is_only_loaded(tmp_path):
    first, _, _ = tiny.run(tmp_path, steps=4)
    before = (tmp_path / CHECKPOINT).read_bytes()
    done, encoder, objective = tiny.run(tmp_path, steps=4)
    assert done.resumed_from == 4
    assert done.seconds == first.seconds > 0
    assert (tmp_path / CHECKPOINT).read_bytes() == before
    saved = load_checkpoint(tmp_path / CHECKPOINT)
    assert all(torch.equal(v, saved["encoder"][k]) for k, v in encoder.state_dict().items())
    assert torch.equal(objective.weights, saved["objective"]["weights"])


def test_moments_come_back_in_the_layout_of_their_weights(tmp_path, monkeypatch):
    """A fused step on a GPU refuses weights in channels-last order whose moments are not."""
    kept, make = [], loop.make_optimizer
    monkeypatch.setattr(loop, "make_optimizer", lambda *a, **k: kept.append(make(*a, **k)) or kept[-1])
    for _ in range(2):
        tiny.run(tmp_path, steps=4, channels_last=True)
    _, resumed = kept
    weights = [(p, state) for p, state in resumed.state.items() if p.ndim == 4]
    assert any(not p.is_contiguous() for p, _ in weights)
    for p, state in weights:
        assert state["exp_avg"].stride() == state["exp_avg_sq"].stride() == p.stride()


def test_metrics_tell_everything_about_every_space(uninterrupted):
    done, state = uninterrupted
    row = done.metrics[-1]
    for space in ("content", "color", "spatial"):
        assert {f"{space}/{m}" for m in ("weight", "invariance", "constraint", "variance", "effective_rank")} <= set(
            row
        )
    assert {"step", "loss", "lr", "joint_entropy", "content_entropy", "images_per_second"} <= set(row)
    assert done.metrics[0]["content/weight"] == 1
    assert state["objective"]["weights"][0] > 1


def test_every_image_is_seen_once_an_epoch():
    from unweave.training.order import batch_index

    config = uw.TrainConfig(batch_size=10, seed=3)
    epochs = [torch.cat([batch_index(step, 45, config) for step in range(4 * e, 4 * e + 4)]) for e in range(3)]
    for epoch in epochs:
        assert len(epoch.unique()) == 40
    assert not torch.equal(epochs[0], epochs[1])


@pytest.mark.parametrize(
    "settings", [{"optimizer": "lars"}, {"precision": "bf16-mixed"}, {"clip": 0.5}, {"channels_last": False}]
)
def test_other_settings_run(tmp_path, settings):
    done, _, _ = tiny.run(tmp_path, steps=3, **settings)
    assert all(torch.isfinite(torch.tensor(row["loss"])) for row in done.metrics)


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path, monkeypatch):
    views, encoder, objective, config = tiny.make(log_every=3)
    original = type(objective).forward
    calls = []

    def poisoned(self, *inputs):
        calls.append(1)
        terms = original(self, *inputs)
        return type(terms)(**{**vars(terms), "loss": terms.loss * float("nan")}) if len(calls) == 10 else terms

    monkeypatch.setattr(type(objective), "forward", poisoned)
    with pytest.raises(UnweaveError, match="at step 10;") as error:
        uw.train(uw.Sprites(16), views, encoder, objective, config, tmp_path, progress=False)
    assert "\n" not in str(error.value)
    assert load_checkpoint(tmp_path / CHECKPOINT)["step"] == 8


def test_mistakes_are_found_before_any_work(tmp_path):
    views, encoder, objective, config = tiny.make()
    other = uw.DisentangledLoss(uw.SimCLR(), spaces=("content", "smell"))
    cases = [
        ((uw.Sprites(16), views, encoder, other, config, tmp_path), "smell"),
        ((torch.zeros(3, 3, 8, 8), views, encoder, objective, config, tmp_path), "fewer than one batch"),
        ((uw.Sprites(16), views, encoder, objective, config, "/proc/nowhere"), "cannot write"),
        ((uw.Sprites(16), views, encoder, objective, tiny.make(batch_size=2)[3], tmp_path), "too small"),
    ]
    for arguments, words in cases:
        with pytest.raises(UnweaveError, match=words) as error:
            uw.train(*arguments, progress=False)
        assert "\n" not in str(error.value)
    assert not (tmp_path / CHECKPOINT).exists()


def test_a_folder_with_another_run_is_refused(tmp_path):
    tiny.run(tmp_path, steps=4)
    with pytest.raises(UnweaveError, match=r"lr was 0\.001, now 0\.002") as error:
        tiny.run(tmp_path, steps=4, lr=2e-3)
    assert "\n" not in str(error.value)


def test_a_folder_with_another_objective_or_other_views_is_refused(tmp_path):
    tiny.run(tmp_path, steps=4)
    views, encoder, objective, config = tiny.make(steps=4)
    other = uw.DisentangledLoss(uw.SimCLR(0.5), spaces=views.spaces, weights=objective.rule)
    with pytest.raises(UnweaveError, match="other objective"):
        uw.train(uw.Sprites(16), views, encoder, other, config, tmp_path, progress=False)
    moved = uw.Views({"color": [A.ColorJitter(hue=0.4)], "spatial": [A.RandomTranslation((0.2, 0.2))]})
    with pytest.raises(UnweaveError, match="other views"):
        uw.train(uw.Sprites(16), moved, encoder, objective, config, tmp_path, progress=False)


def test_a_folder_whose_spaces_have_other_ends_is_refused_and_one_from_before_ends_is_not(tmp_path):
    tiny.run(tmp_path, steps=4)
    views, encoder, objective, config = tiny.make(steps=4)
    encoder.ends = frozenset({"color"})
    with pytest.raises(UnweaveError, match=r"ends was \[\], now \['color'\]"):
        uw.train(uw.Sprites(16), views, encoder, objective, config, tmp_path, progress=False)
    state = load_checkpoint(tmp_path / CHECKPOINT)
    del state["config"]["ends"]
    save_checkpoint(tmp_path / CHECKPOINT, state)
    assert tiny.run(tmp_path, steps=4)[0].resumed_from == 4
