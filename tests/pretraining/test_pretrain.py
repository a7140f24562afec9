"""``unweave train`` on small folders of images."""

import json
import shutil
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml

import unweave as uw
from small_runs import photo_config, pretrain, weights
from unweave.errors import UnweaveError
from unweave.inference import export_model
from unweave.pretraining.config import from_yaml
from unweave.settings import read_yaml, with_settings
from unweave.training.state import TrainingState

CHECKPOINT = "checkpoint.safetensors"


@pytest.fixture(scope="module")
def base(photo_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("base") / "run"
    return out, pretrain(photo_folder, out, probe_every=1)


def assert_same_weights(one, two):
    for name, value in weights(one).items():
        assert torch.equal(value, weights(two)[name]), name


def test_a_run_leaves_its_settings_metrics_and_weights(base, photo_folder):
    out, done = base
    assert done.steps == 10
    assert {p.name for p in out.iterdir()} == {"config.yaml", CHECKPOINT, "metrics.jsonl"}
    saved = read_yaml(out / "config.yaml")
    assert from_yaml(saved, uw.PretrainConfig(), "config.yaml") == photo_config(probe_every=1, report=False)
    assert saved["source"] == str(photo_folder)
    assert set(weights(out)) == set(photo_config().encoder.build(photo_config().views.spaces).state_dict())


def test_every_space_is_evaluated_where_there_are_labels(base):
    rows = base[1].metrics
    scored = [row["step"] for row in rows if "knn/h" in row]
    assert scored == [5, 10]
    assert {f"knn/{s}" for s in ("h", "content", "spatial", "appearance")} <= set(rows[-1])
    assert all(0 <= rows[-1][f"knn/{s}"] <= 1 for s in ("h", "content"))


def test_without_labels_nothing_is_evaluated(photo_folder, tmp_path):
    flat = tmp_path / "flat"
    shutil.copytree(photo_folder / "old", flat)
    done = pretrain(flat, tmp_path / "run", epochs=1)
    assert not [key for row in done.metrics for key in row if key.startswith("knn")]


def test_an_evaluation_does_not_change_what_is_learned(photo_folder, base, tmp_path):
    pretrain(photo_folder, tmp_path, probe="none")
    assert_same_weights(base[0], tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("finetune", [False, True])
def test_a_captured_run_is_evaluated_and_fine_tuned_like_any_other(photo_folder, tmp_path, finetune):
    settings = {"accelerator": "cuda", "epochs": 4, "probe_every": 1}
    if finetune:
        pretrain(photo_folder, tmp_path / "base", **settings)
        settings |= {"init": str(tmp_path / "base"), "projector_epochs": 2}
    plain, captured = (
        pretrain(photo_folder, tmp_path / str(graph), graph=graph, **settings) for graph in (False, True)
    )
    for a, b in zip(plain.metrics, captured.metrics, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=2e-2, abs=2e-2)
    assert "knn/h" in captured.metrics[-1]


def test_λ_follows_a_schedule_over_both_phases_of_fine_tuning(photo_folder, base, tmp_path):
    settings = {"init": str(base[0]), "projector_epochs": 2, "epochs": 3, "lambda_warmup": 0.5, "log_every": 1}
    pretrain(photo_folder, tmp_path, probe="none", **settings)
    of_phase = [tmp_path / "projectors" / "metrics.jsonl", tmp_path / "metrics.jsonl"]
    lambdas = [json.loads(line)["content/lambda"] for path in of_phase for line in path.read_text().splitlines()]
    steps = len(lambdas)
    changes = [step for step in range(1, steps) if lambdas[step] != lambdas[step - 1]]
    # A line has the λ with which its step was taken, so that a change at update u is seen at step u + 1.
    assert changes == [*range(steps // 2 + 1, steps * 4 // 5 + 1)]
    assert steps // 2 > len(of_phase[0].read_text().splitlines())  # the window begins in the second phase


@pytest.mark.parametrize("cache", ["ram", "none"])
def test_the_cache_changes_nothing(photo_folder, base, tmp_path, cache):
    pretrain(photo_folder, tmp_path, cache=cache, workers=2 if cache == "none" else 0)
    assert_same_weights(base[0], tmp_path)


def test_parquet_gives_what_a_folder_gives(photo_folder, base, tmp_path):
    files = sorted(str(p.relative_to(photo_folder)) for p in photo_folder.rglob("*.jpg"))
    rows = [{"bytes": (photo_folder / name).read_bytes(), "path": name} for name in files]
    pq.write_table(
        pa.table({"image": rows, "label": [int(n.startswith("old")) for n in files]}), tmp_path / "x.parquet"
    )
    done = pretrain(tmp_path / "x.parquet", tmp_path / "run", probe_every=1)
    assert_same_weights(base[0], tmp_path / "run")
    assert "knn/h" in done.metrics[-1]


@pytest.mark.parametrize("method", ["simclr", "vicreg", "barlow-twins"])
@pytest.mark.parametrize("styles", [("spatial", "appearance"), ("none",)])
def test_every_method_with_and_without_styles(photo_folder, tmp_path, method, styles):
    done = pretrain(photo_folder, tmp_path, method=method, styles=styles, epochs=1, probe="none")
    row = done.metrics[-1]
    assert torch.isfinite(torch.tensor(row["loss"]))
    assert ("spatial/lambda" in row) == ("spatial" in styles)


def test_without_styles_the_transforms_are_the_same_and_nothing_is_shared():
    with_styles, without = (photo_config(**styles).views.build() for styles in ({}, {"styles": ("none",)}))
    images = torch.randint(0, 256, (6, 3, 40, 40), dtype=torch.uint8)
    a, b = (views(images, generator=torch.Generator().manual_seed(3)) for views in (with_styles, without))
    assert a.a.shape == b.a.shape == (6, 3, 32, 32)
    assert b.shared.tolist() == [0] * 6
    assert [step.a.draws for step in with_styles._steps] == [step.a.draws for step in without._steps]


def test_the_warm_up_of_lambda_is_a_fraction_of_the_run():
    config = photo_config(epochs=100, batch_size=2048, lambda_warmup=0.1)
    assert config.objective.build(("content", "x"), config.training.total_steps(600 * 2048)).lambda_rule.warmup == 6000


def test_bad_images_are_listed_and_too_many_stop_the_run(photo_folder, tmp_path):
    spoiled = tmp_path / "spoiled"
    shutil.copytree(photo_folder, spoiled)
    (spoiled / "old" / "zero.jpg").touch()
    (spoiled / "notes.txt").write_text("not an image")
    with pytest.raises(UnweaveError, match=r"1 of 61 images cannot be read, more than `max_bad` 0\.01"):
        pretrain(spoiled, tmp_path / "strict")
    done = pretrain(spoiled, tmp_path / "run", max_bad=0.05, epochs=1)
    assert done.steps == 5
    [listed] = (tmp_path / "run" / "unreadable.jsonl").read_text().splitlines()
    assert json.loads(listed) == {"index": 60, "name": "old/zero.jpg", "reason": "the file is empty"}


def test_a_finished_run_says_so(photo_folder, base, capfd):
    out, _ = base
    uw.pretrain(photo_folder, out, config=photo_config(probe_every=1))
    assert "finished before, after 10 steps" in capfd.readouterr().err


def test_a_finished_run_is_only_loaded_and_another_is_refused(photo_folder, base):
    out, _ = base
    before = (out / "config.yaml").read_text()
    assert pretrain(photo_folder, out, probe_every=1, workers=1, log_every=7).resumed_from == 10
    with pytest.raises(UnweaveError, match=r"`training\.optim\.lr` was 0\.001, now 0\.002") as error:
        pretrain(photo_folder, out, lr=2e-3)
    assert "\n" not in str(error.value)
    assert yaml.safe_load((out / "config.yaml").read_text())["training"] == {
        **yaml.safe_load(before)["training"],
        "log_every": 7,
    }
    with pytest.raises(UnweaveError, match="`DATA` was"):
        pretrain(photo_folder / "old", out, batch_size=12, probe_every=1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"batch_size": 64}, "`batch_size` 64 is larger than the number of images"), ({"cache": "gpu"}, "`cache` gpu"),
     ({"backbone": "resnet1"}, "resnet18"), ({"init": "nowhere"}, "`init` nowhere"),
     ({"probe_data": "nowhere"}, "nowhere"), ({"batch_size": 2}, "too small"), ({"epohcs": 2}, "training.epochs"),
     ({"epochs": 0}, "`epochs` is 0"), ({"lr": "fast"}, "`lr` must be a number, not 'fast'")],
)  # fmt: skip
def test_mistakes_are_one_line(photo_folder, tmp_path, settings, words):
    with pytest.raises(UnweaveError, match=words) as error:
        pretrain(photo_folder, tmp_path, **settings)
    assert "\n" not in str(error.value)


def test_a_folder_removed_during_the_run_is_one_line_and_loses_nothing(photo_folder, tmp_path, monkeypatch):
    photos = tmp_path / "photos"
    shutil.copytree(photo_folder, photos)
    from unweave.data import loading

    monkeypatch.setattr(loading, "CHUNK", 4)
    monkeypatch.setattr(loading, "CHUNK_BYTES", 0)
    monkeypatch.setattr(loading, "AHEAD", 1)
    original = torch.optim.AdamW.step

    def step(self, *arguments):
        shutil.rmtree(photos, ignore_errors=True)
        return original(self, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    with pytest.raises(UnweaveError, match="was removed; restore it"):
        pretrain(photos, tmp_path / "run", cache="none", probe="none", checkpoint_minutes=0, epochs=20)
    monkeypatch.undo()
    shutil.copytree(photo_folder, photos)
    assert pretrain(photos, tmp_path / "run", cache="none", probe="none", epochs=20, steps=None).resumed_from >= 1


def test_tensorboard_has_the_metrics(photo_folder, tmp_path):
    pretrain(photo_folder, tmp_path, epochs=1, tensorboard=True, probe="none")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [e.value for e in events.Scalars("spatial/lambda")] == pytest.approx([r["spatial/lambda"] for r in rows])


def test_checkpoints_are_written_by_the_clock(photo_folder, tmp_path, monkeypatch):
    saved, now = [], [0.0]
    monkeypatch.setattr(TrainingState, "save", lambda self, step: saved.append(step))
    monkeypatch.setattr(time, "monotonic", lambda: now.__setitem__(0, now[0] + 25) or now[0])
    pretrain(photo_folder, tmp_path, probe="none", checkpoint_minutes=1)
    assert saved[-1] == 10
    assert 2 <= len(saved) <= 5


def test_a_run_with_chosen_styles_is_resumed_loaded_and_embedded(photo_folder, tmp_path):
    styles = {"styles": ("blur", "color", "rotation"), "epochs": 1, "probe": "none"}
    done = pretrain(photo_folder, tmp_path / "run", **styles)
    assert {"content/lambda", "rotation/lambda", "color/lambda", "blur/lambda"} <= set(done.metrics[-1])
    assert pretrain(photo_folder, tmp_path / "run", **styles).resumed_from == done.steps
    model = uw.load(tmp_path / "run")
    assert model.spaces == ("content", "rotation", "color", "blur")
    assert set(model.embed(next(photo_folder.rglob("*.jpg")))) == {"h", *model.spaces}
    with pytest.raises(UnweaveError, match=r"`views\.styles`"):
        pretrain(photo_folder, tmp_path / "run", **{**styles, "styles": ("blur", "color")})


GROUPS = """
views:
  size: 32
  groups:
    hue:
      - {ColorJitter: {hue: 0.5, p: 0.9}}
    place:
      - {RandomResizedCrop: {scale: [0.3, 1.0]}}
      - RandomHorizontalFlip
    soft:
      first: [{GaussianBlur: {kernel_size: 3, p: 1.0}}]
      second: [{GaussianBlur: {kernel_size: 3, p: 0.1}}]
  ungrouped:
    - {RandomGrayscale: {p: 0.1}}
"""


def test_groups_of_ones_own_are_described_in_yaml_and_kept_by_the_run(photo_folder, tmp_path):
    config = from_yaml(yaml.safe_load(GROUPS), photo_config(epochs=1, probe="none"), "c.yaml")
    views = config.views.build()
    assert views.spaces == ("content", "hue", "place", "soft") == config.views.spaces
    assert [type(t).__name__ for t in views.transforms("place")] == ["RandomResizedCrop", "RandomHorizontalFlip"]
    assert views.transforms("place")[0].size == (32, 32)
    run = uw.pretrain(photo_folder, tmp_path / "run", config=config, progress=False)
    assert run.steps == 5
    saved = from_yaml(read_yaml(tmp_path / "run" / "config.yaml"), uw.PretrainConfig(), "config.yaml")
    assert saved == config
    assert uw.load(tmp_path / "run").spaces == views.spaces
    export_model(uw.load(tmp_path / "run"), tmp_path / "export", onnx=False)
    assert uw.load(tmp_path / "export").spaces == views.spaces


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"x": [{"ColorJiter": {}}]}, "ColorJiter.*is not a transform; there are"),
        ({"x": [{"ColorJitter": {"hu": 1}}]}, "ColorJitter takes brightness"),
        ({"x": [{"ColorJitter": {"hue": 7}}]}, "views.groups.x: ColorJitter: `hue`"),
        ({"x": [{"RandomRotation": {}}]}, "views.groups.x: RandomRotation"),
        ({"x": "RandomHorizontalFlip"}, "must be a list"),
        ({"content": ["RandomHorizontalFlip"]}, "content"),
    ],
)
def test_mistakes_in_a_described_group_are_one_line(groups, words):
    config = from_yaml({"views": {"groups": groups}}, photo_config(), "c.yaml")
    with pytest.raises(UnweaveError, match=words) as error:
        config.views.build()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("styles", "words"),
    [
        (("colour",), "no 'colour'; there are spatial"),
        (("color", "appearance"), "share the transform"),
        (("blur", "blur"), "share"),
    ],
)
def test_styles_that_do_not_exist_or_overlap_are_refused(styles, words):
    with pytest.raises(UnweaveError, match=words):
        photo_config(styles=styles)


@pytest.mark.parametrize(
    ("channels", "styles"), [(1, ("spatial", "appearance")), (4, ("spatial", "blur")), (5, ("crop", "blur"))]
)
def test_images_with_any_number_of_channels_train_load_and_embed(photo_folder, tmp_path, channels, styles):
    folder = photo_folder
    if channels == 5:
        folder = tmp_path / "arrays"
        folder.mkdir()
        for i in range(14):
            np.save(folder / f"{i}.npy", np.random.default_rng(i).integers(0, 256, (36, 40, 5), dtype=np.uint8))
    settings = {"channels": channels, "styles": styles, "epochs": 1, "probe": "none", "backbone": "test_resnet"}
    pretrain(folder, tmp_path / "run", **settings)
    saved = read_yaml(tmp_path / "run" / "config.yaml")["views"]
    assert len(saved["mean"]) == len(saved["std"]) == channels
    assert pretrain(folder, tmp_path / "run", **settings).resumed_from > 0
    model = uw.load(tmp_path / "run")
    assert model.input_shape == (channels, 32, 32)
    file = sorted(p for p in folder.rglob("*") if p.is_file())[0]
    assert model.embed(file)["content"].shape == (8,)
    with pytest.raises(UnweaveError, match="gray or RGB"):
        photo_config(channels=5, styles="color", mean=[0.5] * 5, std=[0.2] * 5).views.build(5)


def test_given_statistics_are_used_and_must_fit():
    config = photo_config(mean=(0.5,), std=(0.1,))
    [normalize] = config.views.build(1).preparation
    assert (normalize.mean, normalize.std) == ((0.5,), (0.1,))
    with pytest.raises(UnweaveError, match="1 numbers for images with 3"):
        config.views.build(3)
    with pytest.raises(UnweaveError, match="as many numbers"):
        photo_config(mean=(0.5,))


def test_the_batch_follows_the_number_of_images_and_a_stopped_run_resumes_with_it(photo_folder, tmp_path):
    settings = {"batch_size": 0, "steps": 2, "report": False, "probe": "none", "held_out": 0.0}
    pretrain(photo_folder, tmp_path / "run", **settings)
    images = len(list(photo_folder.rglob("*.*")))
    assert read_yaml(tmp_path / "run" / "config.yaml")["training"]["batch_size"] == min(images, 64)
    assert pretrain(photo_folder, tmp_path / "run", **settings).resumed_from == 2


def test_the_stock_settings_apply_independence_to_appearance_and_not_to_position():
    def weights_of(**views):
        config = with_settings(uw.PretrainConfig(), views)
        objective = config.build_objective(steps=100)
        return dict(zip(objective.spaces, objective.independence_weights.tolist(), strict=True))

    full = uw.PretrainConfig().objective.independence
    assert full > 0
    assert weights_of() == {"content": 0.0, "spatial": 0.0, "appearance": full}
    assert weights_of(styles=("crop", "color", "blur")) == {"content": 0.0, "crop": 0.0, "color": full, "blur": full}
    groups = {"hue": [{"ColorJitter": {"hue": 0.5}}], "place": ["RandomHorizontalFlip"]}
    assert weights_of(groups=groups) == {"content": 0.0, "hue": full, "place": 0.0}
    assert weights_of(styles=("none",)) == {"content": 0.0}
