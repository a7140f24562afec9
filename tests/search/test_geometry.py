"""The vectors of an index: whitened by its images, the same for queries, and the same after interruptions."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.covariance import oas

import unweave as uw
from small_models import photograph, small_model
from unweave.errors import UnweaveError
from unweave.search import decoding, geometry, writing
from unweave.search.files import IndexFiles
from unweave.search.geometry import Geometry, Whitening, unit

SETTINGS = {"workers": 0, "device": "cpu", "progress": False, "batch_size": 4}


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture
def photos(tmp_path):
    for i in range(24):
        target = tmp_path / "photos" / f"{i:02}.png"
        target.parent.mkdir(exist_ok=True)
        photograph(24 + i, 20, i).save(target)
    return tmp_path / "photos"


@pytest.fixture(autouse=True)
def few_images_are_enough(monkeypatch):
    monkeypatch.setattr(geometry, "PER_DIMENSION", 0.1)


def embeddings(n=300, d=6):
    torch.manual_seed(0)
    return torch.randn(n, d) * torch.tensor([8.0, 2.0, 1.0, 0.5, 0.2, 0.1])[:d] + 3


@pytest.mark.parametrize(("n", "d"), [(300, 6), (20, 40)])  # also of fewer images than dimensions
def test_variances_along_the_principal_axes_are_reduced_by_the_estimates_of_scikit_learn(n, d):
    torch.manual_seed(0)
    z = embeddings(n) if d == 6 else torch.randn(n, d) * torch.linspace(4, 0.1, d) + 1
    x = F.normalize(z.double(), dim=1).numpy()
    covariance, _ = oas(x)
    variance, axes = np.linalg.eigh(covariance)
    mean = np.trace(np.cov(x.T, bias=True)) / d
    kept = (x - x.mean(0)) @ axes / np.sqrt(1 + variance / mean)
    expected = kept @ kept.T / np.outer(*[np.linalg.norm(kept, axis=1)] * 2)
    found = Whitening.fit(z)(z)
    np.testing.assert_allclose(found @ found.T, expected, atol=1e-4)


def test_a_whitening_makes_unrelated_embeddings_orthogonal_on_average():
    z = embeddings()
    assert (unit(z) @ unit(z).T).mean() > 0.2
    assert (Whitening.fit(z)(z) @ Whitening.fit(z)(z).T).mean().abs() < 0.05


def test_a_collapsed_space_is_left_as_it_is():
    z = torch.ones(50, 4) + 1e-7 * torch.randn(50, 4)
    torch.testing.assert_close(Whitening.fit(z)(z), unit(z))


def test_a_space_is_whitened_by_two_images_for_each_dimension(monkeypatch):
    monkeypatch.undo()
    z = embeddings()
    assert set(Geometry.fit({"enough": z[:12], "few": z[:11]}).whitening) == {"enough"}


def test_a_geometry_survives_its_file(tmp_path):
    z = embeddings()
    before = Geometry.fit({"content": z, "few": z[:0]})
    assert set(before.whitening) == {"content"}
    before.save(tmp_path / "geometry.safetensors")
    after = Geometry.load(tmp_path / "geometry.safetensors")
    for space in ("content", "few"):
        assert torch.equal(after.vectors(space, z), before.vectors(space, z))


def test_vectors_of_an_index_and_of_queries_are_whitened_by_its_images(model, photos, tmp_path):
    index = uw.Index.build(model, photos, tmp_path / "index", **SETTINGS)
    features = model.embed(str(photos), workers=0)
    for space in index.spaces:
        expected = Whitening.fit(features[space])(features[space])
        found = torch.from_numpy(np.array(index.vectors(space), np.float32))
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)
        assert not torch.allclose(found, unit(features[space]), atol=0.1)
    copy = tmp_path / "copy.png"
    copy.write_bytes((photos / "07.png").read_bytes())
    for query in (copy, {space: z[7] for space, z in features.items() if space != "h"}):
        hit = index.search(query, weights=dict.fromkeys(index.spaces, 1.0), k=1)[0]
        assert hit.path == "07.png"
        assert hit.scores == pytest.approx(dict.fromkeys(index.spaces, 1.0), abs=2e-3)


def test_additions_and_resumed_indexes_keep_the_geometry(model, photos, tmp_path, monkeypatch):
    whole = uw.Index.build(model, photos, tmp_path / "whole", **SETTINGS)
    monkeypatch.setattr(writing, "PART", 4)
    monkeypatch.setattr(decoding, "CHUNK", 4)
    append = IndexFiles.append
    calls = []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return append(*arguments)

    monkeypatch.setattr(IndexFiles, "append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        uw.Index.build(model, photos, tmp_path / "index", **SETTINGS)
    monkeypatch.setattr(IndexFiles, "append", append)
    resumed = uw.Index.build(model, photos, tmp_path / "index", **SETTINGS)
    before = {space: np.array(whole.vectors(space)) for space in whole.spaces}
    for space in whole.spaces:
        assert np.array_equal(resumed.vectors(space), before[space])
    more = tmp_path / "more"
    more.mkdir()
    for i in range(12):
        photograph(30, 30, 100 + i).save(more / f"new-{i}.png")
    assert whole.add(more, **SETTINGS) == 12
    for space in whole.spaces:
        assert np.array_equal(whole.vectors(space)[:24], before[space])
        expected = Geometry.load(tmp_path / "whole" / "geometry.safetensors").vectors(
            space, model.embed(more / "new-5.png")[space]
        )
        found = torch.from_numpy(np.array(whole.vectors(space)[whole.find("new-5.png")], np.float32))
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)


def test_without_whitening_vectors_are_embeddings_of_unit_length(model, photos, tmp_path):
    index = uw.Index.build(model, photos, tmp_path / "index", whiten=False, **SETTINGS)
    features = model.embed(str(photos), workers=0)
    for space in index.spaces:
        found = torch.from_numpy(np.array(index.vectors(space), np.float32))
        torch.testing.assert_close(found, unit(features[space]), atol=1e-3, rtol=0)
    with pytest.raises(UnweaveError, match=r"`whiten` of the index .* is False, not True"):
        uw.Index.build(model, photos, tmp_path / "index", **SETTINGS)


@pytest.mark.parametrize("damage", ["absent", "cut"])
def test_an_index_without_its_geometry_is_refused_in_one_line(model, photos, tmp_path, damage):
    uw.Index.build(model, photos, tmp_path / "index", **SETTINGS)
    file = tmp_path / "index" / "geometry.safetensors"
    if damage == "absent":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(UnweaveError, match=r"geometry\.safetensors") as error:
        uw.Index.open(tmp_path / "index")
    assert "\n" not in str(error.value)


def test_images_that_cannot_be_read_do_not_prevent_the_fit(model, photos, tmp_path):
    (photos / "05.png").write_bytes(b"not an image")
    index = uw.Index.build(model, photos, tmp_path / "index", max_bad=0.5, **SETTINGS)
    assert len(index) == 23
    assert set(Geometry.load(tmp_path / "index" / "geometry.safetensors").whitening) == set(index.spaces)
