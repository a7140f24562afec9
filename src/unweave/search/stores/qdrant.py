"""Vectors in Qdrant: on a server by its URL, or in files of the index, which suits tests and small collections.

A key for the server is read from the environment variable QDRANT_API_KEY.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from unweave.errors import UnweaveError
from unweave.search.stores.base import import_extra

LINKS, BUILD_WIDTH, SEARCH_WIDTH = 32, 256, 512
"""Of Qdrant's graph: links of a vector, and candidates kept when it is built and searched. They are larger than
Qdrant's own defaults, since queries with other weights lie elsewhere than the vectors."""
BATCH = 1000


def search_width(k: int) -> int:
    """Candidates kept in a search for k vectors."""
    return max(SEARCH_WIDTH, 4 * k)


class QdrantStore:
    """A collection of vectors.

    Args:
        url: of the server; None keeps files in ``folder``.
        folder: for the files, without a server.
        collection: the name of the collection.
        dim: the length of a vector.
    """

    def __init__(self, url: str | None, folder: Path, collection: str, dim: int) -> None:
        self._qdrant = import_extra("qdrant_client", "qdrant")
        self._url, self._folder, self._collection, self._dim = url, folder, collection, dim
        self._client: Any = None

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """The client; errors of the server are one line."""
        models = self._qdrant.models
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of local collections above 20,000 vectors
                if self._client is None:
                    self._client = self._connect()
                    if not self._client.collection_exists(self._collection):
                        self._client.create_collection(
                            self._collection,
                            models.VectorParams(size=self._dim, distance=models.Distance.DOT, on_disk=True),
                            hnsw_config=models.HnswConfigDiff(m=LINKS, ef_construct=BUILD_WIDTH),
                        )
                yield self._client
        except UnweaveError:
            raise
        except Exception as error:  # the client raises errors of several libraries
            reason = " ".join(str(error).split())[:160]
            where = self._url or self._folder
            raise UnweaveError(
                f"Qdrant at {where} failed ({reason}): check the server, QDRANT_API_KEY and `store_url`; the command "
                "that builds the index takes another `store_url`"
            ) from None

    def _connect(self) -> Any:
        if self._url is None:
            # The index calls a store from one thread at a time, though not always from the same one.
            return self._qdrant.QdrantClient(path=str(self._folder), force_disable_check_same_thread=True)
        key = os.environ.get("QDRANT_API_KEY")
        return self._qdrant.QdrantClient(url=self._url, api_key=key, timeout=60, check_compatibility=False)

    def connect(self) -> None:
        """Raises where the server does not answer."""
        with self._connected():
            pass

    def add(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Adds or replaces vectors (n, d)."""
        models = self._qdrant.models
        with self._connected() as client:
            for start in range(0, len(ids), BATCH):
                part = slice(start, start + BATCH)
                batch = models.Batch(ids=ids[part].tolist(), vectors=vectors[part].tolist())
                client.upsert(self._collection, batch, wait=True)

    def delete(self, ids: np.ndarray) -> None:
        """Removes vectors."""
        with self._connected() as client:
            for start in range(0, len(ids), BATCH):
                chosen = self._qdrant.models.PointIdsList(points=ids[start : start + BATCH].tolist())
                client.delete(self._collection, chosen, wait=True)

    def build(self) -> None:
        """Nothing: Qdrant builds its graph by itself."""

    def query(self, vector: np.ndarray, k: int) -> np.ndarray:
        """The ids of the k nearest."""
        settings = self._qdrant.models.SearchParams(hnsw_ef=search_width(k))
        with self._connected() as client:
            found = client.query_points(
                self._collection, vector.astype(float).tolist(), limit=k, search_params=settings, with_payload=False
            )
        return np.array([point.id for point in found.points], np.int64)

    def close(self) -> None:
        """Releases the connection, or the lock on the files."""
        if self._client is not None:
            self._client.close()
            self._client = None
