"""benchmarks/search.py with the embeddings of photographs."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import unweave as uw
from unweave.search import geometry

FILE = Path(__file__).parents[1] / "benchmarks" / "search.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("search_benchmark", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rows_are_photographs_then_views_of_them(benchmark, photo_run, photo_folder, monkeypatch):
    monkeypatch.setattr(geometry, "PER_DIMENSION", 1000)  # so that vectors are embeddings of unit length
    vectors, queries = benchmark.embed_photographs(photo_run, [str(photo_folder)], rows=130, queries=4)
    spaces = ("content", "spatial", "appearance")
    files = sorted(photo_folder.rglob("*.jpg"))
    expected = {name: z.numpy() for name, z in uw.load(photo_run).embed(files).items()}
    for space in spaces:
        unit = expected[space] / np.linalg.norm(expected[space], axis=1, keepdims=True)
        asked = np.stack([query[space] for query in queries])
        assert len(vectors[space]) == 130
        nearest = np.concatenate([asked, vectors[space][:56]]) @ unit.T
        assert nearest.max(1).min() > 0.999
        assert sorted({int(i) for i in nearest.argmax(1)}) == list(range(60))
        rest = vectors[space][56:].astype(np.float32)
        np.testing.assert_allclose(np.linalg.norm(rest, axis=1), 1, atol=1e-3)
        assert len(np.unique(rest, axis=0)) > 60  # some views are all white


def test_the_command_measures_a_run(benchmark, photo_run, photo_folder, tmp_path, monkeypatch):
    out = tmp_path / "search.json"
    given = ["--run", str(photo_run), "--photos", str(photo_folder), "--quick", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["search.py", *given])
    benchmark.main()
    found = json.loads(out.read_text())
    assert found["settings"]["vectors"] == "of photographs"
    exact = next(row for row in found["rows"] if row["store"] == "exact")
    assert exact["rows"] == 300
    assert [answer["recall"] for answer in exact["queries"]] == [1.0] * 4


def test_a_run_needs_photographs(benchmark, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["search.py", "--run", "run"])
    with pytest.raises(SystemExit, match="--photos"):
        benchmark.main()


@pytest.mark.parametrize("weights", [(1.0, 0.0), (1.0, 1.0), (1.0, -0.3)])
def test_the_graph_of_qdrant_finds_the_exact_top_20(benchmark, embedded, weights):
    """By Qdrant's own engine: the files of its Python client are searched without a graph."""
    pytest.importorskip("qdrant_edge")
    found, exact = embedded
    assert found._store.in_graph == len(found)
    mix = dict(zip(("content", "appearance"), weights, strict=True))
    recalls = []
    for row in range(0, len(found), 25):
        expected, hits = (index.search(row, weights=mix, k=20) for index in (exact, found))
        recalls.append(len({hit.row for hit in expected} & {hit.row for hit in hits}) / 20)
    assert np.mean(recalls) >= 0.95


@pytest.fixture(scope="module")
def embedded(benchmark, photo_run, shared_data, tmp_path_factory):
    """Photographs of flowers, searched by Qdrant's engine and exactly."""
    folder = tmp_path_factory.mktemp("engine")
    photos = shared_data / "flowers102" / "train.parquet"
    found = uw.Index.build(uw.load(photo_run), photos, folder / "index", device="cpu", workers=0, progress=False)
    exact = uw.Index.open(folder / "index")
    benchmark.use_engine(found, folder / "qdrant", least=1)
    yield found, exact
    found.close()
