"""``unweave index``, ``search`` and ``duplicates`` on the command line."""

import json
import re
import shutil

import pytest

import unweave as uw
from small_models import photograph, small_model
from unweave.cli.main import main
from unweave.inference import export_model

INDEX = ("--workers", "0", "--device", "cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "export"
    export_model(small_model(), out, onnx=False)
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("photos")
    for i in range(24):
        target = path / ("cat" if i % 2 else "dog") / f"{i:02}.png"
        target.parent.mkdir(exist_ok=True)
        photograph(30, 30, i).save(target)
    return path


@pytest.fixture(scope="module")
def index(run, folder, tmp_path_factory):
    """Not to be written to."""
    out = tmp_path_factory.mktemp("index") / "index"
    assert main(["index", str(run), str(folder), "--out", str(out), *INDEX]) == 0
    return out


def call(capsys, *words):
    capsys.readouterr()
    status = main([str(word) for word in words])
    return status, *capsys.readouterr()


def found(capsys, *words):
    status, out, _ = call(capsys, "search", *words, "--json")
    assert status == 0
    return json.loads(out)


def test_the_table_has_a_row_for_each_hit_and_a_column_for_each_space(index, capsys):
    status, out, _ = call(capsys, "search", index, "3", "dog/04.png", "-k", "5")
    assert status == 0
    tables = re.split(r"^# .*\n", out, flags=re.MULTILINE)[1:]
    assert [len(table.splitlines()) for table in tables] == [6, 6]
    assert tables[0].splitlines()[0].split() == ["row", "score", "content", "hue", "class", "path"]
    expected = uw.Index.open(index).search(3, k=5)
    assert [int(line.split()[0]) for line in tables[0].splitlines()[1:]] == [hit.row for hit in expected]


def test_flags_give_the_weights_and_conditions_they_name(index, capsys):
    opened = uw.Index.open(index)
    mixed = found(capsys, index, "3", "--like", "content", "--unlike", "hue", "-k", "30")
    assert mixed["weights"] == {"content": 1.0, "hue": -0.3}
    assert mixed["minimum"] == {"content": opened.alike["content"]}
    hits = mixed["queries"][0]["hits"]
    assert 0 < len(hits) < 23
    assert min(hit["scores"]["content"] for hit in hits) >= opened.alike["content"]
    same = found(
        capsys, index, "3", "--weights", "content=1,hue=-0.3", "--min", "content=0.9", "--where", "label = 'cat'"
    )
    assert same["minimum"] == {"content": 0.9}
    assert {hit["class_name"] for hit in same["queries"][0]["hits"]} == {"cat"}
    assert found(capsys, index, "3", "--space", "hue")["weights"] == {"hue": 1.0}
    assert found(capsys, index, "3")["weights"] == {"content": 1.0}


def test_a_contact_sheet_shows_the_query_and_the_hits(index, folder, capsys, tmp_path):
    photo = tmp_path / "own <b>.png"
    photograph(60, 40, 99).save(photo)
    sheet = tmp_path / "sheet.html"
    assert call(capsys, "search", index, photo, "-k", "4", "--html", sheet)[0] == 0
    page = sheet.read_text()
    assert page.count("data:image/jpeg;base64,") == 5
    assert "<b>" not in page
    assert not re.search(r"(src|href)=.?https?://", page)


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["3", "--weights", "content"], "--weights"), (["3", "--weights", "x=1"], "--weights"),
        (["3", "--unlike", "hue"], "--like"), (["3", "--space", "hue", "--weights", "hue=1"], "--space"),
        (["3", "--where", "label ="], "--where"), (["999"], "rows 0 to 23"), (["x.jpg"], "x.jpg"), ([], "QUERY"),
        (["3", "-k", "0"], "--k"), (["3", "--like", "x"], "--like"),
        (["3", "--like", "hue", "--unlike", "hue"], "--like"),
        (["3", "--weights", "hue=1e300"], "1,000,000"), (["3", "--weights", "hue=1,hue=2"], "hue is named twice"),
        (["3", "--min", "hue=2"], "--min hue=2"), (["3", "--html", "nowhere/x.html"], "--html nowhere/x.html"),
        (["--like", "content", "3"], "--like content -- 3"), (["3", "--html", "."], "--html"),
    ],
)  # fmt: skip
def test_wrong_flags_are_one_line(index, capsys, words, flag):
    status, out, said = call(capsys, "search", index, *words)
    assert status == 2
    assert flag in said
    assert len(said.splitlines()) == 1
    assert not out


def test_queries_may_follow_two_dashes(index, capsys):
    status, out, _ = call(capsys, "search", index, "--json", "--like", "content", "--", "3")
    assert status == 0
    assert json.loads(out) == found(capsys, index, "3", "--like", "content")


def test_bytes_that_are_not_unicode_are_printed_escaped(index, capsys, tmp_path):
    photo = tmp_path / b"\xff.png".decode("utf-8", "surrogateescape")
    photograph(30, 30, 5).save(photo)
    where = f"path != '{photo.name}'"
    status, out, _ = call(capsys, "search", index, photo, "--where", where, "--json")
    assert status == 0
    out.encode("utf-8")
    assert json.loads(out)["where"] == r"path != '\xff.png'"
    assert call(capsys, "search", index, photo, "--html", photo.with_suffix(".html"))[0] == 0


def test_the_run_of_an_index_may_be_moved(run, folder, capsys, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    photograph(30, 30, 70).save(tmp_path / "query.png")
    words = ["search", tmp_path / "index", tmp_path / "query.png"]
    assert call(capsys, "index", tmp_path / "run", folder, "--out", tmp_path / "index", *INDEX)[0] == 0
    (tmp_path / "run").rename(tmp_path / "moved")
    status, _, said = call(capsys, *words)
    assert (status, len(said.splitlines())) == (2, 1)
    assert "--run" in said
    assert call(capsys, *words, "--run", tmp_path / "moved")[0] == 0


def test_duplicates_and_outliers_are_listed(index, run, folder, capsys, tmp_path):
    copies = tmp_path / "photos"
    shutil.copytree(folder, copies)
    shutil.copy(copies / "cat" / "01.png", copies / "dog" / "copy.png")
    out = tmp_path / "index"
    assert main(["index", str(run), str(copies), "--out", str(out), *INDEX]) == 0
    status, said, _ = call(capsys, "duplicates", out, "--threshold", "0.99999", "--json", "--device", "cpu")
    assert status == 0
    groups = [[item["path"] for item in group] for group in json.loads(said)["groups"]]
    assert ["cat/01.png", "dog/copy.png"] in groups
    sheet = tmp_path / "sheet.html"
    _, said, _ = call(capsys, "duplicates", out, "--space", "hue", "--outliers", "3", "--html", sheet)
    assert len(said.splitlines()) == 4
    assert said.splitlines()[0] == "outliers in hue: 3 images"
    _, listed, _ = call(capsys, "duplicates", out, "--space", "hue", "--outliers", "3", "--json")
    expected = uw.Index.open(out).outliers("hue", 3)
    assert [(item["row"], item["mean_cosine"]) for item in json.loads(listed)["groups"][0]] == expected
    for more, word in ((["--outliers", "0"], "--outliers"), (["--html", tmp_path / "no" / "x.html"], "--html")):
        status, listed, said = call(capsys, "duplicates", out, *more)
        assert (status, listed, len(said.splitlines())) == (2, "", 1)
        assert word in said
    assert sheet.read_text().count("data:image/jpeg") == 3


def test_an_index_is_extended_pruned_and_keeps_its_run(run, folder, capsys, tmp_path):
    photos, out = tmp_path / "photos", tmp_path / "index"
    shutil.copytree(folder, photos)
    words = ["index", run, photos, "--out", out, *INDEX]
    assert call(capsys, *words)[0] == 0
    assert call(capsys, *words)[0] == 0
    (photos / "cat" / "01.png").unlink()
    photograph(30, 30, 70).save(photos / "cat" / "new.png")
    status, _, said = call(capsys, *words)  # it holds an image that is gone
    assert status == 2
    assert "--prune" in said
    status, _, said = call(capsys, *words, "--add", "--prune")
    assert status == 0
    assert "1 image removed" in said
    assert "1 image added" in said
    assert len(uw.Index.open(out)) == 24
    assert call(capsys, "index", run, "--out", out, "--prune")[0] == 0
    (tmp_path / "more").mkdir()
    photograph(30, 30, 71).save(tmp_path / "more" / "x.png")
    assert call(capsys, "index", run, tmp_path / "more", "--out", out, "--add", *INDEX)[0] == 0
    shutil.rmtree(tmp_path / "more")
    status, _, said = call(capsys, "index", run, "--out", out, "--prune")
    assert status == 2
    assert "--removed" in said
    assert call(capsys, "index", "--prune", "--removed", tmp_path / "more", run, "--out", out)[0] == 0
    assert len(uw.Index.open(out)) == 24
    assert call(capsys, *words, "--removed", tmp_path / "more")[0] == 2
    assert call(capsys, *words, "--add", "--store-url", "http://127.0.0.1:9")[0] == 2
    other = tmp_path / "other"
    export_model(small_model(preparation=[]), other, onnx=False)
    for more in ([], ["--add"], ["--prune"]):
        status, _, said = call(capsys, "index", other, photos, "--out", out, *more, *INDEX)
        assert status == 2
        assert "another run" in said
        assert len(said.splitlines()) == 1
    for more in (["--out", tmp_path / "nothing", "--add"], ["--out", out, "--add", "--store", "lance"]):
        assert call(capsys, "index", run, photos, *more, *INDEX)[0] == 2
    assert call(capsys, "index", run, "--out", out)[0] == 2
