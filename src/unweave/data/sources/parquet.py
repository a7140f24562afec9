"""Parquet files in the Hugging Face image convention: a column of structs of ``bytes`` and ``path``, perhaps a label.

Parquet can only be read by whole row groups, and training reads in random order. The encoded images are therefore read
once, and kept in memory if they fit, otherwise in a flat file (flat_file.py).
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unweave.data.resources import available_memory
from unweave.data.sources.base import MISSING
from unweave.data.sources.flat_file import FlatFile, flat_file
from unweave.data.unreadable import UnreadableImageError
from unweave.errors import UnweaveError

LABELS = ("label", "labels", "fine_label", "class")
"""Column names that are taken for labels."""


class ParquetImages:
    """The images of one or more Parquet files, in order.

    Args:
        files: files with the same columns.
        image_column: by default the column whose metadata or type says that it holds images.
        label_column: by default ``label`` or a similar name, if the column holds whole numbers.
    """

    def __init__(self, files: Sequence[Path], image_column: str | None = None, label_column: str | None = None) -> None:
        self.files = list(files)
        schema, features = _schema(self.files[0])
        self.image_column = _image_column(self.files[0], schema, features, image_column)
        self.label_column = _label_column(self.files[0], schema, features, label_column)
        for file in self.files[1:]:
            if absent := {self.image_column, self.label_column} - {*_schema(file)[0].names, None}:
                raise UnweaveError(f"{file} has no column {absent.pop()!r}, but {self.files[0]} has")
        rows = [_metadata(file).num_rows for file in self.files]
        if not sum(rows):
            raise UnweaveError(f"there are no images in {self.files[0]}: it has no rows")
        self._starts = np.cumsum([0, *rows])
        needed = _encoded_size(self.files, self.image_column)
        self._images: _InMemory | FlatFile
        if needed < available_memory() / 2:
            self._images = _InMemory([_read(file, self.image_column) for file in self.files])
        else:
            self._images = flat_file(self.files, self.image_column, needed, partial(_rows, column=self.image_column))
        self.labels = _labels(self.files, self.label_column) if self.label_column else None
        names = features.get(self.label_column or "", {}).get("names")
        self.classes: list[str] | None = [str(name) for name in names] if names else None

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, i: int) -> bytes | Path:
        """The bytes of image i, or the path of its file."""
        data, path = self._images.get(i)
        if data is not None:
            return data
        if path is None:
            raise UnreadableImageError("the row has no image")
        return self._file(i)[0].parent / path

    def _file(self, i: int) -> tuple[Path, int]:
        """The file and the row of image i."""
        number = int(np.searchsorted(self._starts, i, "right")) - 1
        return self.files[number], i - int(self._starts[number])

    def name(self, i: int) -> str:
        """The path of image i, or its file and row number."""
        file, row = self._file(i)
        return self._images.path(i) or f"{file.name}#{row}"

    def check(self) -> None:
        """Nothing to check: the files are not read again."""


class _InMemory:
    """Encoded images by number, in Arrow's memory."""

    def __init__(self, columns: list[pa.ChunkedArray]) -> None:
        chunks = [chunk for column in columns for chunk in column.chunks if len(chunk)]
        self._parts = [_parts(chunk) for chunk in chunks]
        self._starts = np.cumsum([0, *map(len, chunks)])

    def _place(self, i: int) -> tuple[pa.Array, pa.Array | None, int]:
        chunk = int(np.searchsorted(self._starts, i, "right")) - 1
        return *self._parts[chunk], i - int(self._starts[chunk])

    def get(self, i: int) -> tuple[bytes | None, str | None]:
        """The bytes of image i and its path; None where they are missing."""
        data, paths, row = self._place(i)
        return data[row].as_py(), None if paths is None else paths[row].as_py()

    def path(self, i: int) -> str | None:
        """The path of image i."""
        _, paths, row = self._place(i)
        return None if paths is None else paths[row].as_py()


def _schema(file: Path) -> tuple[pa.Schema, dict[str, Any]]:
    """The columns, and their description in the Hugging Face metadata."""
    try:
        schema = pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise UnweaveError(f"{file} cannot be read as Parquet: {_one_line(error)}") from None
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (KeyError, TypeError, ValueError):
        features = {}
    return schema, features if isinstance(features, dict) else {}


def _image_column(file: Path, schema: pa.Schema, features: dict[str, Any], asked: str | None) -> str:
    def holds_images(name: str) -> bool:
        kind = schema.field(name).type
        if pa.types.is_struct(kind):
            return any(kind.field(i).name == "bytes" for i in range(kind.num_fields))
        return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)

    able = [name for name in schema.names if holds_images(name)]
    if asked is not None:
        if asked not in able:
            raise UnweaveError(
                f"`image_column` {asked}: {file} has images in {_list(able)}, its columns are {_list(schema.names)}"
            )
        return asked
    declared = [name for name in able if features.get(name, {}).get("_type") == "Image"]
    found = declared or [name for name in able if name in ("image", "img")] or able
    if not found:
        raise UnweaveError(f"{file} has no image column; its columns are {_list(schema.names)}")
    if len(found) > 1:
        raise UnweaveError(f"{file} has several image columns, {_list(found)}; choose one with `image_column`")
    return found[0]


def _label_column(file: Path, schema: pa.Schema, features: dict[str, Any], asked: str | None) -> str | None:
    if asked is not None and asked not in schema.names:
        raise UnweaveError(f"`label_column` {asked}: the columns of {file} are {_list(schema.names)}")
    declared = [name for name, feature in features.items() if feature.get("_type") == "ClassLabel"]
    for name in [asked] if asked else [*LABELS, *declared]:
        if name in schema.names and pa.types.is_integer(schema.field(name).type):
            return name
    if asked:
        raise UnweaveError(f"`label_column` {asked} of {file} holds {schema.field(asked).type}, not whole numbers")
    return None


def _encoded_size(files: list[Path], column: str) -> int:
    size = 0
    for file in files:
        about = _metadata(file)
        for group in (about.row_group(i) for i in range(about.num_row_groups)):
            parts = (group.column(i) for i in range(about.num_columns))
            size += sum(part.total_uncompressed_size for part in parts if part.path_in_schema.split(".")[0] == column)
    return size


def _metadata(file: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        raise UnweaveError(f"{file} cannot be read as Parquet: {_one_line(error)}") from None


def _read(file: Path, column: str) -> pa.ChunkedArray:
    try:
        return pq.read_table(file, columns=[column], partitioning=None)[column]
    except (pa.ArrowException, OSError) as error:
        raise UnweaveError(f"{file} cannot be read: {_one_line(error)}") from None


def _rows(file: Path, column: str) -> Iterator[tuple[bytes | None, str | None]]:
    try:
        for batch in pq.ParquetFile(file).iter_batches(256, columns=[column]):
            data, paths = _parts(batch.column(column))
            yield from zip(data.to_pylist(), paths.to_pylist() if paths else [None] * len(data), strict=True)
    except pa.ArrowException as error:
        raise UnweaveError(f"{file} cannot be read: {_one_line(error)}") from None


def _parts(chunk: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Bytes and, in a column of structs, paths."""
    if not pa.types.is_struct(chunk.type):
        return chunk, None
    # flatten, unlike field, makes the parts of a null struct null
    parts = {chunk.type.field(i).name: part for i, part in enumerate(chunk.flatten())}
    return parts["bytes"], parts.get("path")


def _labels(files: list[Path], column: str) -> list[int] | None:
    values = [MISSING if value is None else int(value) for file in files for value in _read(file, column).to_pylist()]
    return values if any(value != MISSING for value in values) else None


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "none"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
