"""Exact search returns the rows of the largest scores, for any weights and conditions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unweave.search import exact
from unweave.search.exact import top_rows


def unit_vectors(rows, dim, seed, spread=1.0):
    random = np.random.default_rng(seed)
    z = random.normal(size=(rows, dim)) * spread + random.normal(size=(1, dim))
    return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float16)


def slow(vectors, query, weights, k, minimum=None, allowed=None):
    """The definition, in float64, by sorting all rows."""
    cosines = {s: vectors[s].astype(np.float64) @ query[s].astype(np.float64) for s in vectors}
    score = sum(weight * cosines[s] for s, weight in weights.items())
    ok = np.ones(len(score), bool) if allowed is None else allowed.copy()
    for s, least in (minimum or {}).items():
        ok &= cosines[s] >= least
    rows = np.flatnonzero(ok)
    return rows[np.argsort(-score[rows], kind="stable")][:k], score


def assert_same(found, vectors, query, weights, k, **conditions):
    """The same scores, since rows of equal scores may come in another order."""
    expected, score = slow(vectors, query, weights, k, **conditions)
    assert len(found) == len(expected) == len(set(found.tolist()))
    np.testing.assert_allclose(score[found], score[expected], atol=1e-6)


@given(
    rows=st.integers(1, 400), k=st.integers(1, 30), seed=st.integers(0, 10**6),
    weights=st.tuples(st.floats(-2, 2), st.floats(-2, 2)), least=st.one_of(st.none(), st.floats(-1, 1)),
    share=st.one_of(st.none(), st.floats(0, 1)), spread=st.sampled_from([1.0, 0.01]),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_the_rows_are_those_of_the_definition(rows, k, seed, weights, least, share, spread):
    """With a small spread, all cosines are nearly 1, and float16 alone would not order them."""
    vectors = {"a": unit_vectors(rows, 24, seed, spread), "b": unit_vectors(rows, 8, seed + 1, spread)}
    random = np.random.default_rng(seed)
    query = {s: unit_vectors(1, z.shape[1], seed + 2)[0].astype(np.float32) for s, z in vectors.items()}
    mixed = dict(zip("ab", weights, strict=True))
    conditions = {
        "minimum": None if least is None else {"b": least},
        "allowed": None if share is None else random.random(rows) < share,
    }
    found = top_rows(vectors, query, mixed, k, **conditions)
    cosines = vectors["b"].astype(np.float64) @ query["b"].astype(np.float64)
    if least is not None and np.abs(cosines - least).min() < 1e-5:
        return  # a cosine at the minimum: float32 and float64 may differ
    assert_same(found, vectors, query, mixed, k, **conditions)


def test_rounding_to_float16_does_not_change_the_answer(monkeypatch):
    """In a collapsed space float16 alone gives other rows."""
    vectors = {"a": unit_vectors(5000, 64, 0, 0.02)}
    query = {"a": unit_vectors(1, 64, 5, 0.5)[0].astype(np.float32)}
    assert_same(top_rows(vectors, query, {"a": 1.0}, 20), vectors, query, {"a": 1.0}, 20)
    monkeypatch.setattr(exact, "_rescored", lambda vectors, query, weights, minimum, rows, k: rows)
    candidates = top_rows(vectors, query, {"a": 1.0}, 20)
    assert len(candidates) > 20
    expected, _ = slow(vectors, query, {"a": 1.0}, 20)
    assert set(expected.tolist()) <= set(candidates.tolist())


@pytest.mark.parametrize("allowed", [0, 3])
def test_fewer_rows_than_asked_for_are_all_returned(allowed):
    vectors = {"a": unit_vectors(100, 8, 0)}
    mask = np.arange(100) < allowed
    query = {"a": vectors["a"][0].astype(np.float32)}
    assert sorted(top_rows(vectors, query, {"a": 1.0}, 20, allowed=mask)) == list(range(allowed))
