"""Maps: one point for each image and space, made once and kept in the folder of the index.

vectors (n, d) ─► a sample of at most m rows ─► PaCMAP or PCA ─► (m, 2), in [-1, 1]
"""

import json
import logging
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from unweave.console import ProgressBar
from unweave.errors import UnweaveError
from unweave.explore.base import SearchIndex
from unweave.explore.config import ExploreConfig
from unweave.files import atomic_write

FOLDER = "maps"
"""Folder of the maps in that of an index."""
SEED = 0
FEWEST_FOR_PACMAP = 50
"""PaCMAP compares each image with tens of others; fewer images get a PCA."""


@dataclass(frozen=True)
class Maps:
    """Where each image lies in the map of each space.

    Examples:
        >>> maps = Maps(rows=np.arange(2), points={"content": np.zeros((2, 2), np.float32)}, method="pca", version="1")
        >>> len(maps.rows)
        2
    """

    rows: np.ndarray
    """Rows (m,) of the index that have a point, in ascending order."""
    points: Mapping[str, np.ndarray]
    """Points (m, 2) of each space, float32 in [-1, 1]."""
    method: str
    """``pacmap`` or ``pca``."""
    version: str
    """Changes where the embeddings of the index change."""


def make_maps(
    index: SearchIndex, folder: Path | None = None, config: ExploreConfig | None = None, *, progress: bool = True
) -> Maps:
    """The maps of an index: those in ``folder`` where they are still valid, new ones otherwise.

    Args:
        index: the index.
        folder: where maps are kept, usually that of the index; by default nowhere.
        config: how maps are made and how many points they have.
        progress: show a progress bar.

    Examples:
        >>> from types import SimpleNamespace
        >>> vectors = np.eye(6, 4, dtype=np.float32)
        >>> class Six(SimpleNamespace):
        ...     def __len__(self): return 6
        >>> index = Six(spaces=("content",), vectors=lambda space: vectors)
        >>> make_maps(index, progress=False).points["content"].shape
        (6, 2)
    """
    config = config or ExploreConfig()
    rows, method = _sample(len(index), config.map_rows), _method(config.map, min(len(index), config.map_rows))
    points, checksums = {}, []
    with ProgressBar(len(index.spaces), 0, f"maps ({method})", show=progress, step="space") as bar:
        for i, space in enumerate(index.spaces):
            vectors = index.vectors(space)
            checksums.append(_checksum(vectors))
            about = {"space": space, "method": method, "rows": len(index), "sample": len(rows), "of": checksums[-1]}
            file = None if folder is None else folder / FOLDER / f"{i}.npz"
            found = _load(file, about)
            if found is None:
                found = project(np.asarray(vectors[rows], np.float32), method)
                _save(file, found, about)
            points[space] = found
            bar.advance(i + 1)
    version = f"{zlib.crc32(json.dumps([len(index), *checksums]).encode()):08x}"
    return Maps(rows, points, method, version)


def project(vectors: np.ndarray, method: str) -> np.ndarray:
    """Vectors (n, d) as points (n, 2) in [-1, 1]; the larger side of the map is 2.

    Examples:
        >>> project(np.array([[0.0, 0, 0], [4, 0, 0], [0, 2, 0]]), "pca").shape
        (3, 2)
    """
    points = _pacmap(vectors) if method == "pacmap" else _pca(vectors)
    if not len(points):
        return points.astype(np.float32)
    low, high = points.min(0), points.max(0)
    side = float((high - low).max()) or 1.0
    return ((points - (low + high) / 2) * (2 / side)).astype(np.float32)


def _pca(vectors: np.ndarray) -> np.ndarray:
    """The two directions of largest variance, from the d × d covariance."""
    centred = vectors - vectors.mean(0, dtype=np.float64).astype(vectors.dtype) if len(vectors) else vectors
    _, directions = np.linalg.eigh((centred.T @ centred).astype(np.float64))
    directions = directions[:, ::-1][:, :2]
    # Eigenvectors have no sign of their own: the largest component is made positive, so that a map is always the same.
    directions = directions * np.sign(directions[np.abs(directions).argmax(0), range(directions.shape[1])])
    points = centred @ directions.astype(vectors.dtype)
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1])))


def _pacmap(vectors: np.ndarray) -> np.ndarray:
    import pacmap

    logging.getLogger("pacmap").setLevel(logging.ERROR)  # it warns that it is seeded
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(pacmap.PaCMAP(n_components=2, random_state=SEED).fit_transform(vectors, init="pca"))


def _method(wanted: str, rows: int) -> str:
    installed = find_spec("pacmap") is not None
    if wanted == "pacmap" and not installed:
        raise UnweaveError("`map` pacmap needs PaCMAP: install unweave[explore], or use pca")
    return "pacmap" if wanted != "pca" and installed and rows >= FEWEST_FOR_PACMAP else "pca"


def _sample(rows: int, most: int) -> np.ndarray:
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(SEED).choice(rows, most, replace=False))


def _checksum(vectors: np.ndarray) -> int:
    """Of up to 1,000 rows: images that were added, removed or embedded anew change it."""
    chosen = np.linspace(0, len(vectors) - 1, min(len(vectors), 1000)).astype(int)
    return zlib.crc32(np.ascontiguousarray(vectors[chosen]).tobytes())


def _load(file: Path | None, about: dict[str, Any]) -> np.ndarray | None:
    if file is None or not file.is_file():
        return None
    try:
        with np.load(file, allow_pickle=False) as found:
            return found["points"] if json.loads(str(found["about"])) == about else None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None


def _save(file: Path | None, points: np.ndarray, about: dict[str, Any]) -> None:
    """Keeps a map; where the folder cannot be written to, it is made anew the next time."""
    if file is None:
        return
    try:
        file.parent.mkdir(exist_ok=True)
        with atomic_write(file) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, points=points, about=np.array(json.dumps(about)))
    except OSError:
        pass
