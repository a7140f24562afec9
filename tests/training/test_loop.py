import json
import os
import re
import signal
import time

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import small_runs
import unweave as uw
import unweave.augment as A
from processes import Child
from unweave.errors import UnweaveError
from unweave.training import config as training_config
from unweave.training import load_checkpoint
from unweave.training.sampling import ShuffledOrder

pytestmark = pytest.mark.usefixtures("one_thread")
CHECKPOINT = "checkpoint.safetensors"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("whole")
    done, _, _ = small_runs.run(out)
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


def test_killed_and_resumed_it_ends_with_the_same_weights(tmp_path, uninterrupted):
    child = Child(tmp_path / "child", small_runs.run_in_child, tmp_path, {"pause": 0.05})
    while not (tmp_path / CHECKPOINT).exists():
        assert child.is_running(), "the run ended before it could be killed"
        time.sleep(0.02)
    time.sleep(0.2)
    os.kill(child.pid, signal.SIGKILL)
    child.process.join()
    reached = load_checkpoint(tmp_path / CHECKPOINT)["step"]
    assert 0 < reached < small_runs.STEPS
    done, _, _ = small_runs.run(tmp_path)
    assert done.resumed_from == reached
    assert_same_end(load_checkpoint(tmp_path / CHECKPOINT), uninterrupted[1])
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, small_runs.STEPS + 1))
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)  # of all calls together
    assert done.seconds == seconds[-1]


def test_a_finished_run_is_only_loaded(tmp_path):
    first, _, _ = small_runs.run(tmp_path, steps=4)
    before = (tmp_path / CHECKPOINT).read_bytes()
    done, encoder, objective = small_runs.run(tmp_path, steps=4)
    assert done.resumed_from == 4
    assert done.seconds == first.seconds > 0
    assert (tmp_path / CHECKPOINT).read_bytes() == before
    saved = load_checkpoint(tmp_path / CHECKPOINT)
    assert all(torch.equal(v, saved["encoder"][k]) for k, v in encoder.state_dict().items())
    assert torch.equal(objective.lambdas, saved["objective"]["lambdas"])


def test_moments_are_loaded_in_the_layout_of_their_weights(tmp_path, monkeypatch):
    """A fused step on a GPU requires that moments have the strides of their parameters."""
    made, build = [], training_config.OptimConfig.build
    monkeypatch.setattr(training_config.OptimConfig, "build", lambda *a, **k: made.append(build(*a, **k)) or made[-1])
    for _ in range(2):
        small_runs.run(tmp_path, steps=4, channels_last=True)
    _, resumed = made
    weights = [(p, state) for p, state in resumed.state.items() if p.ndim == 4]
    assert any(not p.is_contiguous() for p, _ in weights)
    for p, state in weights:
        assert state["exp_avg"].stride() == state["exp_avg_sq"].stride() == p.stride()


def test_metrics_describe_every_space(uninterrupted):
    done, state = uninterrupted
    row = done.metrics[-1]
    measured = ("lambda", "invariance", "invariance_gap", "variance", "effective_rank")
    for space in ("content", "color", "spatial"):
        assert {f"{space}/{m}" for m in measured} <= set(row)
    assert {"step", "loss", "lr", "joint_entropy", "content_entropy", "images_per_second"} <= set(row)
    assert done.metrics[0]["content/lambda"] == 1
    assert state["objective"]["lambdas"][0] > 1


def test_every_image_is_seen_once_per_epoch():
    order = list(ShuffledOrder(images=45, global_batch=10, seed=3, first_step=0, last_step=12))
    epochs = [torch.cat(order[4 * e : 4 * e + 4]) for e in range(3)]
    for epoch in epochs:
        assert len(epoch.unique()) == 40
    assert not torch.equal(epochs[0], epochs[1])
    later = list(ShuffledOrder(images=45, global_batch=10, seed=3, first_step=7, last_step=12))
    assert all(torch.equal(a, b) for a, b in zip(order[7:], later, strict=True))


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "lars"},
        {"launch": uw.LaunchConfig(accelerator="cpu", precision="bf16-mixed")},
        {"clip": 0.5},
        {"channels_last": False},
    ],
    ids=["lars", "bf16", "clip", "contiguous"],
)
def test_other_settings_run(tmp_path, settings):
    done, _, _ = small_runs.run(tmp_path, steps=3, **settings)
    assert all(torch.isfinite(torch.tensor(row["loss"])) for row in done.metrics)


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path, monkeypatch):
    views = small_runs.views()
    encoder, objective = small_runs.encoder(views.spaces), small_runs.objective(views.spaces)
    original, calls = type(objective).forward, []

    def poisoned(self, *inputs):
        calls.append(1)
        terms = original(self, *inputs)
        return type(terms)(**{**vars(terms), "loss": terms.loss * float("nan")}) if len(calls) == 10 else terms

    monkeypatch.setattr(type(objective), "forward", poisoned)
    with pytest.raises(UnweaveError, match="at step 10;") as error:
        uw.train(uw.Sprites(16), views, encoder, objective, small_runs.config(log_every=3), tmp_path, progress=False)
    assert "\n" not in str(error.value)
    assert load_checkpoint(tmp_path / CHECKPOINT)["step"] == 8


def test_mistakes_are_found_before_any_work(tmp_path):
    views, sprites = small_runs.views(), uw.Sprites(16)
    encoder, objective = small_runs.encoder(views.spaces), small_runs.objective(views.spaces)
    config = small_runs.config()
    other = uw.DisentangledLoss(uw.SimCLR(), spaces=("content", "smell"))
    cases = [
        ((sprites, views, encoder, other, config, tmp_path), "smell"),
        ((torch.zeros(3, 3, 8, 8), views, encoder, objective, config, tmp_path), "`batch_size` 12 is larger"),
        ((sprites, views, encoder, objective, config, "/proc/nowhere"), "cannot write"),
        ((sprites, views, encoder, objective, small_runs.config(batch_size=2), tmp_path), "too small"),
    ]
    for arguments, words in cases:
        with pytest.raises(UnweaveError, match=words) as error:
            uw.train(*arguments, progress=False)
        assert "\n" not in str(error.value)
    assert not (tmp_path / CHECKPOINT).exists()


class Squeezed(uw.Views):
    """The same views by another class."""


def with_other_lr(parts):
    parts["config"] = small_runs.config(steps=4, lr=2e-3)


def with_other_temperature(parts):
    parts["objective"] = uw.DisentangledLoss(
        uw.SimCLR(0.5), spaces=parts["views"].spaces, lambda_rule=parts["objective"].lambda_rule
    )


def with_other_guard(parts):
    parts["objective"] = small_runs.objective(parts["views"].spaces, collapse_guard=uw.CollapseGuard(min_rank=2.0))


def with_other_jitter(parts):
    parts["views"] = small_runs.views(hue=0.4)


def with_all_pairs(parts):
    parts["views"] = uw.Views(
        {"color": [A.ColorJitter(hue=0.5)], "spatial": [A.RandomTranslation((0.2, 0.2))]}, all_pairs=True
    )


def with_a_redraw(parts):
    groups = {"color": [A.ColorJitter(hue=0.5)], "spatial": [A.RandomTranslation((0.2, 0.2))]}
    parts["views"] = uw.Views(groups, redraw=A.Redraw(lambda images, steps: steps[0][1]["hue"], tries=2))


def with_views_of_another_class(parts):
    parts["views"] = Squeezed({"color": [A.ColorJitter(hue=0.5)], "spatial": [A.RandomTranslation((0.2, 0.2))]})


def with_a_split_projector(parts):
    thirds = {"content": 0.4, "color": 0.3, "spatial": 0.3}
    parts["encoder"] = uw.Encoder(parts["encoder"].backbone, thirds, dim=12, hidden=8, split=thirds, feature_dim=16)


def with_a_nonnegative_space(parts):
    output = {space: "nonnegative" if space == "color" else "linear" for space in parts["views"].spaces}
    parts["encoder"] = uw.Encoder(parts["encoder"].backbone, output, dim=4, hidden=8, feature_dim=16, output=output)


@pytest.fixture(scope="module")
def four_steps(tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("four")
    small_runs.run(out, steps=4)
    return out


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (with_other_lr, "`training.optim.lr` was 0.001, now 0.002"),
        (with_other_temperature, "`objective.base.temperature` was 0.15, now 0.5"),
        (with_other_guard, "`objective.collapse_guard`"),
        (with_other_jitter, "`views.groups.color[0].hue` was 0.5, now 0.4"),
        (with_all_pairs, "`views.all_pairs` was False, now True"),
        (with_a_redraw, "`views.redraw`"),
        (with_views_of_another_class, "`views`"),
        (with_a_split_projector, "`encoder.split`"),
        (with_a_nonnegative_space, "`encoder.output`"),
    ],
)
def test_a_folder_with_a_run_that_differs_in_any_option_is_refused(four_steps, change, named):
    views = small_runs.views()
    parts = {
        "views": views,
        "encoder": small_runs.encoder(views.spaces),
        "objective": small_runs.objective(views.spaces),
        "config": small_runs.config(steps=4),
    }
    change(parts)
    with pytest.raises(UnweaveError, match=re.escape(named)) as error:
        uw.train(uw.Sprites(16), *parts.values(), four_steps, progress=False)
    assert "\n" not in str(error.value)


def test_settings_that_do_not_affect_what_is_learned_may_change(four_steps):
    launch = uw.LaunchConfig(accelerator="auto", devices=1)
    assert small_runs.run(four_steps, steps=4, log_every=3, micro_batch=6, launch=launch)[0].resumed_from == 4


def test_a_data_loader_trains_and_resumes_as_it_would_have_gone_on(tmp_path):
    images = torch.randint(0, 256, (30, 3, 16, 16), dtype=torch.uint8)
    views = small_runs.views()

    class Breaks(DataLoader):
        left = 10**9

        def __iter__(self):
            for batch in super().__iter__():
                self.left -= 1
                if self.left < 0:
                    raise OSError("stopped")
                yield batch

    def run(out, left=10**9):
        loader = Breaks(TensorDataset(images, torch.arange(30)), batch_size=12, shuffle=True)
        loader.left = left
        encoder, objective = small_runs.encoder(views.spaces), small_runs.objective(views.spaces)
        return uw.train(loader, views, encoder, objective, small_runs.config(steps=9), out, progress=False)

    whole = run(tmp_path / "whole")
    with pytest.raises(OSError, match="stopped"):
        run(tmp_path / "halves", left=6)
    again = run(tmp_path / "halves")
    assert again.resumed_from == 4
    assert [row["loss"] for row in again.metrics] == [row["loss"] for row in whole.metrics]


def test_epochs_are_passes_over_the_images(tmp_path):
    images = torch.randint(0, 256, (30, 3, 16, 16), dtype=torch.uint8)
    views = small_runs.views()
    encoder, objective = small_runs.encoder(views.spaces), small_runs.objective(views.spaces)
    config = small_runs.config(steps=None, epochs=1.5)
    assert uw.train(images, views, encoder, objective, config, tmp_path, progress=False).steps == 3
