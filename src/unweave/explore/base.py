"""What the explorer needs of an index: the part of ``unweave.search.Index`` that it uses."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class SearchHit(Protocol):
    """One image that was found: its row, score and cosine in every space."""

    @property
    def row(self) -> int:
        """Its row in the index."""

    @property
    def score(self) -> float:
        """The weighted sum of its cosines."""

    @property
    def scores(self) -> Mapping[str, float]:
        """Its cosine with the query in every space."""


class SearchIndex(Protocol):
    """Images with an embedding in every space, which can be searched."""

    def __len__(self) -> int:
        """Number of rows."""

    @property
    def spaces(self) -> tuple[str, ...]:
        """Names of the spaces."""

    @property
    def spread(self) -> Mapping[str, float]:
        """Standard deviation of the cosines of random pairs in every space."""

    @property
    def run(self) -> Mapping[str, Any]:
        """Identity of the run that made the embeddings."""

    def path(self, row: int, /) -> str:
        """Path or name of an image."""

    def label(self, row: int, /) -> int | None:
        """Class of an image."""

    def class_name(self, row: int, /) -> str | None:
        """Name of its class."""

    def vectors(self, space: str, /) -> np.ndarray:
        """Embeddings (n, d) of unit length."""

    def thumbnail(self, row: int, /) -> bytes:
        """A JPEG of at most 128 pixels."""

    def image_file(self, row: int, /) -> Path | None:
        """The original file, where there is one."""

    @property
    def model(self) -> Any:
        """The model of the run, whose ``embed`` takes an image."""

    def where(self, expression: str, /) -> np.ndarray:
        """Which rows satisfy an expression such as ``label = 'cat' and path like 'a/%'``: (n,) bool."""

    def search(
        self,
        query: Any,
        /,
        *,
        weights: Mapping[str, float],
        minimum: Mapping[str, float] | None = None,
        where: str | None = None,
        k: int = 20,
    ) -> Sequence[SearchHit]:
        """The ``k`` rows with the largest score."""

    def duplicates(self, space: str, /, threshold: float = 0.98) -> Sequence[Sequence[int]]:
        """Groups of rows that are nearly equal in a space."""

    def outliers(self, space: str, /, k: int = 50) -> Sequence[tuple[int, float]]:
        """Rows far from their neighbours in a space, and their mean cosine to them."""
