"""Exact search: the rows with the largest Σ wᵢ·cosᵢ, for weights of either sign.

Legend: n rows, d dimensions of a space, q the query's unit vector in a space.

Vectors are float16 on the disk. One pass over all rows multiplies in float16, which reads half the bytes and whose
results are rounded; the rows whose rounded score could be among the k largest are then scored again in float32. The
answer is that of float32 for all rows.
"""

from collections.abc import Mapping

import numpy as np
import torch

BLOCK = 32_768
"""Rows copied at a time."""
ROUNDING = 2e-3
"""More than the error of a cosine in float16, where numbers and results are rounded by at most 2⁻¹¹ of their size."""
FEW = 0.05
"""Where at most this fraction of the rows is allowed, these are copied and scored alone."""


def top_rows(
    vectors: Mapping[str, np.ndarray],
    query: Mapping[str, np.ndarray],
    weights: Mapping[str, float],
    k: int,
    *,
    minimum: Mapping[str, float] | None = None,
    allowed: np.ndarray | None = None,
) -> np.ndarray:
    """The k rows with the largest scores, best first; fewer where fewer are allowed.

    Args:
        vectors: of each space, (n, d) of unit length.
        query: of each space that has a weight or a minimum, (d,) of unit length.
        weights: of each space in the score; spaces without one count nothing.
        k: the number of rows.
        minimum: the smallest cosine in a space.
        allowed: (n,) whether a row may be in the answer.

    Examples:
        >>> z = np.eye(3, dtype=np.float16)
        >>> top_rows({"content": z}, {"content": np.float32([0.6, 0.8, 0])}, {"content": 1.0}, 2).tolist()
        [1, 0]
        >>> top_rows({"content": z}, {"content": np.float32([0.6, 0.8, 0])}, {"content": -1.0}, 1).tolist()
        [2]
    """
    weights = {space: weight for space, weight in weights.items() if weight}
    minimum = minimum or {}
    needed = {space: np.asarray(query[space], np.float32) for space in {**weights, **minimum}}
    n = len(next(iter(vectors.values())))
    if allowed is not None and np.count_nonzero(allowed) <= max(FEW * n, k):
        return _rescored(vectors, needed, weights, minimum, np.flatnonzero(allowed), k)
    scores = np.zeros(n, np.float32)
    possible = np.ones(n, bool) if allowed is None else allowed.copy()
    certain = possible.copy()  # whatever the rounding
    for space, q in needed.items():
        cosines = _rounded_cosines(vectors[space], q)
        if space in weights:
            scores += np.float32(weights[space]) * cosines
        if space in minimum:
            possible &= cosines >= minimum[space] - ROUNDING
            certain &= cosines >= minimum[space] + ROUNDING
    if np.count_nonzero(certain) >= k:
        safe = scores if certain.all() else np.where(certain, scores, -np.float32(np.inf))
        least = float(torch.from_numpy(safe).topk(k).values[-1])
        possible &= scores >= least - 2 * ROUNDING * sum(map(abs, weights.values()))
    return _rescored(vectors, needed, weights, minimum, np.flatnonzero(possible), k)


def _rounded_cosines(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """The cosines of all rows with a unit vector, from products of float16.

    One call of torch for all rows: each would wait for all threads, which takes long where other programs use the
    processor too.
    """
    stored = torch.from_numpy(vectors)
    return (stored @ torch.from_numpy(query).to(stored.dtype)).numpy().astype(np.float32)


def _rescored(
    vectors: Mapping[str, np.ndarray],
    query: Mapping[str, np.ndarray],
    weights: Mapping[str, float],
    minimum: Mapping[str, float],
    rows: np.ndarray,
    k: int,
) -> np.ndarray:
    """The k of these rows with the largest scores in float32; the first of equal ones."""
    scores = np.zeros(len(rows), np.float32)
    for space, q in query.items():
        cosines = cosines_of(vectors[space], rows, q)
        if space in weights:
            scores += np.float32(weights[space]) * cosines
        if space in minimum:
            scores[cosines < minimum[space]] = -np.inf
    order = np.argsort(-scores, kind="stable")[:k]
    return rows[order[np.isfinite(scores[order])]]


def cosines_of(vectors: np.ndarray, rows: np.ndarray, query: np.ndarray) -> np.ndarray:
    """The cosines of some rows with a unit vector, in float32."""
    parts = [rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK)]
    found = [np.asarray(vectors[part], np.float32) @ query for part in parts]
    return np.concatenate(found) if found else np.empty(0, np.float32)
