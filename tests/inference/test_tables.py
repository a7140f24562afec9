"""What ``unweave embed`` writes: Parquet or CSV, with classes and with names that can be read back."""

import csv
import os
import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import unweave as uw
from small_models import photograph, save_pictures
from unweave.cli.main import main
from unweave.data import open_source, unescape_name
from unweave.data.sources.base import escape_name
from unweave.errors import UnweaveError
from unweave.inference import SpacesModel, embed_images

NAMES = {"h": 16, "content": 3, "hue": 2}


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """Pictures in folders named by their class."""
    folder = tmp_path_factory.mktemp("classes")
    for name in ("cat", "dog", 'größe, [b] "x"'):
        (folder / name).mkdir()
        for i in range(2):
            photograph(20 + i, 30, i).save(folder / name / f"{i}.png")
    return folder


def embed(run, data, out, *flags):
    return main(["embed", str(run), str(data), "--out", str(out), "--workers", "0", "--device", "cpu", *flags])


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_files_embedded_by_the_command_have_the_bits_of_embed(run, tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    pictures = save_pictures(folder)
    model = uw.load(run)
    assert embed(run, folder, tmp_path / "z.parquet", "--batch-size", "1") == 0
    table = pq.read_table(tmp_path / "z.parquet")
    for i, path in enumerate(pictures):
        for same in (path, Image.open(path)):
            for name, z in model.embed(same).items():
                assert table[name][i].as_py() == z.tolist(), path.name
    assert embed(run, folder, tmp_path / "z.parquet", "--batch-size", "4") == 0
    content = np.stack(pq.read_table(tmp_path / "z.parquet")["content"].to_numpy())
    assert np.array_equal(content, model.embed(pictures, batch_size=4)["content"].numpy())


def test_classes_are_written_as_numbers_and_names(run, classes, tmp_path):
    assert embed(run, classes, tmp_path / "z.parquet") == 0
    table = pq.read_table(tmp_path / "z.parquet")
    assert table.schema.field("label").type == pa.int64()
    names = [path.split("/")[0] for path in table["path"].to_pylist()]
    assert table["class_name"].to_pylist() == names
    assert table["label"].to_pylist() == [sorted(set(names)).index(name) for name in names]


def test_csv_has_the_numbers_of_parquet(run, classes, tmp_path):
    for ending in ("parquet", "csv"):
        assert embed(run, classes, tmp_path / f"z.{ending}") == 0
    table, listed = pq.read_table(tmp_path / "z.parquet"), rows(tmp_path / "z.csv")
    columns = [f"{name}_{i}" for name, dim in NAMES.items() for i in range(dim)]
    assert list(listed[0]) == ["path", "label", "class_name", *columns]
    assert [row["path"] for row in listed] == table["path"].to_pylist()
    assert [int(row["label"]) for row in listed] == table["label"].to_pylist()
    assert [row["class_name"] for row in listed] == table["class_name"].to_pylist()
    for name, dim in NAMES.items():
        found = np.array([[row[f"{name}_{i}"] for i in range(dim)] for row in listed], np.float64).astype(np.float32)
        assert np.array_equal(found, np.stack(table[name].to_numpy())), name


def test_missing_labels_are_empty_and_a_name_without_ending_is_parquet(run, tmp_path):
    pq.write_table(
        pa.table({"path": [_picture(tmp_path, i) for i in range(3)], "label": ["b", None, "a"]}), tmp_path / "x.parquet"
    )
    assert embed(run, tmp_path / "x.parquet", tmp_path / "z.csv") == 0
    assert [(row["label"], row["class_name"]) for row in rows(tmp_path / "z.csv")] == [("1", "b"), ("", ""), ("0", "a")]
    assert embed(run, tmp_path / "x.parquet", tmp_path / "z") == 0
    assert pq.read_table(tmp_path / "z")["class_name"].to_pylist() == ["b", None, "a"]


def _picture(folder, i):
    photograph(20, 20, i).save(folder / f"{i}.png")
    return f"{i}.png"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--workers", "-1"], "--workers must be 0 or more, not -1"),
        (["--batch-size", "0"], "--batch-size must be at least 1"),
        (["--max-bad", "nan"], "--max-bad must be between 0 and 1, not nan"),
        (["--max-pixels", "0"], "--max-pixels must be at least 1"),
        (["--device", "nope"], "--device 'nope' cannot be used"),
        (["--device", "cuda:77"], "--device 'cuda:77' cannot be used"),
        (["--device", "meta"], "--device 'meta' cannot be used"),
        (["--out", ""], "--out . is a folder"),
        (["--out", "z.txt"], "--out z.txt ends with .txt"),
        (["--out", "/dev/full"], "--out /dev/full is not a regular file"),
        (["--out", "/proc/nowhere/z.csv"], "cannot write to the folder /proc/nowhere"),
    ],
)
def test_mistakes_are_one_line_before_anything_is_read(tmp_path, monkeypatch, capsys, flags, words):
    """The run does not exist: a mistake that is found later would be another error."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    given = flags if "--out" in flags else ["--out", "z.parquet", *flags]
    assert main(["embed", "no-run", "data", *given]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1
    assert not list(tmp_path.glob("*z*"))


def test_the_file_of_the_images_is_not_overwritten(run, tmp_path):
    data = tmp_path / "x.csv"
    data.write_text(f"path\n{_picture(tmp_path, 0)}\n")
    (tmp_path / "link.csv").symlink_to(data)
    before = data.read_bytes()
    for out in (data, tmp_path / "link.csv"):
        assert embed(run, data, out) == 2
    assert data.read_bytes() == before


def test_settings_of_a_wrong_kind_name_the_argument(run, classes, tmp_path):
    model = uw.load(run)
    for name, wrong in (("workers", 1.5), ("max_bad", "much"), ("batch_size", None), ("device", "nope")):
        with pytest.raises(UnweaveError, match=f"`{name}`"):
            embed_images(model, classes, tmp_path / "z.parquet", **{"device": "cpu", name: wrong})
    encoder = uw.Encoder(uw.SmallConvNet(16, layers=((4, 2),), dim=4), ("content", "label"), dim=2, hidden=4)
    with pytest.raises(UnweaveError, match="'label'"):
        embed_images(SpacesModel(encoder, input_shape=(3, 16, 16)), classes, tmp_path / "z.parquet", device="cpu")
    assert not list(tmp_path.iterdir())


def test_large_images_have_no_row(run, tmp_path, capsys):
    photograph(100, 100).save(tmp_path / "large.png")
    photograph(10, 10).save(tmp_path / "small.png")
    assert embed(run, tmp_path, tmp_path / "z.csv", "--max-pixels", "1000", "--max-bad", "0.5") == 0
    assert [row["path"] for row in rows(tmp_path / "z.csv")] == ["small.png"]
    assert "large.png" in capsys.readouterr().err


def test_a_folder_without_readable_images_is_one_line_whatever_their_names(run, tmp_path, capsys):
    (tmp_path / "new\nline [b].png").write_bytes(b"nonsense")
    for allowed in ("0", "1"):
        assert embed(run, tmp_path, tmp_path / "z.parquet", "--max-bad", allowed) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert not list(tmp_path.glob("*z.parquet*"))


def test_a_link_is_followed_and_temporary_files_of_killed_runs_are_removed(run, classes, tmp_path):
    (tmp_path / "disk").mkdir()
    link = tmp_path / "z.parquet"
    link.symlink_to(tmp_path / "disk" / "real.parquet")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = tmp_path / "disk" / f".real.parquet.{ended.pid}.tmp"
    left.touch()
    assert embed(run, classes, link) == 0
    assert link.is_symlink()
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["real.parquet"]
    assert pq.read_table(link).num_rows == 6


HOSTILE = [
    "a\tb.png", "new\nline.png", "return\r\n.png", "[/b]markup[red].png", "quote'\",.png", "back\\slash.png",
    "escape\\xff.png", "\\\\xff.png", "näme-日本.png", " space .png", os.fsdecode(b"bytes\xff\xfe\\xff.png"),
    os.fsdecode(b"\xffclass/\xc3.png"), "[/bold].png",
]  # fmt: skip


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_any_name_of_a_file_can_be_read_back(run, tmp_path, ending):
    folder, out = tmp_path / "photos", tmp_path / f"z.{ending}"
    for i, name in enumerate(HOSTILE):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        photograph(16, 16, i).save(folder / name, "png")
    assert embed(run, folder, out) == 0
    listed = pq.read_table(out).to_pylist() if ending == "parquet" else rows(out)
    names = [unescape_name(row["path"]) for row in listed]
    assert sorted(names) == sorted(HOSTILE)
    assert {unescape_name(row["class_name"]) for row in listed if row["class_name"]} == {"[", os.fsdecode(b"\xffclass")}
    model = uw.load(run)
    for name, row in zip(names, listed, strict=True):
        written = row["content"] if ending == "parquet" else [float(row[f"content_{i}"]) for i in range(3)]
        torch.testing.assert_close(torch.tensor(written), model.embed(folder / name)["content"], atol=1e-5, rtol=1e-4)


def test_escaping_is_valid_unicode_and_can_be_undone():
    rng = random.Random(0)
    pieces = [b"\\", b"x", b"ff", b"\\xff", b"\xff", b"\xc3", b"\xc3\xa9", b"a", b"\\\\", b"0", b"\n"]
    seen = {}
    for _ in range(3000):
        name = b"".join(rng.choices(pieces, k=rng.randrange(1, 7))).decode("utf-8", "surrogateescape")
        escaped = escape_name(name)
        escaped.encode("utf-8")
        assert unescape_name(escaped) == name
        assert seen.setdefault(escaped, name) == name


def test_sources_of_any_kind_are_embedded_from_python(run, classes, tmp_path):
    model = uw.load(run)
    pictures = [photograph(20, 20, seed) for seed in range(3)]
    for images in (pictures, str(classes), open_source(classes)):
        embed_images(model, images, tmp_path / "z.parquet", device="cpu", workers=0)
        content = np.stack(pq.read_table(tmp_path / "z.parquet")["content"].to_numpy())
        assert np.array_equal(content, model.embed(images)["content"].numpy())
