"""``unweave train`` on small folders of images."""

import json
import shutil
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from tiny_pretrain import TINY, run, weights

from unweave.errors import UnweaveError
from unweave.training.pretrain import pretrain, read_config
from unweave.training.pretrain_config import PretrainConfig
from unweave.training.recipe import make_encoder, make_objective, make_views


@pytest.fixture(scope="module")
def base(photo_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("base") / "run"
    return out, run(photo_folder, out, probe_every=1)


def test_a_run_leaves_its_configuration_metrics_and_weights(base, photo_folder):
    out, done = base
    assert done.steps == 10
    assert {p.name for p in out.iterdir()} == {"config.yaml", "checkpoint.safetensors", "metrics.jsonl"}
    assert read_config(out / "config.yaml") == PretrainConfig(**{**TINY, "probe_every": 1})
    assert yaml.safe_load((out / "config.yaml").read_text())["data"] == str(photo_folder)
    assert set(weights(out)) == set(make_encoder(PretrainConfig(**TINY)).state_dict())


def test_the_online_probe_scores_every_space_where_there_are_labels(base):
    rows = base[1].metrics
    scored = [row["step"] for row in rows if "knn/h" in row]
    assert scored == [5, 10]
    assert {f"knn/{s}" for s in ("h", "content", "spatial", "appearance")} <= set(rows[-1])
    assert all(0 <= rows[-1][f"knn/{s}"] <= 1 for s in ("h", "content"))


def test_where_there_are_no_labels_nothing_is_probed(photo_folder, tmp_path):
    flat = tmp_path / "flat"
    shutil.copytree(photo_folder / "old", flat)
    done = run(flat, tmp_path / "run", epochs=1)
    assert not [key for row in done.metrics for key in row if key.startswith("knn")]


def test_a_probe_does_not_change_what_is_learned(photo_folder, base, tmp_path):
    run(photo_folder, tmp_path, probe="none")
    for name, value in weights(base[0]).items():
        assert torch.equal(value, weights(tmp_path)[name]), name


@pytest.mark.gpu
@pytest.mark.parametrize("finetune", [False, True])
def test_a_recorded_run_is_probed_and_fine_tuned_like_any_other(photo_folder, tmp_path, finetune):
    settings = {"accelerator": "cuda", "epochs": 4, "probe_every": 1}
    if finetune:
        run(photo_folder, tmp_path / "base", **settings)
        settings |= {"init": str(tmp_path / "base"), "projector_epochs": 2}
    plain, recorded = (run(photo_folder, tmp_path / str(graph), graph=graph, **settings) for graph in (False, True))
    for a, b in zip(plain.metrics, recorded.metrics, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=2e-2, abs=2e-2)
    assert "knn/h" in recorded.metrics[-1]


@pytest.mark.parametrize("cache", ["ram", "none"])
def test_the_cache_changes_nothing(photo_folder, base, tmp_path, cache):
    run(photo_folder, tmp_path, cache=cache, workers=2 if cache == "none" else 0)
    for name, value in weights(base[0]).items():
        assert torch.equal(value, weights(tmp_path)[name]), name


def test_parquet_gives_what_a_folder_gives(photo_folder, base, tmp_path):
    files = sorted(str(p.relative_to(photo_folder)) for p in photo_folder.rglob("*.jpg"))
    rows = [{"bytes": (photo_folder / name).read_bytes(), "path": name} for name in files]
    pq.write_table(
        pa.table({"image": rows, "label": [int(n.startswith("old")) for n in files]}), tmp_path / "x.parquet"
    )
    done = run(tmp_path / "x.parquet", tmp_path / "run", probe_every=1)
    for name, value in weights(base[0]).items():
        assert torch.equal(value, weights(tmp_path / "run")[name]), name
    assert "knn/h" in done.metrics[-1]


@pytest.mark.parametrize("method", ["simclr", "vicreg", "barlow"])
@pytest.mark.parametrize("styles", [True, False])
def test_every_method_with_and_without_styles(photo_folder, tmp_path, method, styles):
    done = run(photo_folder, tmp_path, method=method, styles=styles, epochs=1, probe="none")
    row = done.metrics[-1]
    assert torch.isfinite(torch.tensor(row["loss"]))
    assert ("spatial/weight" in row) == styles


def test_without_styles_views_are_the_same_transforms_drawn_apart():
    config = PretrainConfig(**TINY, blur=(1.0, 0.0), solarize=(0.0, 1.0))
    with_styles, without = (make_views(PretrainConfig(**{**TINY, "styles": s})) for s in (True, False))
    images = torch.randint(0, 256, (6, 3, 40, 40), dtype=torch.uint8)
    a, b = (v(images, generator=torch.Generator().manual_seed(3)) for v in (with_styles, without))
    assert a.a.shape == b.a.shape == (6, 3, 32, 32)
    assert b.shared.tolist() == [0] * 6
    assert repr(make_views(config)) != repr(with_styles)


def test_lars_learning_rate_grows_with_the_batch():
    from unweave.training.recipe import make_train_config

    config = PretrainConfig(optimizer="lars", lr=0.3, batch_size=2048, epochs=100)
    made = make_train_config(config, 100, 600, devices=1, nodes=1, precision="32-true")
    assert made.lr == pytest.approx(2.4)
    assert made.steps == 60_000
    assert made.warmup_steps == 6_000
    assert make_objective(config, 600).rule.warmup == 6_000


def test_bad_images_are_listed_and_too_many_stop_the_run(photo_folder, tmp_path):
    spoiled = tmp_path / "spoiled"
    shutil.copytree(photo_folder, spoiled)
    (spoiled / "old" / "zero.jpg").touch()
    (spoiled / "notes.txt").write_text("no image")
    with pytest.raises(UnweaveError, match=r"1 of 61 images cannot be read, more than --max-bad 0\.01"):
        run(spoiled, tmp_path / "strict")
    done = run(spoiled, tmp_path / "run", max_bad=0.05, epochs=1)
    assert done.steps == 5
    assert (tmp_path / "run" / "skipped.txt").read_text() == "old/zero.jpg\tthe file is empty\n"


def test_a_finished_run_says_so(photo_folder, base, capfd):
    out, _ = base
    pretrain(str(photo_folder), out, PretrainConfig(**{**TINY, "probe_every": 1}), progress=True)
    assert "all of its 10 steps" in capfd.readouterr().err


def test_a_finished_run_is_only_loaded_and_another_is_refused(photo_folder, base):
    out, _ = base
    before = (out / "config.yaml").read_text()
    assert run(photo_folder, out, probe_every=1, workers=1, log_every=7).resumed_from == 10
    with pytest.raises(UnweaveError, match=r"--lr was 0\.001, now 0\.002") as error:
        run(photo_folder, out, lr=2e-3)
    assert "\n" not in str(error.value)
    assert yaml.safe_load((out / "config.yaml").read_text())["lr"] == yaml.safe_load(before)["lr"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"batch_size": 64}, "--batch-size 64 is more than the 60 images"), ({"cache": "gpu"}, "--cache gpu"),
     ({"backbone": "resnet1"}, "resnet18"), ({"init": "nowhere"}, "--init nowhere"),
     ({"probe_data": "nowhere"}, "nowhere"), ({"batch_size": 2}, "too small")],
)  # fmt: skip
def test_mistakes_are_one_line(photo_folder, tmp_path, settings, words):
    with pytest.raises(UnweaveError, match=words) as error:
        run(photo_folder, tmp_path, **settings)
    assert "\n" not in str(error.value)


def test_a_folder_removed_during_the_run_is_one_line_and_loses_nothing(photo_folder, tmp_path, monkeypatch):
    photos = tmp_path / "photos"
    shutil.copytree(photo_folder, photos)
    from unweave.data import loader

    monkeypatch.setattr(loader, "CHUNK", 4)
    monkeypatch.setattr(loader, "CHUNK_BYTES", 0)
    monkeypatch.setattr(loader, "AHEAD", 1)
    original = torch.optim.AdamW.step

    def step(self, *arguments):
        shutil.rmtree(photos, ignore_errors=True)
        return original(self, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    with pytest.raises(UnweaveError, match="is gone; put it back"):
        run(photos, tmp_path / "run", cache="none", workers=0, probe="none", checkpoint_minutes=0, epochs=20)
    monkeypatch.undo()
    shutil.copytree(photo_folder, photos)
    assert run(photos, tmp_path / "run", cache="none", probe="none", epochs=20).resumed_from >= 1


def test_tensorboard_has_the_metrics(photo_folder, tmp_path):
    run(photo_folder, tmp_path, epochs=1, tensorboard=True, probe="none")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [e.value for e in events.Scalars("spatial/weight")] == pytest.approx([r["spatial/weight"] for r in rows])


def test_checkpoints_are_written_by_the_clock(photo_folder, tmp_path, monkeypatch):
    from unweave.training import logbook

    saved = []
    monkeypatch.setattr(logbook, "save_run", lambda path, step, *_: saved.append(step))
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now.__setitem__(0, now[0] + 25) or now[0])
    run(photo_folder, tmp_path, probe="none", checkpoint_minutes=1)
    assert saved[-1] == 10
    assert 2 <= len(saved) <= 5
