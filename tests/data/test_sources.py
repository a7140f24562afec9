"""What DATA means, and what is said where it means nothing."""

import contextlib
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

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
        (lambda p: (p / "x.parquet").write_text("hello") and p, "cannot be read: Parquet"),
        (
            lambda p: (p / "x.py").write_text("hello") and p / "x.py",
            "not a folder, Parquet files, a CSV file or images",
        ),
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
    with pytest.raises(UnweaveError, match="not classes"):
        open_source(tmp_path, image_column="b", label_column="a")


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


def test_a_csv_file_lists_paths_and_labels(tmp_path):
    for name in ("one.png", "deep/two.png"):
        save(tmp_path / "images" / name)
    (tmp_path / "list.csv").write_text("path,label\nimages/one.png,dog\nimages/deep/two.png,cat\nimages/one.png,\n")
    source = open_source(tmp_path / "list.csv")
    assert source.classes == ["cat", "dog"]
    assert source.labels == [1, 0, MISSING]
    assert source.name(1) == "images/deep/two.png"
    assert decode(source.read(1), 8).shape == (8, 8, 3)
    (tmp_path / "list.tsv").write_text(f"id\twhere\n7\t{tmp_path}/images/one.png\n")
    assert decode(open_source(tmp_path / "list.tsv", image_column="where").read(0), 8).shape == (8, 8, 3)


@pytest.mark.parametrize(
    ("text", "words"), [("", "cannot be read"), ("a,b\n1\n", "cannot be read"), ("a,b\n1,2\n", "no image column"),
                        ("path\n", "no image column|no rows"), ("path,path\na,b\n", "several columns named 'path'")],
)  # fmt: skip
def test_a_csv_file_that_is_wrong_is_one_line(tmp_path, text, words):
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(UnweaveError, match=words) as error:
        open_source(tmp_path / "list.csv")
    assert "\n" not in str(error.value)


def test_parquet_with_names_of_classes_and_with_paths(tmp_path):
    data = bytes_of(tmp_path / "x.png")
    write_parquet(tmp_path / "a.parquet", {"image": [data] * 3, "label": ["dog", None, "cat"]})
    source = open_source(tmp_path / "a.parquet")
    assert (source.classes, source.labels) == (["cat", "dog"], [1, MISSING, 0])
    write_parquet(tmp_path / "b.parquet", {"path": ["x.png", "missing.png"], "label": [0.0, 1.0]})
    source = open_source(tmp_path / "b.parquet")
    assert source.labels == [0, 1]
    assert decode(source.read(0), 8).shape == (8, 8, 3)
    with pytest.raises(UnreadableImageError, match="no such file"):
        decode(source.read(1), 8)


def test_labels_that_are_not_numbers_of_classes_are_names(tmp_path):
    data = bytes_of(tmp_path / "x.png")
    for name, values, labels in (
        ("large", pa.array([2**64 - 1, 5], pa.uint64()), [1, 0]),
        ("negative", [-7, 3], [0, 1]),
        ("fraction", [0.5, float("inf")], [0, 1]),
        ("missing", [float("nan"), 2.0], [MISSING, 2]),
        ("truth", [True, False], [1, 0]),
    ):
        write_parquet(tmp_path / f"{name}.parquet", {"image": [data] * 2, "label": values})
        assert open_source(tmp_path / f"{name}.parquet").labels == labels, name


def save_to_disk(folder, table):
    """The files that the datasets library writes."""
    folder.mkdir(parents=True)
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as to,
    ):
        to.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (folder / "dataset_info.json").write_text("{}")


def test_a_data_set_that_hugging_face_has_saved(tmp_path):
    data = bytes_of(tmp_path / "x.png")
    images = pa.array([{"bytes": data, "path": "x.png"}, {"bytes": None, "path": str(tmp_path / "x.png")}])
    info = {"image": {"_type": "Image"}, "breed": {"_type": "ClassLabel", "names": ["cat", "dog"]}}
    table = pa.table({"image": images, "breed": [1, -1]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": info}})})
    save_to_disk(tmp_path / "one", table)
    save_to_disk(tmp_path / "split/train", table)
    (tmp_path / "split/dataset_dict.json").write_text('{"splits": ["train"]}')
    for folder in ("one", "split"):
        source = open_source(tmp_path / folder)
        assert (source.classes, source.labels, len(source)) == (["cat", "dog"], [1, MISSING], 2)
        assert [decode(source.read(i), 8).shape for i in range(2)] == [(8, 8, 3)] * 2
    save_to_disk(tmp_path / "other/test", table)
    (tmp_path / "other/dataset_dict.json").write_text("{}")
    with pytest.raises(UnweaveError, match="no split named train"):
        open_source(tmp_path / "other")
    (tmp_path / "one/data-00000-of-00001.arrow").write_bytes(b"nonsense")
    with pytest.raises(UnweaveError, match="cannot be read"):
        open_source(tmp_path / "one")


def test_a_list_of_paths_and_objects_of_torch(tmp_path):
    for name in ("a/1.png", "b/2.png"):
        save(tmp_path / name)
    source = open_source([tmp_path / "b/2.png", str(tmp_path / "a/1.png")])
    assert (source.classes, source.labels) == (["a", "b"], [1, 0])
    assert decode(source.read(0), 8).shape == (8, 8, 3)

    dataset = TensorDataset(torch.rand(4, 3, 8, 8), torch.arange(4))
    for data in (dataset, DataLoader(dataset, batch_size=2)):
        source = open_source(data)
        assert (len(source), source.name(3)) == (4, "TensorDataset#3")
        assert decode(source.read(0), 8).shape == (8, 8, 3)
    assert open_source(source) is source
    for wrong in (7, iter([1]), []):
        with pytest.raises(UnweaveError, match="`data`"):
            open_source(wrong)


@pytest.mark.parametrize(
    "features", [[], "text", {"image": 3}, {"image": {"_type": []}}, {"label": {"names": 7}}, {"label": {"names": [3]}}]
)
def test_metadata_of_wrong_kinds_are_ignored(tmp_path, features):
    columns = {"image": [bytes_of(tmp_path / "x.png")], "label": [0]}
    write_parquet(tmp_path / "x.parquet", columns, features=features)
    assert open_source(tmp_path / "x.parquet").labels == [0]


@pytest.mark.parametrize("path", [7, [1, 2], {"a": 1}])
def test_a_path_that_is_no_text_is_ignored(tmp_path, path):
    data = bytes_of(tmp_path / "x.png")
    write_parquet(tmp_path / "x.parquet", {"image": pa.array([{"bytes": data, "path": path}])})
    source = open_source(tmp_path / "x.parquet")
    assert source.name(0) == "x.parquet#0"
    assert decode(source.read(0), 8).shape == (8, 8, 3)


def test_damaged_parquet_is_one_line(tmp_path):
    data = bytes_of(tmp_path / "x.png")
    write_parquet(tmp_path / "x.parquet", {"image": [data] * 4, "label": ["a", "b", "a", "b"]})
    whole = (tmp_path / "x.parquet").read_bytes()
    random = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(whole)
        for place in random.integers(0, len(whole), 3):
            damaged[place] = random.integers(256)
        (tmp_path / "x.parquet").write_bytes(damaged)
        try:
            source = open_source(tmp_path / "x.parquet")
            for i in range(len(source)):
                source.name(i)
                with contextlib.suppress(UnreadableImageError):
                    decode(source.read(i), 8)
        except UnweaveError as error:
            assert "\n" not in str(error)  # noqa: PT017
