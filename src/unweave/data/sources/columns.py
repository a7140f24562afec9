"""Columns of images and labels in Arrow tables: which they are, and what they hold.

Images are structs of ``bytes`` and ``path`` (the Hugging Face convention), plain binary, or strings that name files.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from unweave.data.sources.base import MISSING
from unweave.errors import UnweaveError

IMAGES = ("image", "img", "path", "file", "filename", "file_name", "image_path")
"""Column names that are taken for images or their files."""
LABELS = ("label", "labels", "fine_label", "class")
"""Column names that are taken for labels."""
LARGEST = 2**31
"""Labels above this number are names of classes, not their numbers."""


@contextmanager
def reading(file: object) -> Iterator[None]:
    """Turns errors of Arrow and of the file system into one line that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError, OverflowError) as error:
        raise UnweaveError(f"{file} cannot be read: {' '.join(str(error).split())[:200]}") from None


@dataclass(frozen=True)
class Columns:
    """The columns of images and of labels, and the names of classes in the metadata."""

    image: str
    label: str | None
    names: list[str] | None


def find_columns(file: object, schema: pa.Schema, image: str | None, label: str | None) -> Columns:
    """The columns to read: those asked for, or those that metadata, types and names suggest."""
    names = list(schema.names)
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise UnweaveError(f"{file} has several columns named {twice[0]!r}")
    features = _features(schema)
    image_column = _image_column(file, schema, features, image)
    label_column = _label_column(file, schema, features, label)
    declared = features.get(label_column or "", {}).get("names")
    classes = [str(name) for name in declared] if isinstance(declared, list) and declared else None
    return Columns(image_column, label_column, classes)


def _features(schema: pa.Schema) -> dict[str, dict[str, Any]]:
    """The description of the columns in the Hugging Face metadata."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    if not isinstance(features, dict):
        return {}
    return {name: feature for name, feature in features.items() if isinstance(feature, dict)}


def _image_column(file: object, schema: pa.Schema, features: dict[str, dict[str, Any]], asked: str | None) -> str:
    def has_bytes(name: str) -> bool:
        kind = schema.field(name).type
        if pa.types.is_struct(kind):
            return any(kind.field(i).name == "bytes" and _is_binary(kind.field(i).type) for i in range(kind.num_fields))
        return _is_binary(kind)

    encoded = [name for name in schema.names if has_bytes(name)]
    paths = [name for name in schema.names if _is_text(schema.field(name).type)]
    if asked is not None:
        if asked not in (*encoded, *paths):
            raise UnweaveError(
                f"`image_column` {asked}: {file} has images in {_list(encoded)}, its columns are {_list(schema.names)}"
            )
        return asked
    declared = [name for name in encoded if features.get(name, {}).get("_type") == "Image"]
    named = [name for name in IMAGES if name in paths][:1]
    found = declared or [name for name in encoded if name in IMAGES] or encoded or named
    if not found:
        raise UnweaveError(f"{file} has no image column; its columns are {_list(schema.names)}")
    if len(found) > 1:
        raise UnweaveError(f"{file} has several image columns, {_list(found)}; choose one with `image_column`")
    return found[0]


def _label_column(
    file: object, schema: pa.Schema, features: dict[str, dict[str, Any]], asked: str | None
) -> str | None:
    if asked is not None and asked not in schema.names:
        raise UnweaveError(f"`label_column` {asked}: the columns of {file} are {_list(schema.names)}")
    declared = [name for name, feature in features.items() if feature.get("_type") == "ClassLabel"]
    for name in [asked] if asked else [*LABELS, *declared]:
        if name in schema.names and _is_label(schema.field(name).type):
            return name
    if asked:
        raise UnweaveError(f"`label_column` {asked} of {file} holds {schema.field(asked).type}, not classes")
    return None


def _is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_label(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or _is_text(kind)


def image_parts(chunk: pa.Array) -> tuple[pa.Array | None, pa.Array | None]:
    """The bytes and the paths of a chunk of images; None where it has none."""
    if _is_text(chunk.type):
        return None, chunk
    if not pa.types.is_struct(chunk.type):
        return chunk, None
    # flatten, unlike field, makes the parts of a null struct null
    parts = {chunk.type.field(i).name: part for i, part in enumerate(chunk.flatten())}
    path = parts.get("path")
    return parts["bytes"], path if path is not None and _is_text(path.type) else None


class ArrowColumn:
    """Encoded images by number, in Arrow's memory."""

    def __init__(self, columns: Sequence[pa.ChunkedArray]) -> None:
        chunks = [chunk for column in columns for chunk in column.chunks if len(chunk)]
        self._parts = [image_parts(chunk) for chunk in chunks]
        self._starts = np.cumsum([0, *map(len, chunks)])

    def _place(self, i: int) -> tuple[pa.Array | None, pa.Array | None, int]:
        chunk = int(np.searchsorted(self._starts, i, "right")) - 1
        return *self._parts[chunk], i - int(self._starts[chunk])

    def get(self, i: int) -> tuple[bytes | None, str | None]:
        """The bytes of image i and its path; None where they are missing."""
        data, paths, row = self._place(i)
        return None if data is None else data[row].as_py(), None if paths is None else paths[row].as_py()

    def path(self, i: int) -> str | None:
        """The path of image i."""
        _, paths, row = self._place(i)
        return None if paths is None else paths[row].as_py()


def read_labels(values: Sequence[Any], names: list[str] | None) -> tuple[list[int] | None, list[str] | None]:
    """Labels as numbers of classes, and the names of the classes, from the values of a column.

    Whole numbers from 0 are class numbers; texts and other numbers are names of classes in sorted order. Null, NaN and
    empty texts are missing labels.

    Examples:
        >>> read_labels(["cat", "dog", None, "cat"], None)
        ([0, 1, -1, 0], ['cat', 'dog'])
        >>> read_labels([2, 0, None], None)
        ([2, 0, -1], None)
    """
    values = [None if value == "" or value != value else value for value in values]  # value != value is NaN
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    if not any(isinstance(value, str) for value in known):
        least = MISSING if names else 0
        if all(least <= value < LARGEST and value == int(value) for value in known):
            return [MISSING if value is None or value < 0 else int(value) for value in values], names
    classes = sorted(set(known), key=lambda value: (isinstance(value, str), value))
    number = {value: i for i, value in enumerate(classes)}
    return [MISSING if value is None else number[value] for value in values], [str(value) for value in classes]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "none"
