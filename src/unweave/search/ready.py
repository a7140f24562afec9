"""Making the rows of an index searchable: the store and the spread of the cosines follow the rows."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from unweave.search.files import IndexFiles, Manifest
from unweave.search.stores import open_store
from unweave.search.stores.base import Store

PAIRS = 100_000
"""Random pairs from which the spread of the cosines is computed."""
LEAST_SPREAD = 1e-3
"""The spread of a collapsed space, where cosines differ by rounding alone."""
ALIKE = 0.95
"""The quantile of the cosines of random pairs from which images count as alike."""
BLOCK = 16_384
"""Rows added to a store at a time."""


def make_ready(
    files: IndexFiles, manifest: Manifest, on_progress: Callable[[int, int], None] | None = None
) -> Manifest:
    """Fills the store and computes the spread of the cosines, so that searches see all rows.

    ``on_progress`` is called with the number of rows that were added to the store, and of all to be added.
    """
    store = _store_of(files, manifest)
    if store is not None:
        try:
            _fill(files, manifest, store, on_progress)
        finally:
            store.close()
    manifest = files.merge_parts(manifest)
    spread, alike = {}, {}
    for space in manifest.spaces:
        cosines = random_cosines(files.vectors(manifest, space, manifest.rows))
        spread[space] = max(float(cosines.std()), LEAST_SPREAD) if len(cosines) > 1 else 1.0
        alike[space] = float(np.quantile(cosines, ALIKE)) if len(cosines) else 1.0
    manifest = replace(manifest, ready=manifest.rows, stored=manifest.next_id, spread=spread, alike=alike)
    files.save(manifest)
    return manifest


def require_store(files: IndexFiles, manifest: Manifest) -> None:
    """Raises where the store cannot be used, which is to be known before images are embedded."""
    store = _store_of(files, manifest)
    if store is not None:
        try:
            store.connect()
        finally:
            store.close()


def keep_rows(files: IndexFiles, manifest: Manifest, kept: np.ndarray) -> Manifest:
    """Removes all other rows, first from the store: what an interruption leaves undone is done by repeating this."""
    ids = files.table(manifest, manifest.rows, ["id"])["id"].to_numpy()
    removed = np.setdiff1d(ids, ids[kept])
    store = _store_of(files, manifest)
    if store is not None:
        try:
            store.delete(removed[removed < manifest.stored])
            store.build()
        finally:
            store.close()
    return files.keep(manifest, kept)


def _store_of(files: IndexFiles, manifest: Manifest) -> Store | None:
    return open_store(manifest.store, files.path, sum(manifest.spaces.values()))


def _fill(files: IndexFiles, manifest: Manifest, store: Store, on_progress: Callable[[int, int], None] | None) -> None:
    ids = files.table(manifest, manifest.rows, ["id"])["id"].to_numpy()
    first = int(np.searchsorted(ids, manifest.stored))
    vectors = [files.vectors(manifest, space, manifest.rows) for space in manifest.spaces]
    for start in range(first, len(ids), BLOCK):
        part = slice(start, start + BLOCK)
        store.add(ids[part], np.concatenate([v[part].astype(np.float32) for v in vectors], 1))
        if on_progress:
            on_progress(min(start + BLOCK, len(ids)) - first, len(ids) - first)
    if first < len(ids):
        store.build()


def random_cosines(vectors: np.ndarray) -> np.ndarray:
    """The cosines of random pairs of different rows; of few rows, of all pairs."""
    n = len(vectors)
    if n * (n - 1) // 2 <= PAIRS:
        z = np.asarray(vectors, np.float32)
        return (z @ z.T)[np.triu_indices(n, 1)]
    random = np.random.default_rng(0)
    first = random.integers(0, n, PAIRS)
    second = (first + random.integers(1, n, PAIRS)) % n
    blocks = np.array_split(np.stack([first, second]), 10, 1)
    return np.concatenate([(vectors[a].astype(np.float32) * vectors[b]).sum(1) for a, b in blocks])
