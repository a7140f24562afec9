"""Vectors in LanceDB, on disk.

All partitions of the index are searched, since they are made from the vectors of all spaces together, and a query in
one space has its neighbours in many of them. Vectors are compared by 8 bits a number, and the best ones again by their
own numbers.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unweave.search.stores.base import import_extra

TABLE = "vectors"
FLAT = 20_000
"""Up to this number of rows, all of them are compared."""
REFINE = 10
"""For k answers, this many times k are compared by their own numbers."""


class LanceStore:
    """A table of ids and vectors in a folder.

    Args:
        folder: for the files of LanceDB.
        dim: the length of a vector.
    """

    def __init__(self, folder: Path, dim: int) -> None:
        self._lancedb = import_extra("lancedb", "lance")
        self._folder, self._dim = folder, dim
        self._table: Any = None

    def _open(self) -> Any:
        if self._table is None:
            database = self._lancedb.connect(str(self._folder))
            schema = pa.schema([("id", pa.int64()), ("vector", pa.list_(pa.float32(), self._dim))])
            self._table = database.create_table(TABLE, schema=schema, exist_ok=True)
        return self._table

    def connect(self) -> None:
        """Nothing: LanceDB has no server."""

    def add(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Adds vectors (n, d); ids increase."""
        table, there = self._open(), f"id >= {ids[0]} AND id <= {ids[-1]}"
        if table.count_rows(there):
            table.delete(there)
        values = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
        table.add(pa.table({"id": ids, "vector": pa.FixedSizeListArray.from_arrays(values, self._dim)}))

    def delete(self, ids: np.ndarray) -> None:
        """Removes vectors."""
        for start in range(0, len(ids), 1000):
            self._open().delete(f"id IN ({', '.join(map(str, ids[start : start + 1000]))})")

    def build(self) -> None:
        """Merges small files; makes the index of many rows, or adds new rows to it."""
        table = self._open()
        table.optimize()
        if (rows := table.count_rows()) > FLAT and not table.list_indices():
            settings = {"distance_type": "dot", "num_partitions": max(1, int(rows**0.5 / 4))}
            table.create_index("vector", config=import_extra("lancedb.index", "lance").IvfSq(**settings))

    def query(self, vector: np.ndarray, k: int) -> np.ndarray:
        """The ids of the k nearest."""
        asked = self._open().search(vector.astype(np.float32), vector_column_name="vector").distance_type("dot")
        found = asked.nprobes(1_000_000).refine_factor(REFINE).limit(k).select(["id", "_distance"]).to_arrow()
        return found["id"].to_numpy()

    def close(self) -> None:
        """Releases the table."""
        self._table = None
