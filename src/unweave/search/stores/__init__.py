"""What finds the nearest vectors of an index: in process, in LanceDB, or in Qdrant."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unweave.search.stores.base import Store


def open_store(about: Mapping[str, Any], folder: Path, dim: int) -> Store | None:
    """The store that a manifest describes; None for exact search in process, which needs no files of its own."""
    if about["name"] == "lance":
        from unweave.search.stores.lance import LanceStore

        return LanceStore(folder / "lance", dim)
    if about["name"] == "qdrant":
        from unweave.search.stores.qdrant import QdrantStore

        return QdrantStore(about.get("url"), folder / "qdrant", about["collection"], dim)
    return None
