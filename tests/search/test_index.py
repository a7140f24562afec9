"""An index holds the vectors of its run, answers by the formula, and survives interruptions."""

import io
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import unweave as uw
from processes import Child
from small_models import photograph, save_pictures, small_model
from unweave.data.decode import decode
from unweave.errors import UnweaveError
from unweave.files import process_runs
from unweave.inference import export_model
from unweave.search import decoding, files, writing
from unweave.search.files import IndexFiles

SETTINGS = {"workers": 0, "device": "cpu", "progress": False}
WEIGHTS = {"content": 1.0, "hue": -0.3}


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def built(model, photo_folder, tmp_path_factory):
    """Not to be written to."""
    out = tmp_path_factory.mktemp("index") / "index"
    return uw.Index.build(model, photo_folder, out, whiten=False, **{**SETTINGS, "workers": 1}, batch_size=25)


@pytest.fixture
def pictures(tmp_path):
    """Twelve photographs in two classes."""
    for i in range(12):
        target = tmp_path / "pictures" / "ab"[i % 2] / f"{i:02}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        photograph(24 + i, 20, i).save(target)
    return tmp_path / "pictures"


@pytest.fixture
def small_parts(monkeypatch):
    """Rows are written four at a time."""
    monkeypatch.setattr(decoding, "CHUNK", 4)
    monkeypatch.setattr(writing, "PART", 4)


def build(model, data, out, **settings):
    return uw.Index.build(model, data, out, **{**SETTINGS, "batch_size": 4, **settings})


def content(index):
    """All that an index holds, by path."""
    about = (index.path, index.label, index.class_name, index.thumbnail, index.image_file)
    vectors = [index.vectors(space) for space in index.spaces]
    return {index.path(i): [*(get(i) for get in about), *(z[i].tobytes() for z in vectors)] for i in range(len(index))}


def test_vectors_are_the_models_at_unit_length(built, model, photo_folder):
    assert built.spaces == model.spaces == ("content", "hue")
    assert len(built) == 60
    row = 17
    assert built.find(built.path(row)) == row
    expected = model.embed(photo_folder / built.path(row))
    for space in built.spaces:
        stored = torch.from_numpy(np.array(built.vectors(space)[row], np.float32))
        torch.testing.assert_close(stored, F.normalize(expected[space], dim=0), atol=1e-3, rtol=0)
    assert built.image_file(row) == photo_folder / built.path(row)
    assert built.class_name(row) == built.path(row).split("/")[0] == ["new", "old"][built.label(row)]


def test_scores_are_the_weighted_cosines_over_the_spread(built, model, photo_folder):
    image = photograph(40, 50, 77)
    z = {name: F.normalize(value, dim=0).double() for name, value in model.embed(image).items()}
    stored = {space: torch.from_numpy(built.vectors(space).astype(np.float64)) for space in built.spaces}
    cosines = {space: stored[space] @ z[space] for space in built.spaces}
    expected = sum(w / built.spread[space] * cosines[space] for space, w in WEIGHTS.items())
    hits = built.search(image, weights=WEIGHTS, k=60)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert sorted(hit.row for hit in hits) == list(range(60))
    for hit in hits:
        assert hit.score == pytest.approx(float(expected[hit.row]), abs=1e-4)
        assert hit.scores == pytest.approx({s: float(cosines[s][hit.row]) for s in built.spaces}, abs=1e-5)
        assert (hit.path, hit.label) == (built.path(hit.row), built.label(hit.row))
    pairs = np.triu_indices(60, 1)
    for space, z in stored.items():
        assert built.spread[space] == pytest.approx(float((z @ z.T).numpy()[pairs].std()), rel=1e-3)


def test_an_image_finds_the_same_whatever_it_is_passed_as(built, model, photo_folder):
    row = 17
    path = photo_folder / built.path(row)
    expected = [(hit.row, hit.score) for hit in built.search(row, weights=WEIGHTS, k=10)]
    assert row not in [found for found, _ in expected]
    for query in (built.path(row), str(path), path, np.int64(row)):
        assert [(hit.row, hit.score) for hit in built.search(query, weights=WEIGHTS, k=10)] == expected
    outside = (path.read_bytes(), Image.open(path), np.asarray(Image.open(path)), model.embed(path))
    for query in outside:
        query = {s: z for s, z in query.items() if s != "h"} if isinstance(query, dict) else query
        first, *others = built.search(query, weights=WEIGHTS, minimum={"content": 0.9}, k=60)
        assert first.scores["content"] > 0.9
        scores = {hit.row: hit.score for hit in (first, *others)}
        assert scores[row] == pytest.approx(sum(w / built.spread[s] for s, w in WEIGHTS.items()), abs=5e-3)


def test_conditions_leave_out_what_they_say(built):
    everything = built.search(3, weights=WEIGHTS, k=60)
    least = sorted(hit.scores["content"] for hit in everything)[20]
    hits = built.search(3, weights=WEIGHTS, minimum={"content": least}, where="label = 'old'", k=60)
    expected = [h.row for h in everything if h.scores["content"] >= least and h.class_name == "old"]
    assert 0 < len(expected) < 40
    assert [hit.row for hit in hits] == expected


@pytest.mark.parametrize(
    ("query", "options", "words"),
    [
        (0, {"weights": {"x": 1}}, "no space 'x'"), (0, {"weights": {"hue": 0}}, "all zero"),
        (0, {"weights": {"hue": float("nan")}}, "number"), (0, {"minimum": {"x": 1}}, "no space 'x'"),
        (0, {"weights": {"hue": 1e300}}, "1,000,000"), (0, {"weights": {"hue": -1e-9}}, "0.000001"),
        (0, {"weights": {"hue": 10**400}}, "finite number"), (0, {"minimum": {"hue": 1e300}}, "cosine between"),
        (60, {}, "rows 0 to 59"), (-1, {}, "rows 0 to 59"), ("nowhere.jpg", {}, "neither a file nor"),
        (0, {"k": 0}, "`k`"), ({"hue": [1.0, 0]}, {}, "no vector of content"), ([0, 1], {}, "one image"),
        ({"content": [1.0, 0]}, {}, "2 numbers"),
        (b"not an image", {}, "cannot be read"), (0, {"where": "size = 1"}, "`where`"),
    ],
)  # fmt: skip
def test_a_wrong_query_is_refused_in_one_line(built, query, options, words):
    with pytest.raises(UnweaveError, match=words) as error:
        built.search(query, **options)
    assert "\n" not in str(error.value)


def test_thumbnails_are_small_upright_and_whole(model, tmp_path):
    (tmp_path / "photos").mkdir()
    save_pictures(tmp_path / "photos")
    index = build(model, tmp_path / "photos", tmp_path / "index")
    for row in range(len(index)):
        picture = Image.open(io.BytesIO(index.thumbnail(row)))
        assert picture.format == "JPEG"
        assert max(picture.size) <= 128
    rotated = Image.open(io.BytesIO(index.thumbnail(index.find("b-large-rotated.jpg"))))
    assert rotated.size == (85, 128)
    original = Image.open(tmp_path / "photos" / "a.jpg")
    assert Image.open(io.BytesIO(index.thumbnail(index.find("a.jpg")))).size == original.size


def interrupted(monkeypatch, number):
    """Raises at the given call among all that write: vectors, thumbnails, tables and manifests, half done."""
    count = 0
    append, write_table, save = files._append, files._write_table, IndexFiles.save

    def step():
        nonlocal count
        count += 1
        if count == number:
            raise KeyboardInterrupt

    def half_append(path, start, content):
        append(path, start, content[: len(content) // 2])
        step()
        append(path, start, content)

    def half_table(path, table):
        step()
        write_table(path, table)
        step()

    def half_save(self, manifest):
        step()
        save(self, manifest)

    monkeypatch.setattr(files, "_append", half_append)
    monkeypatch.setattr(files, "_write_table", half_table)
    monkeypatch.setattr(IndexFiles, "save", half_save)


@pytest.mark.usefixtures("small_parts")
def test_an_index_that_was_interrupted_anywhere_is_completed_by_the_same_call(model, pictures, tmp_path, monkeypatch):
    expected = content(build(model, pictures, tmp_path / "whole"))
    assert len(expected) == 12
    resumed = 0
    for number in range(1, 40):
        out = tmp_path / f"index-{number}"
        with monkeypatch.context() as patch:
            interrupted(patch, number)
            try:
                build(model, pictures, out)
                break  # there are no more steps
            except KeyboardInterrupt:
                pass
        if (out / "index.json").exists() and not IndexFiles(out).load().ready:
            with pytest.raises(UnweaveError, match="incomplete"):
                uw.Index.open(out)
        assert content(build(model, pictures, out)) == expected, number
        resumed += 1
    assert resumed > 15


@pytest.mark.usefixtures("small_parts")
def test_an_interrupted_prune_or_addition_leaves_an_index_that_can_be_searched(model, pictures, tmp_path, monkeypatch):
    build(model, pictures, tmp_path / "before")
    for i in (1, 6):
        next(pictures.rglob(f"{i:02}.png")).unlink()
    photograph(30, 30, 99).save(pictures / "a" / "new.png")
    shutil.copytree(tmp_path / "before", tmp_path / "expected")
    index = uw.Index.open(tmp_path / "expected", run=model)
    assert (index.prune(), index.add(pictures, **SETTINGS), len(index)) == (2, 1, 11)
    expected, stopped = content(index), 0
    for number in range(1, 30):
        out = tmp_path / f"index-{number}"
        shutil.copytree(tmp_path / "before", out)
        index = uw.Index.open(out, run=model)
        with monkeypatch.context() as patch:
            interrupted(patch, number)
            try:
                index.prune()
                index.add(pictures, **SETTINGS)
            except KeyboardInterrupt:
                stopped += 1
        again = uw.Index.open(out, run=model)
        assert len(again.search(0, weights=WEIGHTS)) >= 9
        again.prune()
        again.add(pictures, **SETTINGS)
        assert content(again) == expected, number
    assert 5 < stopped < 29


def test_two_writers_are_refused(model, pictures, tmp_path, monkeypatch):
    out = tmp_path / "index"
    build(model, pictures, out)
    monkeypatch.setattr(files, "LOCK_TIMEOUT", 0.1)
    with IndexFiles(out).writing(), pytest.raises(UnweaveError, match="another process is writing"):
        build(model, pictures, out)


def build_and_wait(model, data, out):
    """Builds an index with workers, and waits forever after the first rows were written."""
    append = IndexFiles.append

    def append_and_wait(self, *arguments):
        append(self, *arguments)
        (out / "written").touch()
        time.sleep(1000)

    IndexFiles.append = append_and_wait
    writing.PART = 32
    uw.Index.build(model, data, out, workers=2, device="cpu", progress=False, batch_size=32)


def test_an_index_whose_process_was_killed_is_completed_by_the_same_call(model, tmp_path):
    """The workers of the killed process hold its lock, and more images than fit into a pipe."""
    (tmp_path / "photos").mkdir()
    random = np.random.default_rng(0)
    for i in range(400):
        noise = Image.fromarray(random.integers(0, 256, (96, 96, 3), dtype=np.uint8))
        noise.save(tmp_path / "photos" / f"{i:03}.jpg")
    out = tmp_path / "index"
    child = Child(tmp_path / "child", build_and_wait, model, tmp_path / "photos", out)
    deadline = time.monotonic() + 60
    while not (out / "written").exists() and child.is_running() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)  # the workers decode ahead until the pipe is full
    workers = [int(pid) for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()]
    assert len(workers) == 2
    os.kill(child.pid, signal.SIGKILL)
    try:
        assert len(build(model, tmp_path / "photos", out)) == 400
        assert not any(map(process_runs, workers))
    finally:
        for pid in filter(process_runs, workers):
            os.kill(pid, signal.SIGKILL)


def test_added_images_follow_and_labels_keep_their_classes(model, pictures, tmp_path):
    index = build(model, pictures, tmp_path / "index")
    before = content(index)
    assert index.add(pictures, **SETTINGS) == 0
    more = tmp_path / "more"
    for name in ("b", "aa"):
        (more / name).mkdir(parents=True)
        photograph(30, 30, 50).save(more / name / "00.png")
    assert index.add(more, **SETTINGS) == 2
    assert list(content(index).items())[:12] == list(before.items())
    found = {index.path(i): (index.label(i), index.class_name(i)) for i in range(12, 14)}
    assert found == {"aa/00.png": (2, "aa"), "b/00.png": (1, "b")}
    assert content(uw.Index.open(tmp_path / "index")) == content(index)


def test_pruned_images_are_gone_and_the_others_unchanged(model, pictures, tmp_path):
    index = build(model, pictures, tmp_path / "index")
    reader = uw.Index.open(tmp_path / "index")
    before = content(index)
    assert index.prune() == 0
    for name in ("a/00.png", "b/05.png"):
        (pictures / name).unlink()
        del before[name]
    assert index.prune() == 2
    assert content(index) == before
    assert len(reader) == 12
    assert len(reader.search(0, k=20)) == 11
    pictures.rename(tmp_path / "elsewhere")
    with pytest.raises(UnweaveError, match="is not there"):
        index.prune()
    assert len(uw.Index.open(tmp_path / "index")) == 10
    assert index.image_file(0) is None
    assert index.thumbnail(0)


def test_a_folder_without_images_in_the_index_may_be_absent(model, pictures, tmp_path):
    index = build(model, pictures, tmp_path / "index")
    (tmp_path / "more").mkdir()
    photograph(30, 30, 50).save(tmp_path / "more" / "x.png")
    index.add(tmp_path / "more", **SETTINGS)
    (tmp_path / "more" / "x.png").unlink()
    assert index.prune() == 1
    (tmp_path / "more").rmdir()
    assert index.prune() == 0
    (pictures / "a" / "00.png").unlink()
    assert index.prune() == 1


def test_images_of_an_absent_folder_are_pruned_only_if_it_is_named(model, pictures, tmp_path):
    index = build(model, pictures, tmp_path / "index")
    for name in ("more", "pictures-2"):
        (tmp_path / name).mkdir()
        photograph(30, 30, len(name)).save(tmp_path / name / "x.png")
        index.add(tmp_path / name, **SETTINGS)
    shutil.rmtree(tmp_path / "more")
    for removed in ((), [tmp_path / "nowhere"], str(tmp_path / "more")):
        with pytest.raises(UnweaveError, match="`removed`"):
            index.prune(removed=removed)
        assert len(index) == 14
    assert index.prune(removed=[tmp_path / "more"]) == 1
    assert len(index) == 13
    assert index.prune() == 0
    shutil.rmtree(tmp_path / "pictures-2")
    with pytest.raises(UnweaveError, match="pictures-2, where 1 of"):
        index.prune()


def test_an_image_that_is_gone_is_to_be_pruned_and_another_one_added(model, pictures, tmp_path):
    build(model, pictures, tmp_path / "index")
    (pictures / "a" / "00.png").unlink()
    with pytest.raises(UnweaveError, match=r"no longer exist \(1, such as .*00.png\).*`prune`"):
        build(model, pictures, tmp_path / "index")
    (pictures / "b" / "01.png").rename(tmp_path / "elsewhere.png")
    with pytest.raises(UnweaveError, match="holds other images"):
        build(model, [tmp_path / "elsewhere.png"], tmp_path / "index")
    uw.Index.open(tmp_path / "index").prune()
    assert len(build(model, pictures, tmp_path / "index")) == 10


def test_an_absent_run_can_be_named(model, pictures, tmp_path):
    run = tmp_path / "run"
    export_model(model, run, onnx=False)
    build(run, pictures, tmp_path / "index")
    run.rename(tmp_path / "moved")
    with pytest.raises(UnweaveError, match="moved, name its folder with `run`"):
        uw.Index.open(tmp_path / "index").search(photograph(9, 9))
    assert uw.Index.open(tmp_path / "index", run=tmp_path / "moved").search(photograph(9, 9))
    with pytest.raises(UnweaveError, match="nowhere is not the folder of a run"):
        uw.Index.open(tmp_path / "index", run=tmp_path / "nowhere").search(photograph(9, 9))


def test_another_run_and_other_images_are_refused(model, pictures, tmp_path):
    build(model, pictures, tmp_path / "index")
    other = small_model(preparation=[])
    with pytest.raises(UnweaveError, match="made with another run"):
        build(other, pictures, tmp_path / "index")
    with pytest.raises(UnweaveError, match="made with another run"):
        uw.Index.open(tmp_path / "index", run=other).search(photograph(9, 9))
    (tmp_path / "others").mkdir()
    photograph(30, 30, 50).save(tmp_path / "others" / "x.png")
    with pytest.raises(UnweaveError, match="holds other images"):
        build(model, tmp_path / "others", tmp_path / "index")
    with pytest.raises(UnweaveError, match="model in memory"):
        uw.Index.open(tmp_path / "index").search(photograph(9, 9))


def test_a_run_and_its_export_have_one_identity_and_other_weights_another(model, tmp_path):
    export_model(model, tmp_path, onnx=False)
    loaded = uw.load(tmp_path)
    assert loaded.identity == model.identity
    next(loaded.parameters()).data.mul_(1.001)
    assert loaded.identity != model.identity


def test_images_of_tables_are_told_apart_though_their_names_repeat(model, pictures, tmp_path):
    data = [path.read_bytes() for path in sorted(pictures.rglob("*.png"))]
    for name in ("one", "two"):
        rows = [{"bytes": item, "path": f"image_{i % 3}.png"} for i, item in enumerate(data)]
        rows[4]["bytes"] = b"broken"
        pq.write_table(pa.table({"image": rows, "label": list(range(12))}), tmp_path / f"{name}.parquet")
    with pytest.raises(UnweaveError, match="`max_bad`"):
        build(model, tmp_path / "one.parquet", tmp_path / "index")
    index = build(model, tmp_path / "one.parquet", tmp_path / "index", max_bad=0.1)
    assert list(index.unreadable.found) == [4]
    assert len(build(model, tmp_path / "one.parquet", tmp_path / "index", max_bad=0.1)) == 11
    assert [index.label(i) for i in range(11)] == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]
    assert index.add(tmp_path / "two.parquet", max_bad=0.1, **SETTINGS) == 11
    assert index.image_file(0) is None
    with pytest.raises(UnweaveError, match="is the name of"):
        index.find("image_1.png")


def test_files_are_recognised_by_their_address_and_by_their_path(model, pictures, tmp_path):
    (tmp_path / "tables").mkdir()
    rows = [{"bytes": path.read_bytes(), "path": None} for path in sorted(pictures.rglob("*.png"))]
    pq.write_table(pa.table({"image": rows}), tmp_path / "tables" / "a b.parquet")
    address, path = f"file://{tmp_path}/tables", tmp_path / "tables"
    for first, second in ((address, path), (path, address)):
        shutil.rmtree(tmp_path / "index", ignore_errors=True)
        index = build(model, first, tmp_path / "index")
        assert index.add(second, **SETTINGS) == 0
        assert len(build(model, second, tmp_path / "index")) == 12
    files = IndexFiles(tmp_path / "index")
    part = files.folder(files.load()) / files.load().parts[0]
    table = pq.read_table(part)
    keys = [f"file://{key}" for key in table["key"].to_pylist()]  # as they were written before
    pq.write_table(table.set_column(table.schema.get_field_index("key"), "key", pa.array(keys)), part)
    assert uw.Index.open(tmp_path / "index", run=model).add(path, **SETTINGS) == 0


def test_hostile_names_are_found(model, tmp_path):
    names = ["tab\there.png", "quo'te.png", b"bytes\xff.png".decode("utf-8", "surrogateescape"), r"back\x41.png"]
    (tmp_path / "photos").mkdir()
    for i, name in enumerate(names):
        photograph(20, 20, i).save(tmp_path / "photos" / name)
    index = build(model, tmp_path / "photos", tmp_path / "index")
    for i, name in enumerate(names):
        row = index.find(name)
        assert index.image_file(row) == tmp_path / "photos" / name
        assert index.find(tmp_path / "photos" / name) == row
        expected = decode(tmp_path / "photos" / name, 16)
        assert np.array_equal(decode(photograph(20, 20, i), 16), expected)
        index.path(row).encode("utf-8")


def test_neighbours_are_computed_once_and_again_after_an_addition(model, pictures, tmp_path, monkeypatch):
    index = build(model, pictures, tmp_path / "index")
    rows, cosines = index.neighbours("content")
    z = index.vectors("content").astype(np.float32)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    assert cosines[3] == pytest.approx(sorted(np.delete(z @ z[3], 3), reverse=True), abs=1e-5)
    again = uw.Index.open(tmp_path / "index", run=model)
    with monkeypatch.context() as patch:
        patch.setattr("unweave.search.index.nearest_neighbours", None)
        np.testing.assert_array_equal(again.neighbours("content")[0], rows)
    (tmp_path / "more").mkdir()
    shutil.copy(pictures / "a" / "00.png", tmp_path / "more" / "copy.png")
    again.add(tmp_path / "more", **SETTINGS)
    assert len(again.neighbours("content")[0]) == 13
    assert [0, 12] in again.duplicates("content", 0.9999)


def test_spaces_can_be_chosen_and_h_kept(model, pictures, tmp_path):
    index = build(model, pictures, tmp_path / "index", spaces=("hue", "h"))
    assert index.spaces == ("hue", "h")
    assert index.vectors("h").shape == (12, 16)
    with pytest.raises(UnweaveError, match="no space 'x'"):
        build(model, pictures, tmp_path / "other", spaces=("x",))


def test_an_index_keeps_its_spaces_and_store(model, pictures, tmp_path):
    build(model, pictures, tmp_path / "index")
    for settings in ({"spaces": ("hue",)}, {"store": "lance"}):
        with pytest.raises(UnweaveError, match="fixed when an index is built"):
            build(model, pictures, tmp_path / "index", **settings)


def test_a_file_is_not_taken_for_an_image_of_the_same_name(model, pictures, tmp_path, monkeypatch):
    index = build(model, pictures / "a", tmp_path / "index")
    name = index.path(0)
    (tmp_path / "here").mkdir()
    photograph(30, 30, 1234).save(tmp_path / "here" / name)
    monkeypatch.chdir(tmp_path / "here")
    own = index.search(name, k=6)
    assert [(hit.row, hit.score) for hit in own] == [(h.row, h.score) for h in index.search(Image.open(name), k=6)]
    assert len(own) == 6
    monkeypatch.chdir(tmp_path)
    assert len(index.search(name, k=6)) == 5


def test_damaged_and_newer_indexes_are_one_line(model, pictures, tmp_path):
    index = IndexFiles(tmp_path / "index")
    build(model, pictures, index.path)
    manifest = index.load()
    (index.path / "vectors-0" / "hue.f16").write_bytes(b"short")
    with pytest.raises(UnweaveError, match="damaged"):
        uw.Index.open(index.path)
    index.save(replace(manifest, parts=["gone.parquet"]))
    with pytest.raises(UnweaveError, match="damaged"):
        uw.Index.open(index.path)
    for text, words in (
        ("{", "damaged"),
        ('{"format": 99, "unweave": "9"}', "update"),
        ("[]", "damaged"),
        ("{}", "damaged"),
    ):
        index.file.write_text(text)
        with pytest.raises(UnweaveError, match=words):
            uw.Index.open(index.path)
    with pytest.raises(UnweaveError, match="is not an index"):
        uw.Index.open(tmp_path)
