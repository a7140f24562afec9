"""What a store is: vectors by id, and those with the largest inner product with a query."""

from importlib import import_module
from typing import Any, Protocol

import numpy as np

from unweave.errors import UnweaveError


class Store(Protocol):
    """Vectors by id. All have the same length, so the largest inner products are the nearest vectors.

    A vector is the concatenation of an image's unit vectors in all spaces; a query is the concatenation of its unit
    vectors, each times its weight. Their inner product is Σ wᵢ·cosᵢ.
    """

    def connect(self) -> None:
        """Raises where the store cannot be reached."""
        ...

    def add(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Adds vectors (n, d) float32. An id that is there already is replaced."""
        ...

    def delete(self, ids: np.ndarray) -> None:
        """Removes vectors; ids that are not there are ignored."""
        ...

    def build(self) -> None:
        """Makes queries fast, after vectors were added or removed."""
        ...

    def query(self, vector: np.ndarray, k: int) -> np.ndarray:
        """The ids of about the k vectors with the largest inner product with ``vector`` (d,)."""
        ...

    def close(self) -> None:
        """Releases connections, files and locks; the next call opens them again."""
        ...


def import_extra(module: str, extra: str) -> Any:
    """A package that an extra installs."""
    try:
        return import_module(module)
    except ImportError:
        raise UnweaveError(f"`store` {extra} needs {module}: pip install 'unweave[{extra}]'") from None
