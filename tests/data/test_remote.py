"""Parquet files on file systems of pyarrow, and images that are read in order."""

import io
import random
import tempfile

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from PIL import Image

import unweave as uw
from small_models import photograph, small_model
from unweave.cli.main import main
from unweave.data import identity, open_source
from unweave.data.sources import parquet, remote
from unweave.data.sources.remote import StoredFile, without_secrets
from unweave.data.unreadable import UnreadableImageError
from unweave.errors import UnweaveError
from unweave.inference import embed_images, export_model

ROWS = (7, 1, 12)
"""Rows of each file."""


def encoded(i):
    buffer = io.BytesIO()
    photograph(20, 18 + i, i).save(buffer, "png")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def tables():
    """Parquet files by name, as bytes."""
    made, start = {}, 0
    for name, rows in zip(("in/a.parquet", "in/b.parquet", "in/deep/c.parquet"), ROWS, strict=True):
        numbers = range(start, start + rows)
        images = [{"bytes": encoded(i), "path": None if i % 3 else f"{i}.png"} for i in numbers]
        table, sink = pa.table({"image": images, "label": ["cat" if i % 2 else "dog" for i in numbers]}), io.BytesIO()
        pq.write_table(table, sink, row_group_size=4)
        made[name], start = sink.getvalue(), start + rows
    return made


@pytest.fixture
def local(tables, tmp_path):
    for name, data in tables.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "in" / "notes.txt").touch()
    return tmp_path / "in"


@pytest.fixture
def mocked(tables, monkeypatch):
    """pyarrow's file system for tests, which is in memory, at mock://."""
    filesystem = pa.fs._MockFileSystem()
    filesystem.create_dir("in/deep")
    for name, data in tables.items():
        with filesystem.open_output_stream(name) as file:
            file.write(data)
    monkeypatch.setattr(remote, "_connect", lambda address: (filesystem, address.removeprefix("mock://")))
    return "mock://in"


def everything(source):
    return [(source.name(i), source.read(i), source.labels[i]) for i in range(len(source))], source.classes


def test_addresses_have_the_images_of_paths(local, mocked, monkeypatch):
    expected = everything(open_source(local))
    assert len(expected[0]) == sum(ROWS)
    assert everything(open_source(mocked)) == expected
    assert everything(open_source(f"{mocked}/**/*.parquet")) == expected
    assert len(open_source(f"{mocked}/*.parquet")) == ROWS[0] + ROWS[1]
    assert len(open_source(f"{mocked}/deep/c.parquet")) == ROWS[2]
    monkeypatch.undo()
    assert everything(open_source(f"file://{local}")) == expected
    assert everything(open_source(f"file://{local}/**.parquet")) == expected
    assert len(open_source(f"file://{local}/a.parquet")) == ROWS[0]


def test_a_copy_of_remote_files_that_do_not_fit_into_memory_reads_the_same(mocked, local, tmp_path, monkeypatch):
    expected = everything(open_source(local))
    monkeypatch.setattr(parquet, "available_memory", lambda: 1)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    assert everything(open_source(mocked)) == expected
    assert len(list((tmp_path / "tmp").rglob("*.bin"))) == 1


@pytest.mark.parametrize("where", ["local", "mocked"])
def test_images_in_order_are_those_of_random_access_in_any_portion(local, mocked, where, monkeypatch):
    (names, _), source = (
        everything(open_source(local)),
        open_source(local if where == "local" else mocked, random_access=False),
    )
    for room in (1, 3000, 2**28):
        monkeypatch.setattr(parquet, "IN_ORDER", room)
        for numbers in (range(20), range(3, 4), range(6, 9), range(8, 20), range(8)):
            for batch_size in (1, 3, 50):
                seen = []
                for some, part in source.in_order(numbers, batch_size):
                    assert len(some) % batch_size == 0 or some.stop == numbers.stop
                    seen += [(i, part.name(i), part.read(i), part.labels[i]) for i in some]
                assert seen == [(i, *names[i]) for i in numbers]


def test_a_share_of_the_images_is_read_from_a_share_of_the_file(tmp_path, monkeypatch):
    noise = [random.Random(i).randbytes(100_000) for i in range(20)]
    pq.write_table(pa.table({"image": noise}), tmp_path / "x.parquet", row_group_size=4)
    read, opened = [], StoredFile.open

    class Counting(io.BytesIO):
        def read(self, size=-1):
            read.append(size)
            return super().read(size)

    monkeypatch.setattr(StoredFile, "open", lambda self: pa.PythonFile(Counting(opened(self).read()), mode="r"))
    source, groups = open_source(f"file://{tmp_path}/x.parquet", random_access=False), []
    for numbers in (range(0), range(20), range(3, 4), range(8, 12), range(7, 13)):
        read.clear()
        assert [part.read(i) for some, part in source.in_order(numbers, 4) for i in some] == noise[numbers.start :][
            : len(numbers)
        ]
        groups.append(round(sum(read) / 400_000))
    assert groups == [0, 5, 1, 1, 3]


def test_files_are_recognised_without_reading_them_all(local):
    before = open_source(local, random_access=False).identity
    assert open_source(local).identity == open_source(f"file://{local}").identity == before
    table = pq.read_table(local / "a.parquet")
    pq.write_table(table.slice(0, 6), local / "a.parquet")
    assert open_source(local).identity != before


def test_a_row_that_names_a_file_beside_a_remote_one_is_unreadable(monkeypatch, tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "x.png")
    pq.write_table(pa.table({"path": ["x.png"]}), tmp_path / "x.parquet")
    assert open_source(tmp_path / "x.parquet").read(0) == tmp_path / "x.png"
    with pytest.raises(UnreadableImageError, match=r"x\.png"):
        open_source(f"file://{tmp_path}/x.parquet").read(0)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("file:///nowhere/at/all", "no Parquet files at file:///nowhere/at/all"),
        ("file:///nowhere/*.parquet", "no Parquet files"),
        ("file://elsewhere/photos", "cannot be read: Unsupported hostname"),
        ("telepathy://bucket/photos", "cannot be read: Unrecognized filesystem"),
        ("hdfs://127.0.0.1:9/photos", "cannot be read"),
    ],
)
def test_a_place_that_cannot_be_reached_is_one_line(tmp_path, capfd, address, words):
    export_model(small_model(), tmp_path / "run", onnx=False)
    capfd.readouterr()
    assert main(["embed", str(tmp_path / "run"), address, "--out", str(tmp_path / "z.parquet")]) == 2
    said = capfd.readouterr().err
    assert words in said
    assert len([line for line in said.splitlines() if line.startswith("unweave: ")]) == 1
    assert "Traceback" not in said
    assert not (tmp_path / "z.parquet").exists()


def test_files_without_images_are_one_line(tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    (tmp_path / "y.parquet").write_bytes(b"nonsense")
    for name, words in (("x", "no image column"), ("y", "cannot be read")):
        with pytest.raises(UnweaveError, match=words) as error:
            open_source(f"file://{tmp_path}/{name}.parquet")
        assert "\n" not in str(error.value)
        assert f"file://{tmp_path}/{name}.parquet" in str(error.value)


def test_secrets_and_options_are_not_part_of_messages(monkeypatch):
    def unreachable(address):
        raise OSError("AWS Error NETWORK_CONNECTION\ncurlCode: 6, Could not resolve hostname")

    monkeypatch.setattr(remote, "_connect", unreachable)
    with pytest.raises(UnweaveError, match=r"^s3://bucket/x cannot be read: AWS Error .*hostname$"):
        open_source("s3://key:hush@bucket/x?region=us-east-1")
    assert without_secrets("s3://bucket") == "s3://bucket"
    assert without_secrets("hdfs://user:p@ss@host:8020/a@b?x=1") == "hdfs://host:8020/a@b"


@pytest.mark.parametrize("workers", [0, 2])
def test_an_address_is_embedded_in_portions_as_its_files_are(local, tmp_path, monkeypatch, workers):
    export_model(small_model(), tmp_path / "run", onnx=False)
    flags = ["--workers", str(workers), "--device", "cpu", "--batch-size", "3"]
    assert main(["embed", str(tmp_path / "run"), str(local), "--out", str(tmp_path / "a.parquet"), *flags]) == 0
    monkeypatch.setattr(parquet, "IN_ORDER", 1)  # one batch at a time
    address = f"file://{local}"
    assert main(["embed", str(tmp_path / "run"), address, "--out", str(tmp_path / "b.parquet"), *flags]) == 0
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.num_rows == sum(ROWS)
    assert table.equals(pq.read_table(tmp_path / "b.parquet"))
    features = uw.load(tmp_path / "run").embed(address, batch_size=3, workers=0)
    assert [row.as_py() for row in table["content"]] == features["content"].tolist()


def test_a_file_that_vanishes_while_images_are_embedded_is_one_line(local, tmp_path):
    source = open_source(local, random_access=False)
    (local / "deep" / "c.parquet").unlink()
    with pytest.raises(UnweaveError, match=r"c\.parquet cannot be read") as error:
        embed_images(small_model(), source, tmp_path / "z.parquet", workers=0, device="cpu", batch_size=2)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.glob("*z.parquet*"))


def test_training_and_embedding_recognise_sources_alike(local):
    assert identity.identify_source(open_source(local)) == identity.identify_source(open_source(f"file://{local}"))
