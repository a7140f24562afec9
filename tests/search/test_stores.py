"""All stores return the exact answer on embeddings of photographs, and follow additions and removals."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import unweave as uw
from processes import Child
from small_models import photograph
from unweave.errors import UnweaveError
from unweave.inference import SpacesModel
from unweave.search.files import IndexFiles
from unweave.search.stores import lance as lance_store
from unweave.search.stores import open_store
from unweave.search.stores.base import import_extra
from unweave.search.writing import IndexWriter

SETTINGS = {"workers": 0, "device": "cpu", "progress": False}
PACKAGES = {"lance": "lancedb", "qdrant": "qdrant_client"}
MIXES = [(1.0, 0.0), (1.0, 1.0), (1.0, -0.3)]


@pytest.fixture(params=["exact", "lance", "qdrant"])
def store(request):
    if request.param in PACKAGES:
        pytest.importorskip(PACKAGES[request.param], reason=f"install the extra {request.param!r}")
    return request.param


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    encoder = uw.Encoder(
        uw.SmallConvNet(32, layers=((16, 2), (32, 2)), dim=64), ("content", "style"), dim=24, hidden=64
    )
    return SpacesModel(encoder, input_shape=(3, 32, 32))


@pytest.fixture(scope="module")
def images(tmp_path_factory, request):
    """Photographs of flowers; where the research data is absent, patterns."""
    try:
        return request.getfixturevalue("shared_data") / "flowers102" / "train.parquet"
    except pytest.skip.Exception:
        folder = tmp_path_factory.mktemp("patterns")
        for i in range(600):
            photograph(32, 32, i).save(folder / f"{i:03}.png")
        return folder


def recall(index, queries):
    """The mean share of the 20 largest scores, in float64, that a search returns, for each mix."""
    z = {space: index.vectors(space).astype(np.float64) for space in index.spaces}
    shares = []
    for mix in MIXES:
        weights = dict(zip(index.spaces, mix, strict=True))
        for row in queries:
            score = sum(w / index.spread[s] * (z[s] @ z[s][row]) for s, w in weights.items())
            score[row] = -np.inf
            expected = set(np.argsort(-score)[:20].tolist())
            found = {hit.row for hit in index.search(row, weights=weights, k=20)}
            shares.append(len(expected & found) / 20)
    return np.reshape(shares, (len(MIXES), -1)).mean(1)


def test_the_exact_top_20_is_found_for_weights_of_either_sign(store, model, images, tmp_path, monkeypatch):
    monkeypatch.setattr(lance_store, "FLAT", 300)  # so that its index is used, as of many rows
    index = uw.Index.build(model, images, tmp_path / "index", store=store, **SETTINGS)
    assert len(index) >= 600
    assert recall(index, range(0, len(index), len(index) // 25)).min() >= 0.95
    index.close()


def test_a_store_follows_additions_removals_and_conditions(store, model, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(40):
        photograph(32, 32, i).save(folder / f"{i:02}.png")
    index = uw.Index.build(model, folder, tmp_path / "index", store=store, **SETTINGS)
    for i in (3, 20, 21):
        (folder / f"{i:02}.png").unlink()
    assert index.prune() == 3
    Image.new("RGB", (32, 32), "red").save(folder / "red.png")
    assert index.add(folder, **SETTINGS) == 1
    index.close()
    index, exact = uw.Index.open(tmp_path / "index", run=model), uw.Index.open(tmp_path / "index", run=model)
    exact._store = None
    for options in (
        {}, {"where": "path < '10.png'"}, {"where": "path in ('red.png', '05.png')"}, {"minimum": {"content": 0.5}},
        {"minimum": {"style": 0.9}, "where": "path > '05.png'"},
    ):  # fmt: skip
        found, expected = (
            one.search(30, weights={"content": 1, "style": -0.3}, k=12, **options) for one in (index, exact)
        )
        assert [hit.row for hit in found] == [hit.row for hit in expected], options
    assert index.search(folder / "red.png", k=38)
    index.close()


def test_a_store_that_was_filled_only_in_part_is_completed(store, model, tmp_path):
    """As after an interruption: some vectors are there already, and the manifest counts none."""
    (tmp_path / "photos").mkdir()
    for i in range(12):
        photograph(32, 32, i).save(tmp_path / "photos" / f"{i:02}.png")
    files = IndexFiles(tmp_path / "index")
    index = uw.Index.build(model, tmp_path / "photos", files.path, store=store, **SETTINGS)
    expected = [(hit.row, hit.score) for hit in index.search(0)]
    index.close()
    manifest = files.load()
    if store != "exact":
        opened = open_store(manifest.store, files.path, 48)
        opened.delete(np.arange(5, 12))
        opened.close()
    files.save(replace(manifest, stored=0, ready=0))
    again = uw.Index.build(model, tmp_path / "photos", files.path, store=store, **SETTINGS)
    assert [(hit.row, hit.score) for hit in again.search(0)] == expected
    assert len(expected) == 11
    again.close()


def test_queries_from_several_threads_are_answered_alike(store, model, images, tmp_path):
    index = uw.Index.build(model, images, tmp_path / "index", store=store, **SETTINGS)
    rows = list(range(0, 60, 3)) * 3
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda row: index.search(row, weights={"content": 1, "style": -0.3}), rows))
    assert found[:20] == found[20:40] == found[40:]
    index.close()


def test_a_missing_package_names_the_extra():
    with pytest.raises(UnweaveError, match=r"unweave\[lance\]"):
        import_extra("no_such_package", "lance")


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "photos").mkdir()
    for i in range(6):
        photograph(32, 32, i).save(tmp_path / "photos" / f"{i}.png")
    return tmp_path / "photos"


@pytest.fixture
def servers(monkeypatch):
    """Qdrant servers that are memory of this process, by address; the others cannot be reached."""
    qdrant_client = pytest.importorskip("qdrant_client")
    from unweave.search.stores.qdrant import QdrantStore

    clients = {f"http://server-{i}": qdrant_client.QdrantClient(":memory:") for i in (1, 2)}
    monkeypatch.setattr(QdrantStore, "_connect", lambda self: clients[self._url])
    monkeypatch.setattr(QdrantStore, "close", lambda self: None)
    return clients


def test_an_unreachable_server_is_one_line_before_images_are_embedded(model, photos, tmp_path, monkeypatch):
    pytest.importorskip("qdrant_client")
    monkeypatch.setattr(IndexWriter, "add", None)
    settings = {**SETTINGS, "store": "qdrant", "store_url": "http://127.0.0.1:9"}
    with pytest.raises(UnweaveError, match="`store_url`") as error:
        uw.Index.build(model, photos, tmp_path / "index", **settings)
    assert "\n" not in str(error.value)


def test_the_address_of_a_server_can_be_corrected(model, photos, tmp_path, servers):
    out, settings = tmp_path / "index", {**SETTINGS, "store": "qdrant"}
    for wrong in ("http://nowhere", "http://nowhere-else"):
        with pytest.raises(UnweaveError, match=f"Qdrant at {wrong} failed"):
            uw.Index.build(model, photos, out, **settings, store_url=wrong)
    for address, client in servers.items():
        index = uw.Index.build(model, photos, out, **settings, store_url=address)
        assert len(index) == 6
        (collection,) = client.get_collections().collections
        assert client.count(collection.name).count == 6
        assert IndexFiles(out).load().store["url"] == address
    with pytest.raises(UnweaveError, match="Qdrant at http://nowhere failed"):
        uw.Index.build(model, photos, out, **settings, store_url="http://nowhere")
    assert len(uw.Index.open(out, run=model).search(0)) == 5


def add_with_a_worker(model, photos, out):
    print(uw.Index.open(out, run=model).add(photos, **{**SETTINGS, "workers": 1}))


def test_images_are_added_to_a_lance_index_without_warnings(model, photos, tmp_path):
    """LanceDB warns of every fork, and images are decoded by forked workers."""
    pytest.importorskip("lancedb")
    uw.Index.build(model, photos, tmp_path / "index", store="lance", **SETTINGS).close()
    photograph(32, 32, 9).save(photos / "9.png")
    done = Child(tmp_path / "child", add_with_a_worker, model, photos, tmp_path / "index").wait()
    assert (done.returncode, done.stdout.strip()) == (0, "1")
    assert "Warning" not in done.stderr
