"""Baselines in the training loop: exact resumption, micro-batches, several processes, the command line."""

import pyarrow.parquet as pq
import pytest
import torch
import yaml

import small_runs
import unweave as uw
from processes import Child, torchrun_environment
from unweave.cli.main import main
from unweave.errors import UnweaveWarning
from unweave.training import load_checkpoint
from unweave.training.state import TrainingState

pytestmark = pytest.mark.usefixtures("one_thread")
CHECKPOINT = "checkpoint.safetensors"
METHODS = ("looc", "augself")
STATE = {"looc": {"teacher.projectors.color.0.weight", "queue_2", "updates"}, "augself": {"heads.color.0.weight"}}


def assert_same_end(one, two, **tolerance):
    """The same networks, teacher, queues, heads and moments; to the last bit unless a tolerance is given."""
    assert one["step"] == two["step"]
    tolerance = tolerance or {"atol": 0, "rtol": 0}
    for part in ("encoder", "objective"):
        assert one[part].keys() == two[part].keys()
        for name, value in one[part].items():
            torch.testing.assert_close(two[part][name], value, msg=f"{part}.{name}", **tolerance)


@pytest.mark.parametrize("method", METHODS)
def test_stopped_and_resumed_it_ends_with_the_same_state(tmp_path, method):
    small_runs.run(tmp_path / "whole", method=method, steps=12)
    stopped, _, _ = small_runs.run(tmp_path / "halves", method=method, steps=12, stop_after=7)
    assert stopped.stopped
    again, _, _ = small_runs.run(tmp_path / "halves", method=method, steps=12)
    assert again.resumed_from == stopped.steps < 12
    one, two = (load_checkpoint(tmp_path / name / CHECKPOINT) for name in ("whole", "halves"))
    assert STATE[method] <= set(one["objective"])
    assert_same_end(one, two)
    for i, state in one["optimizer"]["state"].items():
        for name, value in state.items():
            assert torch.equal(value, two["optimizer"]["state"][i][name])


@pytest.mark.parametrize("method", METHODS)
def test_micro_batches_train_to_the_same_state(tmp_path, method):
    settings = {"method": method, "norm": False, "steps": 6}
    small_runs.run(tmp_path / "whole", **settings)
    small_runs.run(tmp_path / "parts", micro_batch=5, **settings)
    one, two = (load_checkpoint(tmp_path / name / CHECKPOINT) for name in ("whole", "parts"))
    assert_same_end(one, two, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_two_processes_train_to_the_state_of_one(tmp_path, method):
    """Queue, teacher and heads included."""
    settings = {"method": method, "norm": False, "steps": 8, "log_every": 4, "checkpoint_every": 0}
    small_runs.run(tmp_path / "one", **settings)
    out = tmp_path / "two"
    children = [
        Child(tmp_path / f"child-{rank}", small_runs.run_in_child, out, settings, env=environment)
        for rank, environment in enumerate(torchrun_environment(2))
    ]
    for child in children:
        finished = child.wait()
        assert finished.returncode == 0, finished.stderr[-2000:]
    one, two = (load_checkpoint(tmp_path / name / CHECKPOINT) for name in ("one", "two"))
    assert_same_end(one, two, atol=1e-5, rtol=1e-5)


def test_the_model_of_a_run_has_the_encoder_alone(tmp_path):
    _, encoder, _ = small_runs.run(tmp_path, method="looc", norm=False, steps=2)
    weights = small_runs.weights(tmp_path)
    assert weights.keys() == encoder.state_dict().keys()
    assert "teacher" not in str(load_checkpoint(tmp_path / CHECKPOINT, only=("model",)))


SETTINGS = {"epochs": 2, "probe": "none", "queue_size": 24, "checkpoint_every": 3, "backbone": "test_resnet"}
SPACES = {"looc": ("content", "spatial", "appearance"), "augself": ("content",)}
SPACES["looc++"] = SPACES["looc"]


@pytest.mark.parametrize("method", SPACES)
def test_a_run_by_the_command_line_is_stopped_resumed_loaded_and_embedded(photo_folder, tmp_path, monkeypatch, method):
    def train(out):
        arguments = ["train", str(photo_folder), "--out", str(tmp_path / out), "--method", method]
        return main([*arguments, *small_runs.flags(**SETTINGS)])

    assert train("whole") == 0
    save = TrainingState.save

    def interrupted(self, step):
        save(self, step)
        if step == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TrainingState, "save", interrupted)
        assert train("halves") == 130
    assert train("halves") == 0
    one, two = (load_checkpoint(tmp_path / out / CHECKPOINT) for out in ("whole", "halves"))
    assert one["step"] == 10
    assert_same_end(one, two)
    assert yaml.safe_load((tmp_path / "whole" / "config.yaml").read_text())["objective"]["method"] == method

    model = uw.load(tmp_path / "whole")
    assert model.spaces == SPACES[method]
    photo = next(photo_folder.rglob("*.jpg"))
    features = model.embed(photo)
    assert set(features) == {"h", *SPACES[method]}
    _, width = uw.models.make_backbone("test_resnet")
    assert len(features["h"]) == width * (3 if method == "looc++" else 1)
    embeddings = tmp_path / "z.parquet"
    assert main(["embed", str(tmp_path / "whole"), str(photo_folder), "--out", str(embeddings), "--workers", "0"]) == 0
    table = pq.read_table(embeddings)
    assert table.num_rows == 60
    assert set(SPACES[method]) <= set(table.column_names)


def test_a_queue_that_is_long_for_the_images_is_reported(photo_folder, tmp_path):
    with pytest.warns(UnweaveWarning, match="`queue_size` 16384 is more than half of the 60 images"):
        small_runs.pretrain(photo_folder, tmp_path, method="looc", steps=1, probe="none")


@pytest.mark.parametrize("method", METHODS)
def test_a_trained_base_is_fine_tuned_in_two_phases(photo_folder, tmp_path, method):
    settings = {**SETTINGS, "method": method, "epochs": 1}
    small_runs.pretrain(photo_folder, tmp_path / "base", **settings)
    phases = {"init": str(tmp_path / "base"), "projector_epochs": 1}
    small_runs.pretrain(photo_folder, tmp_path / "tuned", **settings, **phases)
    base, projectors, tuned = (small_runs.weights(tmp_path / out) for out in ("base", "tuned/projectors", "tuned"))
    backbone = [name for name in base if name.startswith("backbone") and name.endswith("weight")]
    assert all(torch.equal(base[name], projectors[name]) for name in backbone)
    assert not any(torch.equal(base[name], tuned[name]) for name in backbone)


def test_looc_plus_plus_needs_a_resnet(photo_folder, tmp_path, capsys):
    arguments = ["train", str(photo_folder), "--out", str(tmp_path / "run"), "--method", "looc++"]
    assert main([*arguments, *small_runs.flags(epochs=1, probe="none")]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "use a ResNet as --backbone" in said


@pytest.mark.gpu
@pytest.mark.parametrize("method", SPACES)
def test_a_captured_run_has_the_losses_of_one_that_is_not(photo_folder, tmp_path, method):
    settings = {**SETTINGS, "method": method, "accelerator": "cuda", "epochs": 4}
    plain, captured = (
        small_runs.pretrain(photo_folder, tmp_path / str(graph), graph=graph, **settings) for graph in (False, True)
    )
    for a, b in zip(plain.metrics, captured.metrics, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=2e-2, abs=2e-2)
