"""The rows of an index for reading: names, labels, thumbnails and vectors."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from unweave.data import unescape_name
from unweave.data.sources.base import escape_name
from unweave.errors import UnweaveError, printable
from unweave.search.files import ROWS, IndexFiles, Manifest
from unweave.search.where import is_unicode, matching_rows


class IndexRows:
    """What an index holds: base of ``Index``."""

    def __init__(self, path: str | Path) -> None:
        self._files = IndexFiles(path)
        self._load()

    def _load(self) -> None:
        """Opens the files. Another process may remove them by pruning: then the manifest names others."""
        while True:
            manifest = self._files.load()
            try:
                return self._open(manifest)
            except UnweaveError:
                if self._files.load() == manifest:
                    raise

    def _open(self, manifest: Manifest) -> None:
        if not manifest.ready:
            raise UnweaveError(f"the index {self._files.path} is incomplete: the command that builds it resumes")
        files, n = self._files, manifest.ready
        table = files.table(manifest, n, [name for name in ROWS.names if name != "key"])
        vectors = {space: files.vectors(manifest, space, n) for space in manifest.spaces}
        try:
            thumbnails = np.memmap(files.thumbnails_file(manifest), np.uint8, "r")
        except (OSError, ValueError) as error:
            raise UnweaveError(f"{files.path} is damaged ({error}): build the index again") from None
        self._manifest, self._table, self._vectors, self._thumbnails = manifest, table, vectors, thumbnails
        self._ids = table["id"].to_numpy()

    def __len__(self) -> int:
        return self._manifest.ready

    @property
    def spaces(self) -> tuple[str, ...]:
        """The names of the spaces."""
        return tuple(self._manifest.spaces)

    @property
    def run(self) -> dict[str, Any]:
        """The ``identity`` of the run that the index was made with, and the ``path`` it had."""
        return dict(self._manifest.run)

    @property
    def spread(self) -> dict[str, float]:
        """The standard deviation of the cosines of random pairs in each space."""
        return dict(self._manifest.spread)

    @property
    def alike(self) -> dict[str, float]:
        """The cosine in each space that one random pair in twenty exceeds."""
        return dict(self._manifest.alike)

    def path(self, row: int) -> str:
        """The name of an image in its source; ``unescape_name`` restores undecodable bytes."""
        return self._table["path"][self._checked(row)].as_py()

    def label(self, row: int) -> int | None:
        """The number of an image's class."""
        return self._table["label"][self._checked(row)].as_py()

    def class_name(self, row: int) -> str | None:
        """The name of an image's class."""
        return self._table["class_name"][self._checked(row)].as_py()

    def image_file(self, row: int) -> Path | None:
        """The file of an image; None where it is not a file, or no longer exists."""
        name = self._table["file"][self._checked(row)].as_py()
        file = None if name is None else Path(unescape_name(name))
        return file if file is not None and file.is_file() else None

    def thumbnail(self, row: int) -> bytes:
        """An image as a JPEG file of at most 128 pixels."""
        row = self._checked(row)
        start, size = self._table["thumbnail"][row].as_py(), self._table["thumbnail_bytes"][row].as_py()
        return self._thumbnails[start : start + size].tobytes()

    def vectors(self, space: str) -> np.ndarray:
        """The vectors of a space (n, d), of unit length, whitened unless the index is not; float16, memory-mapped."""
        return self._vectors[self._checked_space(space)]

    def find(self, path: str | Path) -> int:
        """The row of an image by its name in the index, or by its file; raises where there is none or several."""
        row = self._by_name(str(path))
        row = self._by_file(path) if row is None else row
        if row is None:
            raise UnweaveError(f"{printable(str(path))!r} is not in the index {self._files.path}")
        return row

    def row_of(self, query: Any) -> int | None:
        """The row of a query that is of the index: a row number, a file, or a name that is not that of a file here."""
        if isinstance(query, (str, Path)):
            is_file = Path(query).expanduser().is_file()
            return self._by_file(query) if is_file else self._by_name(str(query))
        if isinstance(query, (int, np.integer)) and not isinstance(query, bool):
            return self._checked(int(query))
        return None

    def _by_file(self, path: str | Path) -> int | None:
        rows = self._equal("file", escape_name(os.path.abspath(Path(path).expanduser())))
        return rows[0] if rows else None

    def _by_name(self, name: str) -> int | None:
        rows = (is_unicode(name) and self._equal("path", name)) or self._equal("path", escape_name(name))
        if len(rows) > 1:
            raise UnweaveError(
                f"{printable(name)!r} is the name of {len(rows)} images of the index: use a row, such as {rows[0]}"
            )
        return rows[0] if rows else None

    def _equal(self, column: str, text: str) -> list[int]:
        return pc.indices_nonzero(pc.equal(self._table[column], text)).to_pylist()

    def where(self, expression: str) -> np.ndarray:
        """Which rows satisfy an expression such as ``label = 'cat' and path like 'a/%'``: (n,) bool."""
        return matching_rows(self._table, expression)

    def _checked(self, row: int) -> int:
        if not 0 <= row < len(self):
            raise UnweaveError(f"there is no row {row}: the index has rows 0 to {len(self) - 1}")
        return int(row)

    def _checked_space(self, space: str) -> str:
        if space not in self._manifest.spaces:
            raise UnweaveError(f"the index has no space {space!r}, it has {', '.join(self.spaces)}")
        return space
