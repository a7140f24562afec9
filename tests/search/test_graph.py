"""The graph of neighbours is scikit-learn's; groups and outliers are those that were planted."""

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from unweave.search import graph
from unweave.search.graph import duplicate_groups, nearest_neighbours, outlier_rows


def unit_vectors(rows, dim, seed=0):
    z = np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)
    return z / np.linalg.norm(z, axis=1, keepdims=True)


@pytest.mark.parametrize("columns", [7, 64, 256, 499, 1000])
def test_neighbours_are_those_of_scikit_learn_whatever_the_blocks(monkeypatch, columns):
    z = unit_vectors(500, 16)
    monkeypatch.setattr(graph, "COLUMNS", columns)
    monkeypatch.setattr(graph, "PRODUCTS", columns * 70)
    monkeypatch.setattr(graph, "GROUP", 3)
    done = []
    rows, cosines = nearest_neighbours(z, on_progress=done.append)
    distances, expected = NearestNeighbors(n_neighbors=21, metric="cosine").fit(z).kneighbors(z)
    assert rows.shape == cosines.shape == (500, 20)
    np.testing.assert_array_equal(rows, expected[:, 1:])
    np.testing.assert_allclose(cosines, 1 - distances[:, 1:], atol=1e-5)
    assert done[-1] == 500


def test_few_rows_have_fewer_neighbours():
    assert nearest_neighbours(unit_vectors(3, 4))[0].shape == (3, 2)
    assert nearest_neighbours(unit_vectors(1, 4))[0].shape == (1, 0)


def test_planted_duplicates_and_outliers_are_found():
    random = np.random.default_rng(0)
    z = unit_vectors(300, 32) * 0.3
    z[:, 0] += 1  # a common direction, which one row does not share
    z[50:80] = z[50] + 0.001 * random.normal(size=(30, 32))  # more copies than neighbours
    z[[7, 200]] = z[7] + 0.001 * random.normal(size=(2, 32))
    z[123] = -np.eye(32)[5]
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    rows, cosines = nearest_neighbours(z.astype(np.float16))
    assert duplicate_groups(rows, cosines, 0.999) == [list(range(50, 80)), [7, 200]]
    assert duplicate_groups(rows, cosines, 1.1) == []
    (first, mean), *others = outlier_rows(cosines, 3)
    assert first == 123
    assert len(others) == 2
    assert all(mean < value for _, value in others)
