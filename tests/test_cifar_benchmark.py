"""benchmarks/cifar.py: which images it reads, and what it keeps when it is called again."""

import io
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

FILE = Path(__file__).parents[1] / "benchmarks" / "cifar.py"


def write(file, labels, seed):
    """Images of 32 pixels in the convention of Hugging Face."""
    rows = []
    for image in np.random.default_rng(seed).integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8):
        encoded = io.BytesIO()
        Image.fromarray(image).save(encoded, "PNG")
        rows.append({"bytes": encoded.getvalue(), "path": None})
    pq.write_table(pa.table({"image": rows, "label": labels}), file)


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "cifar10"
    folder.mkdir()
    for number, (name, count) in enumerate({"train": 40, "train-rest": 60, "test": 20}.items()):
        write(folder / f"{name}.parquet", [i % 10 for i in range(count)], number)
    return folder


def run(*arguments, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(FILE), *map(str, arguments)])
    return runpy.run_path(str(FILE), run_name="__main__")


def test_a_finished_run_is_only_scored_and_other_rows_are_kept(data, tmp_path, monkeypatch):
    out, runs = tmp_path / "out.json", tmp_path / "runs"
    shared = ("--quick", "--data", data, "--runs", runs, "--out", out, "--set", "batch_size=20")
    run(*shared, "--only", "styles", monkeypatch=monkeypatch)
    trained = (runs / "styles" / "checkpoint.safetensors").stat().st_mtime_ns
    run(*shared, monkeypatch=monkeypatch)
    assert (runs / "styles" / "checkpoint.safetensors").stat().st_mtime_ns == trained
    simclr, styles = json.loads(out.read_text())["rows"]
    assert (simclr["model"], styles["model"]) == ("simclr", "styles")
    assert simclr["images"] == {"train": 100, "test": 20}
    assert simclr["epochs"] == 2 / 5  # all images are trained on: five batches
    assert simclr["settings"]["views"]["styles"] == ["none"]
    assert styles["settings"]["views"]["styles"] == ["spatial", "appearance"]
    for row in (simclr, styles):
        assert all(0 <= row[probe][name] <= 1 for probe in ("knn", "linear") for name in ("h", "content"))


def test_by_default_the_settings_are_those_of_the_preset_on_all_images(monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(FILE), "--data", "x", "--runs", "x", "--no-compile", "--set", "lr=1e-2"])
    names = runpy.run_path(str(FILE))
    config = names["configure"]("simclr", names["parse"]())
    assert (config.training.epochs, config.training.batch_size, config.report.held_out) == (200, 512, 0)
    assert (config.training.optim.lr, config.training.compile, config.training.graph) == (0.01, False, True)
