"""Exact search: the rows with the largest Σ wᵢ·cosᵢ, for weights of either sign.

Legend: n rows, d dimensions of a space, q the query's unit vector in a space.

Vectors are float16 on the disk. One pass over all rows multiplies in float16, which reads half the bytes and whose
results are rounded; the rows whose rounded score could be among the k largest are then scored again in float32. The
answer is that of float32 for all rows.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

BLOCK = 32_768
"""Rows scored at a time: their scores stay in the processor's cache."""
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
    needed = {space: torch.from_numpy(np.asarray(query[space], np.float32)) for space in {**weights, **minimum}}
    if not needed:
        rows = np.arange(len(next(iter(vectors.values())))) if allowed is None else np.flatnonzero(allowed)
        return rows[:k]
    n = len(vectors[next(iter(needed))])
    if allowed is not None and allowed.sum() <= max(FEW * n, k):
        return _rescored(vectors, needed, weights, minimum, np.flatnonzero(allowed), k)
    stored = {space: torch.from_numpy(vectors[space]) for space in needed}
    scores = torch.zeros(n)
    possible = torch.ones(n, dtype=torch.bool) if allowed is None else torch.from_numpy(allowed.copy())
    certain = possible.clone()  # not only because of rounding
    for start in range(0, n, BLOCK):
        part = slice(start, start + BLOCK)
        for space, q in needed.items():
            cosines = (stored[space][part] @ q.to(stored[space].dtype)).float()
            if space in weights:
                scores[part].add_(cosines, alpha=weights[space])
            if space in minimum:
                possible[part] &= cosines >= minimum[space] - ROUNDING
                certain[part] &= cosines >= minimum[space] + ROUNDING
    if int(certain.sum()) >= k:
        least = scores.masked_fill(~certain, -torch.inf).topk(k).values[-1]
        possible &= scores >= least - 2 * ROUNDING * sum(map(abs, weights.values()))
    return _rescored(vectors, needed, weights, minimum, possible.nonzero()[:, 0].numpy(), k)


def _rescored(
    vectors: Mapping[str, np.ndarray],
    query: Mapping[str, Tensor],
    weights: Mapping[str, float],
    minimum: Mapping[str, float],
    rows: np.ndarray,
    k: int,
) -> np.ndarray:
    """The k of these rows with the largest scores in float32; the first of equal ones."""
    scores = torch.zeros(len(rows))
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        for space, q in query.items():
            cosines = cosines_of(vectors[space], rows[part], q)
            if space in weights:
                scores[part].add_(cosines, alpha=weights[space])
            if space in minimum:
                scores[part].masked_fill_(cosines < minimum[space], -torch.inf)
    order = scores.argsort(descending=True, stable=True)[:k]
    return rows[order[torch.isfinite(scores[order])].numpy()]


def cosines_of(vectors: np.ndarray, rows: np.ndarray, query: Tensor) -> Tensor:
    """The cosines of some rows with a unit vector, in float32."""
    return torch.from_numpy(np.asarray(vectors[rows], np.float32)) @ query
