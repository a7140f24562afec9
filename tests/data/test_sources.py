"""What DATA means, and what is said where it means nothing."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from unweave.data.decode import decode
from unweave.data.sources import open_source
from unweave.data.sources.base import MISSING
from unweave.data.unreadable import UnreadableImageError
from unweave.errors import UnweaveError


def save(path, color="red"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), color).save(path)


def bytes_of(path):
    save(path)
    return path.read_bytes()


def write_parquet(path, columns, features=None):
    table = pa.table(columns)
    if features:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path, row_group_size=2)


def test_a_flat_folder_has_no_labels(tmp_path):
    for name in ("b.JPG", "a.png", "notes.txt", ".hidden.png"):
        save(tmp_path / name) if name != "notes.txt" else (tmp_path / name).write_text("hi")
    source = open_source(tmp_path)
    assert [source.name(i) for i in range(len(source))] == ["a.png", "b.JPG"]
    assert source.labels is None
    assert source.others[".txt"] == 1


def test_nested_folders_are_classes_and_an_image_beside_them_has_none(tmp_path):
    for name in ("cats/x/1.png", "cats/2.png", "dogs/1.png", "stray.png"):
        save(tmp_path / name)
    source = open_source(tmp_path)
    assert source.classes == ["cats", "dogs"]
    assert dict(zip((source.name(i) for i in range(4)), source.labels, strict=True)) == {
        "cats/x/1.png": 0,
        "cats/2.png": 0,
        "dogs/1.png": 1,
        "stray.png": MISSING,
    }


def test_links_are_followed_and_never_in_circles(tmp_path):
    save(tmp_path / "elsewhere/2.png")
    save(tmp_path / "in/1.png")
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "broken.png").symlink_to(tmp_path / "nowhere.png")
    source = open_source(tmp_path / "in")
    assert [source.name(i) for i in range(len(source))] == ["1.png", "broken.png", "linked/2.png"]


def test_a_glob_of_images(tmp_path):
    for name in ("1.png", "2.png", "3.jpg"):
        save(tmp_path / name)
    assert len(open_source(f"{tmp_path}/*.png")) == 2


def test_parquet_of_the_hugging_face_convention(tmp_path):
    png = bytes_of(tmp_path / "x.png")
    structs = [{"bytes": png, "path": "one.png"}, {"bytes": None, "path": "x.png"}, {"bytes": png, "path": None}, None]
    features = {"picture": {"_type": "Image"}, "kind": {"_type": "ClassLabel", "names": ["no", "yes"]}}
    for part in ("a", "b"):
        write_parquet(tmp_path / f"{part}.parquet", {"picture": structs, "kind": [0, 1, None, 1]}, features)
    for data in (f"{tmp_path}/*.parquet", tmp_path / "a.parquet"):
        source = open_source(data)
        assert source.labels[:4] == [0, 1, MISSING, 1]
        assert source.classes == ["no", "yes"]
        assert [decode(source.read(i), 8)[0, 0, 0] for i in range(3)] == [255] * 3
        assert [source.name(i) for i in range(3)] == ["one.png", "x.png", "a.parquet#2"]
        with pytest.raises(UnreadableImageError, match="no image"):
            source.read(3)
    assert len(source) == 4
    assert open_source(f"{tmp_path}/*.parquet").name(6) == "b.parquet#2"


@pytest.fixture
def little_memory(tmp_path, monkeypatch):
    import tempfile

    from unweave.data.sources import parquet

    monkeypatch.setattr(parquet, "available_memory", lambda: 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


def test_parquet_larger_than_memory_is_copied_once_and_reads_the_same(tmp_path, little_memory, monkeypatch):
    colors = ["red", "lime", "blue"]
    for color in colors:
        save(tmp_path / "in" / f"{color}.png", color)
    rows = [{"bytes": (tmp_path / f"in/{c}.png").read_bytes(), "path": f"{c}.png"} for c in colors]
    rows += [None, {"bytes": None, "path": "red.png"}]
    for part in ("a", "b"):
        write_parquet(tmp_path / "in" / f"{part}.parquet", {"image": rows, "label": [0, 1, 2, 3, None]})
    copied = open_source(f"{tmp_path}/in/*.parquet")
    written = {p: p.stat().st_mtime_ns for p in little_memory.rglob("*.bin")}
    assert len(written) == 1
    again = open_source(f"{tmp_path}/in/*.parquet")
    assert {p: p.stat().st_mtime_ns for p in little_memory.rglob("*.bin")} == written
    monkeypatch.undo()
    whole = open_source(f"{tmp_path}/in/*.parquet")
    assert len(copied) == len(whole) == 10
    assert copied.labels == whole.labels
    for i in (0, 1, 2, 4, 7, 9):
        assert copied.read(i) == again.read(i) == whole.read(i)
        assert copied.name(i) == whole.name(i)
    with pytest.raises(UnreadableImageError, match="no image"):
        copied.read(3)


def test_too_little_disk_for_the_copy_is_one_line(tmp_path, little_memory, monkeypatch):
    write_parquet(tmp_path / "x.parquet", {"image": [bytes_of(tmp_path / "x.png")]})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 3}))
    with pytest.raises(UnweaveError, match="set TMPDIR") as error:
        open_source(tmp_path / "x.parquet")
    assert "\n" not in str(error.value)
    assert not list(little_memory.rglob("*.bin"))


def test_files_with_other_columns_are_refused(tmp_path):
    write_parquet(tmp_path / "a.parquet", {"image": [b"1"], "label": [1]})
    write_parquet(tmp_path / "b.parquet", {"picture": [b"1"]})
    with pytest.raises(UnweaveError, match=r"b\.parquet has no column '(image|label)'"):
        open_source(tmp_path)


def test_parquet_files_in_a_folder(tmp_path):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for i in range(2):
        write_parquet(tmp_path / f"in/deep/{i}.parquet", {"img": [bytes_of(tmp_path / "x.png")] * 3})
    assert len(open_source(tmp_path / "in")) == 6


def test_our_research_data_opens(shared_data):
    source = open_source(shared_data / "pets")
    assert len(source) > 3600
    assert len(set(source.labels)) == len(source.classes) == 37
    assert decode(source.read(0), 64).shape == (64, 64, 3)


def test_a_torchvision_data_set(tmp_path):
    for i in range(3):
        save(tmp_path / f"x/{i}.png")
        save(tmp_path / f"y/{i}.png")
    source = open_source("ImageFolder", root=tmp_path)
    assert len(source) == 6
    assert source.labels == [0, 0, 0, 1, 1, 1]
    assert decode(source.read(0), 8).shape == (8, 8, 3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: (p / "empty").mkdir() or p / "empty", "no images in .*empty"),
        (lambda p: (p / "a.txt").touch() or p, "only 1 .txt"),
        (lambda p: p / "nowhere", "no folder or file"),
        (lambda p: "CIFAR10", "`root`"),
        (lambda p: f"{p}/*.png", "no file matches"),
        (lambda p: (p / "x.parquet").write_text("hello") and p, "cannot be read as Parquet"),
        (lambda p: (p / "x.py").write_text("hello") and p / "x.py", "not a folder, Parquet files or images"),
        (
            lambda p: write_parquet(p / "x.parquet", {"a": [1], "b": [2.0]}) or p,
            "no image column; its columns are a, b",
        ),
        (lambda p: write_parquet(p / "x.parquet", {"a": [b""], "b": [b""]}) or p, "several image columns, a, b"),
        (lambda p: write_parquet(p / "x.parquet", {"image": pa.array([], pa.binary())}) or p, "no rows"),
    ],
)
def test_mistakes_are_one_line(tmp_path, make, words):
    with pytest.raises(UnweaveError, match=words) as error:
        open_source(make(tmp_path))
    assert "\n" not in str(error.value)


def test_columns_that_are_asked_for_must_be_there(tmp_path):
    write_parquet(tmp_path / "x.parquet", {"a": [b"1"], "b": [b"2"], "y": [3], "text": ["hm"]})
    assert open_source(tmp_path, image_column="b", label_column="y").labels == [3]
    for columns in ({"image_column": "y"}, {"image_column": "b", "label_column": "z"}):
        with pytest.raises(UnweaveError, match=r"`(image|label)_column`"):
            open_source(tmp_path, **columns)
    with pytest.raises(UnweaveError, match="whole numbers"):
        open_source(tmp_path, image_column="b", label_column="text")


def test_torchvision_names_and_roots_that_are_wrong(tmp_path):
    for name, root, words in (("CIFAR1", tmp_path, "did you mean CIFAR10"), ("CIFAR10", tmp_path / "no", "no such"),
                              ("CIFAR10", tmp_path, "cannot be read from")):  # fmt: skip
        with pytest.raises(UnweaveError, match=words) as error:
            open_source(name, root=root)
        assert "\n" not in str(error.value)


def test_a_folder_that_is_removed_is_noticed(tmp_path):
    save(tmp_path / "in/1.png")
    source = open_source(tmp_path / "in")
    source.check()
    shutil.rmtree(tmp_path / "in")
    with pytest.raises(UnweaveError, match="was removed"):
        source.check()
