"""``unweave probe`` scores h, z and every space of a run on labelled data, and embeddings of any origin."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import unweave as uw
from small_runs import pretrain
from unweave.cli.main import main
from unweave.data import open_source
from unweave.data.sources.folder import FolderImages
from unweave.inference import compute_features

SPACES = ["h", "z", "content", "spatial", "appearance"]


@pytest.fixture(scope="module")
def trained(photo_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "run"
    pretrain(photo_folder, out, epochs=1, probe="none")
    return out


def run_probe(*arguments):
    words = [str(word) for word in arguments]
    return main(["probe", *words, *([] if "--embeddings" in words else ["--workers", "0"]), "--device", "cpu"])


def test_every_space_of_a_run_is_scored(trained, photo_folder, capsys):
    assert run_probe(trained, photo_folder) == 0
    printed = capsys.readouterr().out
    assert all(space in printed for space in SPACES)
    report = json.loads((trained / "probe.json").read_text())
    assert {"command", "commit", "hardware", "versions", "seconds", "settings"} <= set(report)
    (row,) = report["rows"]
    assert (row["kind"], row["metric"], row["fit"], row["test"]) == ("classes", "accuracy", 48, 12)
    assert list(row["linear"]) == list(row["knn"]) == list(row["penalty"]) == SPACES
    assert row["dimensions"]["z"] == 24
    assert row["linear"]["h"] >= row["chance"] == pytest.approx(0.5, abs=0.1)


def test_scores_are_those_of_the_python_function(trained, photo_folder):
    source = open_source(photo_folder)
    features = compute_features(uw.load(trained), source, workers=0).features
    z = torch.cat([features[name] for name in SPACES[2:]], 1)
    expected = uw.probe({**features, "z": z}, [source.classes[i] for i in source.labels])
    assert run_probe(trained, photo_folder) == 0
    (row,) = json.loads((trained / "probe.json").read_text())["rows"]
    assert row["linear"] == pytest.approx(expected.linear)
    assert row["knn"] == pytest.approx(expected.knn)


def test_what_embed_writes_has_the_same_scores(trained, photo_folder, tmp_path):
    file, out = tmp_path / "z.parquet", tmp_path / "out.json"
    assert (
        main(["embed", str(trained), str(photo_folder), "--out", str(file), "--workers", "0", "--device", "cpu"]) == 0
    )
    assert run_probe("--embeddings", file, "--out", out) == 0
    assert run_probe(trained, photo_folder) == 0
    rows = [json.loads(path.read_text())["rows"][0] for path in (out, trained / "probe.json")]
    assert rows[0]["linear"] == pytest.approx(rows[1]["linear"])


def cub(folder):
    """Six birds to fit and six to test, with a box and one key point each."""
    root = folder / "CUB_200_2011"
    lines = {name: [] for name in ("images", "image_class_labels", "train_test_split", "bounding_boxes", "part_locs")}
    for i in range(1, 13):
        lines["images"].append(f"{i} {i % 2}/{i}.png")
        lines["image_class_labels"].append(f"{i} {i % 2 + 1}")
        lines["train_test_split"].append(f"{i} {int(i <= 6)}")
        lines["bounding_boxes"].append(f"{i} {2 * i} 3 {10 + i} 12")
        lines["part_locs"].append(f"{i} 1 {2 * i} {i} {int(i % 5 > 0)}")
        (root / "images" / str(i % 2)).mkdir(parents=True, exist_ok=True)
        noise = torch.randint(0, 256, (40, 60, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(i))
        Image.fromarray(noise.numpy()).save(root / "images" / f"{i % 2}/{i}.png")
    (root / "parts").mkdir()
    for name, text in lines.items():
        (root / ("parts" if name == "part_locs" else "") / f"{name}.txt").write_text("\n".join(text))
    (root / "classes.txt").write_text("1 even\n2 odd")
    (root / "parts" / "parts.txt").write_text("1 beak")
    return root


def test_tasks_by_name_have_their_own_metrics_and_groups(trained, tmp_path, photo_folder):
    assert run_probe(trained, f"cub={cub(tmp_path)}", photo_folder, "--out", tmp_path / "p.json", "--folds", 3) == 0
    report = json.loads((tmp_path / "p.json").read_text())
    found = {row["task"]: (row["metric"], row["group"], row["fit"], row["test"]) for row in report["rows"]}
    assert found["cub-class"] == ("accuracy", "Other", 6, 6)
    assert found["cub-box"] == found["cub-keypoints"] == ("r2", "Spatial", 6, 6)
    assert found[photo_folder.name][0] == "accuracy"
    mean = np.mean([row["linear"]["z"] for row in report["rows"] if row["group"] == "Spatial"])
    assert report["averages"]["Spatial"]["z"] == pytest.approx(mean)
    assert set(report["averages"]) == {"all", "Other", "Spatial"}


@pytest.fixture
def own_photos(photo_folder, tmp_path):
    """A copy that may be changed."""
    folder = tmp_path / "photos"
    for file in sorted(photo_folder.rglob("*.jpg"))[::5]:
        (folder / file.parent.name).mkdir(parents=True, exist_ok=True)
        (folder / file.parent.name / file.name).write_bytes(file.read_bytes())
    return folder


def test_features_are_computed_once_and_again_for_changed_images_or_weights(trained, own_photos, tmp_path, monkeypatch):
    model, cache = uw.load(trained), tmp_path / "cache"
    passes = []
    forward = type(model).forward
    monkeypatch.setattr(type(model), "forward", lambda self, x: passes.append(len(x)) or forward(self, x))

    def compute():
        passes.clear()
        found = compute_features(model, FolderImages(own_photos), cache=cache, workers=0)
        return found, sum(passes)

    first, images = compute()
    assert images == 12
    model = uw.load(trained)  # the same weights, another object
    again, images = compute()
    assert images == 0
    assert list(again.features) == list(first.features)
    assert all(torch.equal(again.features[name], z) for name, z in first.features.items())

    changed = next(own_photos.rglob("*.jpg"))
    Image.new("RGB", (50, 50), "blue").save(changed)
    other, images = compute()
    assert images == 12
    assert not torch.equal(other.features["h"], first.features["h"])

    with torch.no_grad():
        next(model.encoder.parameters()).mul_(1.5)
    assert compute()[1] == 12

    for file in cache.iterdir():  # a damaged file is not used
        data = bytearray(file.read_bytes())
        data[-3] ^= 1
        file.write_bytes(data)
    assert compute()[1] == 12


def test_unreadable_images_are_left_out_with_their_labels(trained, own_photos):
    next(own_photos.rglob("*.jpg")).write_bytes(b"not an image")
    found = compute_features(uw.load(trained), FolderImages(own_photos), workers=0, max_bad=0.2)
    assert len(found.rows) == len(found.features["h"]) == 11
    assert run_probe(trained, own_photos, "--max-bad", 0.2, "--folds", 2, "--test-fraction", 0.4) == 0


@pytest.fixture
def table(tmp_path):
    """Embeddings in which content predicts shape, and style the place."""
    rng = np.random.default_rng(0)
    shape, at = rng.integers(0, 3, 120), rng.random(120)
    content = np.eye(4)[shape] + 0.05 * rng.standard_normal((120, 4))
    style = np.stack([at, at**2], 1) + 0.01 * rng.standard_normal((120, 2))
    columns = {
        "content": list(content), "style": list(style), "shape": [f"kind {i}" for i in shape], "at": at,
        "split": ["test" if i % 3 == 0 else "train" for i in range(120)],
    }  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "z.parquet")
    return tmp_path / "z.parquet"


def test_embeddings_of_any_origin_and_their_factors(table, tmp_path, capsys):
    out = tmp_path / "out.json"
    arguments = ("--embeddings", table, "--label-column", "shape", "--factors", "shape", "at", "--out", out)
    assert run_probe(*arguments) == 0
    report = json.loads(out.read_text())
    (row,) = report["rows"]
    assert (row["fit"], row["test"], row["outputs"]) == (80, 40, 3)
    assert row["linear"]["content"] == 1
    assert row["linear"]["style"] < 0.6
    assert row["dimensions"] == {"z": 6, "content": 4, "style": 2}
    factors = report["factors"]
    assert factors["scores"]["style"]["at"] > 0.98
    assert factors["scores"]["content"]["at"] < 0.2
    assert factors["dci"]["informativeness"] > 0.95
    assert factors["mcc"] > 0.9
    assert "DCI" in capsys.readouterr().out


def test_a_float_label_is_a_regression(table, tmp_path):
    out = tmp_path / "out.json"
    assert run_probe("--embeddings", table, "--label-column", "at", "--out", out, "--no-knn") == 0
    (row,) = json.loads(out.read_text())["rows"]
    assert (row["kind"], row["metric"], row["knn"]) == ("regression", "r2", {})
    assert row["linear"]["style"] > 0.98


def test_whole_numbers_are_a_regression_on_request(tmp_path):
    rng = np.random.default_rng(0)
    age = rng.integers(0, 80, 100)
    pq.write_table(
        pa.table({"h": list(np.stack([age, age / 2 + rng.random(100)], 1)), "label": age}), tmp_path / "z.parquet"
    )
    out = tmp_path / "out.json"
    assert run_probe("--embeddings", tmp_path / "z.parquet", "--kind", "regression", "--out", out) == 0
    (row,) = json.loads(out.read_text())["rows"]
    assert row["metric"] == "r2"
    assert row["linear"]["h"] > 0.99


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--embeddings"),
        (("run",), "labelled images"),
        (("run", "nowhere"), "nowhere"),
        (("run", "dtd=nowhere"), "nowhere"),
        (("--embeddings", "nothing.parquet"), "no such file"),
        (("--embeddings", "z.parquet"), "--label-column"),
        (("--embeddings", "z.parquet", "--label-column", "size"), "columns are"),
        (("--embeddings", "z.parquet", "--label-column", "shape", "--factors", "size"), "columns are"),
        (("--embeddings", "z.parquet", "--label-column", "shape", "--metric", "r2"), "--metric"),
        (("--embeddings", "z.parquet", "--label-column", "shape", "--folds", "1"), "--folds"),
        (("--embeddings", "no-test.parquet", "--label-column", "shape"), "split"),
    ],
)
def test_a_mistake_is_one_line(table, arguments, words, monkeypatch, capsys):
    monkeypatch.chdir(table.parent)
    split = pa.array(["train"] * 120)
    whole = pq.read_table(table)
    pq.write_table(whole.set_column(whole.column_names.index("split"), "split", split), "no-test.parquet")
    assert run_probe(*arguments) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len([line for line in said if line.startswith("unweave:")]) == 1
    assert words in said[-1]
    assert not os.path.exists("probe.json")
