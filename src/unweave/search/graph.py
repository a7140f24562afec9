"""The graph of nearest neighbours in a space, and what follows from it: near-duplicates and outliers.

Legend: n rows, d dimensions.
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

NEIGHBOURS = 20
PRODUCTS = 2**25
"""Cosines computed at a time: 128 MB as float32."""
COLUMNS = 32_768
"""Rows compared with at a time."""
GROUP = 32
"""Columns of which the maximum is taken first."""


def nearest_neighbours(
    vectors: np.ndarray,
    device: torch.device | str = "cpu",
    on_progress: Callable[[int], None] | None = None,
    k: int = NEIGHBOURS,
) -> tuple[np.ndarray, np.ndarray]:
    """The k other rows with the largest cosines, and these: (n, k) int32 and float32, largest first.

    All pairs are compared. ``on_progress`` is called with the number of rows done.

    Examples:
        >>> z = np.float32([[1, 0], [0.8, 0.6], [0, 1]])
        >>> nearest_neighbours(z, k=1)[0].tolist()
        [[1], [0], [1]]
    """
    n, device = len(vectors), torch.device(device)
    k = min(k, n - 1)
    rows_at_a_time = max(1, PRODUCTS // min(n, COLUMNS))
    rows, cosines = np.empty((n, k), np.int32), np.empty((n, k), np.float32)
    for start in range(0, n if k > 0 else 0, rows_at_a_time):
        query = _load(vectors, start, start + rows_at_a_time, device)
        best = torch.full((len(query), k), -torch.inf, device=device)
        place = torch.zeros((len(query), k), dtype=torch.int64, device=device)
        for left in range(0, n, COLUMNS):
            products = query @ _load(vectors, left, left + COLUMNS, device).T
            itself = torch.arange(start, start + len(query), device=device) - left
            inside = (itself >= 0) & (itself < products.shape[1])
            products[inside.nonzero()[:, 0], itself[inside]] = -torch.inf
            values, indices = _top(products, k)
            best, order = torch.cat([best, values], 1).topk(k, 1)
            place = torch.cat([place, indices + left], 1).gather(1, order)
        part = slice(start, start + len(query))
        rows[part], cosines[part] = place.cpu().numpy(), best.cpu().numpy()
        if on_progress:
            on_progress(start + len(query))
    return rows, cosines


def _top(products: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row and their columns: they are in the k groups of columns with the largest maxima.

    Maxima of groups are several times faster than ``topk`` of whole rows.
    """
    rows, columns = products.shape
    if columns < 4 * k * GROUP:
        return products.topk(min(k, columns), 1)
    whole = columns - columns % GROUP
    groups = products[:, :whole].unflatten(1, (-1, GROUP))
    chosen = groups.amax(2).topk(k, 1).indices
    inside = groups.gather(1, chosen[..., None].expand(rows, k, GROUP)).flatten(1)
    where = (chosen[..., None] * GROUP + torch.arange(GROUP, device=products.device)).flatten(1)
    rest = torch.arange(whole, columns, device=products.device).expand(rows, -1)
    values, order = torch.cat([inside, products[:, whole:]], 1).topk(k, 1)
    return values, torch.cat([where, rest], 1).gather(1, order)


def _load(vectors: np.ndarray, start: int, stop: int, device: torch.device) -> Tensor:
    """Rows at unit length, so that equal ones have a cosine of 1 though they were rounded."""
    return F.normalize(torch.from_numpy(np.ascontiguousarray(vectors[start:stop])).to(device, torch.float32), dim=1)


def duplicate_groups(rows: np.ndarray, cosines: np.ndarray, threshold: float) -> list[list[int]]:
    """Groups of rows that are connected by neighbours with a cosine of at least ``threshold``, largest group first.

    Two rows of a group may be less alike than that, if rows between them are.

    Examples:
        >>> duplicate_groups(np.array([[1], [0], [0]]), np.array([[0.99], [0.99], [0.5]]), 0.98)
        [[0, 1]]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(rows)
    first, place = np.nonzero(cosines >= threshold)
    if not len(first):
        return []
    edges = coo_array((np.ones(len(first), bool), (first, rows[first, place])), (n, n))
    _, member = connected_components(edges, directed=False)
    order = np.argsort(member, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(member[order])) + 1)
    return sorted((group.tolist() for group in groups if len(group) > 1), key=lambda g: (-len(g), g[0]))


def outlier_rows(cosines: np.ndarray, k: int) -> list[tuple[int, float]]:
    """The k rows with the smallest mean cosine to their neighbours, and that mean.

    Examples:
        >>> outlier_rows(np.array([[0.9, 0.8], [0.2, 0.2], [0.9, 0.7]]), 1)
        [(1, 0.2)]
    """
    if not cosines.shape[1]:
        return []
    mean = cosines.mean(1)
    return [(int(row), float(mean[row])) for row in np.argsort(mean, kind="stable")[:k]]
