"""Parquet files in the Hugging Face image convention: a column of structs of ``bytes`` and ``path``, perhaps a label.

Parquet can only be read by whole row groups, and training reads in random order: the encoded images are therefore read
once, and kept in memory.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unweave.data.images import UnreadableImageError
from unweave.data.memory import available_memory
from unweave.data.source import MISSING
from unweave.errors import UnweaveError

LABELS = ("label", "labels", "fine_label", "class")
"""Names under which labels are looked for."""


class ParquetImages:
    """The images of one or more Parquet files, in order.

    Args:
        files: that have the same columns.
        image_column: by default the one that the files' metadata or its type tells to hold images.
        label_column: by default ``label`` or the like, where it holds whole numbers.
    """

    def __init__(self, files: Sequence[Path], image_column: str | None = None, label_column: str | None = None) -> None:
        self.files = list(files)
        schema, features = _schema(self.files[0])
        self.image_column = _image_column(self.files[0], schema, features, image_column)
        self.label_column = _label_column(self.files[0], schema, features, label_column)
        _check_memory(self.files, self.image_column)
        columns = [self.image_column, *([self.label_column] if self.label_column else [])]
        tables = [_read(file, columns) for file in self.files]
        if not sum(map(len, tables)):
            raise UnweaveError(f"there are no images in {self.files[0]}: it has no rows")
        self._bytes, self._paths, self._place = _images([table[self.image_column] for table in tables])
        self.labels = _labels(tables, self.label_column) if self.label_column else None
        names = features.get(self.label_column or "", {}).get("names")
        self.classes: list[str] | None = [str(name) for name in names] if names else None
        self._starts = np.cumsum([0, *map(len, tables)])

    def __len__(self) -> int:
        return int(self._place[-1])

    def _chunk(self, i: int) -> tuple[int, int]:
        chunk = int(np.searchsorted(self._place, i, "right")) - 1
        return chunk, i - int(self._place[chunk])

    def read(self, i: int) -> bytes | Path:
        """The bytes of image i, or the file it names."""
        chunk, row = self._chunk(i)
        if (data := self._bytes[chunk][row].as_py()) is not None:
            return data
        paths = self._paths[chunk]
        path = paths[row].as_py() if paths is not None else None
        if path is None:
            raise UnreadableImageError("the row holds no image")
        return self._file(i).parent / path

    def _file(self, i: int) -> Path:
        return self.files[int(np.searchsorted(self._starts, i, "right")) - 1]

    def name(self, i: int) -> str:
        """The path in the row, or the file and the row's number."""
        chunk, row = self._chunk(i)
        paths = self._paths[chunk]
        path = paths[row].as_py() if paths is not None else None
        file = self._file(i)
        return path or f"{file.name}#{i - int(self._starts[self.files.index(file)])}"

    def check(self) -> None:
        """Everything is in memory."""


def _schema(file: Path) -> tuple[pa.Schema, dict[str, Any]]:
    """The columns, and what Hugging Face's metadata says of them."""
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
                f"--image-column {asked}: {file} has images in {_list(able)}, columns {_list(schema.names)}"
            )
        return asked
    told = [name for name in able if features.get(name, {}).get("_type") == "Image"]
    found = told or [name for name in able if name in ("image", "img")] or able
    if not found:
        raise UnweaveError(f"{file} has no image column; its columns are {_list(schema.names)}")
    if len(found) > 1:
        raise UnweaveError(f"{file} has several image columns, {_list(found)}; choose by --image-column")
    return found[0]


def _label_column(file: Path, schema: pa.Schema, features: dict[str, Any], asked: str | None) -> str | None:
    if asked is not None and asked not in schema.names:
        raise UnweaveError(f"--label-column {asked}: the columns of {file} are {_list(schema.names)}")
    told = [name for name, feature in features.items() if feature.get("_type") == "ClassLabel"]
    for name in [asked] if asked else [*LABELS, *told]:
        if name in schema.names and pa.types.is_integer(schema.field(name).type):
            return name
    if asked:
        raise UnweaveError(f"--label-column {asked} of {file} holds {schema.field(asked).type}, not whole numbers")
    return None


def _check_memory(files: list[Path], column: str) -> None:
    needed = 0
    for file in files:
        meta = _metadata(file)
        for group in range(meta.num_row_groups):
            parts = (meta.row_group(group).column(i) for i in range(meta.num_columns))
            needed += sum(part.total_uncompressed_size for part in parts if part.path_in_schema.split(".")[0] == column)
    if needed > (free := available_memory()):
        raise UnweaveError(
            f"the Parquet files hold {needed / 2**30:.1f} GB of encoded images, more than the {free / 2**30:.1f} GB of "
            "memory that are free; write the images to a folder and train on that"
        )


def _metadata(file: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        raise UnweaveError(f"{file} cannot be read as Parquet: {_one_line(error)}") from None


def _read(file: Path, columns: list[str]) -> pa.Table:
    try:
        return pq.read_table(file, columns=columns, partitioning=None)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise UnweaveError(f"{file} cannot be read: {_one_line(error)}") from None


def _images(columns: list[pa.ChunkedArray]) -> tuple[list[pa.Array], list[pa.Array | None], np.ndarray]:
    """Bytes and paths chunk by chunk, and the number of the first image of each chunk."""
    contents, paths, sizes = [], [], [0]
    for chunk in (chunk for column in columns for chunk in column.chunks if len(chunk)):
        if pa.types.is_struct(chunk.type):
            # flatten, unlike field, carries a null struct over to its parts
            parts = dict(
                zip((chunk.type.field(i).name for i in range(chunk.type.num_fields)), chunk.flatten(), strict=True)
            )
            contents.append(parts["bytes"])
            paths.append(parts.get("path"))
        else:
            contents.append(chunk)
            paths.append(None)
        sizes.append(len(chunk))
    return contents, paths, np.cumsum(sizes)


def _labels(tables: list[pa.Table], column: str) -> list[int] | None:
    values = [MISSING if value is None else int(value) for table in tables for value in table[column].to_pylist()]
    return values if any(value != MISSING for value in values) else None


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "none"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
