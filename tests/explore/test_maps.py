import json
import shutil
import socket
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.decomposition import PCA

import unweave as uw
from unweave.cli.main import main
from unweave.explore import ExploreConfig, make_maps, write_static_page
from unweave.explore.maps import project

PCA_MAPS = ExploreConfig(map="pca")


def test_a_pca_map_is_that_of_scikit_learn_up_to_scale_and_sign():
    vectors = np.random.default_rng(0).normal(size=(200, 12)) * np.linspace(3, 0.1, 12)
    points, expected = project(vectors, "pca"), PCA(2).fit_transform(vectors)
    for axis in range(2):
        assert abs(np.corrcoef(points[:, axis], expected[:, axis])[0, 1]) > 0.9999
    assert np.ptp(points, axis=0).max() == pytest.approx(2)


@pytest.mark.parametrize("shape", [(1, 4), (2, 1), (5, 1), (3, 2)])
def test_few_images_and_few_dimensions_have_a_map(shape):
    points = project(np.random.default_rng(0).normal(size=shape).astype(np.float32), "pca")
    assert points.shape == (shape[0], 2)
    assert np.isfinite(points).all()


def test_pacmap_keeps_two_clusters_apart_and_prints_nothing():
    pytest.importorskip("pacmap")
    code = (
        "import functools, numpy as np, pacmap; from unweave.explore.maps import project\n"
        "pacmap.PaCMAP = functools.partial(pacmap.PaCMAP, num_iters=(20, 20, 40))\n"
        "x = np.random.default_rng(0).normal(size=(60, 8)).astype('f'); x[30:] += 9\n"
        "a = project(x, 'pacmap')\n"
        "d = np.linalg.norm(a[:, None] - a, axis=-1); assert d[:30, :30].max() < d[:30, 30:].min()"
    )  # compiling takes longer than interpreting so few points
    environment = {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout + done.stderr == ""


def test_maps_are_kept_until_the_index_changes(index, tmp_path, monkeypatch):
    first = make_maps(index, tmp_path, PCA_MAPS, progress=False)
    made = []
    monkeypatch.setattr("unweave.explore.maps.project", lambda *given: made.append(1) or project(*given))
    again = make_maps(index, tmp_path, PCA_MAPS, progress=False)
    assert not made
    for space in index.spaces:
        np.testing.assert_array_equal(first.points[space], again.points[space])
    (tmp_path / "maps" / "1.npz").write_bytes(b"PK damaged")
    make_maps(index, tmp_path, PCA_MAPS, progress=False)
    assert len(made) == 1
    make_maps(index, tmp_path, replace(PCA_MAPS, map_rows=50), progress=False)
    assert len(made) == 1 + len(index.spaces)


def test_a_large_index_has_a_map_of_a_sample(index):
    maps = make_maps(index, None, replace(PCA_MAPS, map_rows=50), progress=False)
    assert len(set(maps.rows.tolist())) == 50 == len(maps.points["color"])
    assert (np.diff(maps.rows) > 0).all()
    with pytest.raises(uw.UnweaveError, match="map_rows"):
        write_static_page(index, maps, None, progress=False)


def test_a_folder_with_other_files_is_not_overwritten(index, maps, tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(uw.UnweaveError, match="not empty"):
        write_static_page(index, maps, tmp_path, progress=False)
    write_static_page(index, maps, tmp_path / "new", progress=False)
    write_static_page(index, maps, tmp_path / "new", progress=False)
    assert len(list((tmp_path / "new" / "data" / "thumbnails").iterdir())) == len(index)


def test_the_command_writes_plain_files_without_the_folders_of_this_machine(index, sprite_folder, tmp_path, capsys):
    out = tmp_path / "site"
    assert main(["explore", str(sprite_folder.parent / "index"), "--static", str(out), "--map", "pca"]) == 0
    assert capsys.readouterr().out.strip() == str(out / "index.html")
    about = json.loads((out / "data" / "index.json").read_text())
    assert about["paths"] == [index.path(row) for row in range(len(index))]
    for file in out.rglob("*.*"):
        assert str(sprite_folder.parent).encode() not in file.read_bytes()


@pytest.mark.parametrize(
    ("flag", "value"), [("static", "full"), ("map-rows", "50"), ("port", "busy"), ("port", "99999")]
)
def test_the_command_refuses_a_wrong_flag_before_it_makes_maps(
    index, sprite_folder, tmp_path, monkeypatch, capsys, flag, value
):
    monkeypatch.setattr("unweave.explore.maps.project", lambda *given: pytest.fail("a map was made"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    new = ["--static", str(tmp_path / "new")] if flag == "map-rows" else []
    with socket.create_server(("127.0.0.1", 0)) as other:
        values = {"full": str(tmp_path / "full"), "busy": str(other.getsockname()[1])}
        given = [f"--{flag}", values.get(value, value), *new, "--map", "pca"]
        copy = shutil.copytree(
            sprite_folder.parent / "index", tmp_path / "index", ignore=shutil.ignore_patterns("maps")
        )
        assert main(["explore", str(copy), *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"--{flag}" in line


def test_a_folder_that_is_not_an_index_is_an_error_of_one_line(tmp_path, capsys):
    assert main(["explore", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
