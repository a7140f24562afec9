"""Embeddings from a Parquet file of any origin: which columns are spaces, labels, factors and the split."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unweave.data.sources.columns import LABELS, reading
from unweave.errors import UnweaveError


@dataclass(frozen=True)
class EmbeddingTable:
    """Embeddings (n, d) by space, with what the file says about each row."""

    spaces: dict[str, np.ndarray]
    labels: Any
    """None where there is no column of labels."""
    tested: np.ndarray | None
    """Whether a row is to test, from a column ``split``."""
    factors: dict[str, np.ndarray]


def read_embeddings(
    file: str | Path, *, label_column: str | None = None, factors: Sequence[str] = ()
) -> EmbeddingTable:
    """Every column of lists of numbers, all of one length, is a space, but the columns of labels and factors.

    Rows without a label are left out where there is a column of labels.

    Examples:
        >>> import tempfile
        >>> table = pa.table({"h": [[0.1, 0.2], [0.3, 0.4]], "label": ["cat", "dog"]})
        >>> with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        ...     pq.write_table(table, file.name)
        ...     found = read_embeddings(file.name)
        >>> found.spaces["h"].shape, list(found.labels)
        ((2, 2), ['cat', 'dog'])
    """
    path = Path(file)
    if not path.exists():
        raise UnweaveError(f"`embeddings` {path}: there is no such file")
    with reading(path):
        table = pq.read_table(path, partitioning=None)
    names = table.column_names
    if absent := [name for name in (*factors, *filter(None, [label_column])) if name not in names]:
        raise UnweaveError(f"{path} has no column {absent[0]!r}; its columns are {', '.join(names)}")
    label = label_column or next((name for name in LABELS if name in names), None)
    if label is not None and table[label].null_count:
        table = table.filter(table[label].is_valid())
    if not len(table):
        raise UnweaveError(f"{path} has no rows" + (f" with a value in {label!r}" if label else ""))
    spaces = {
        name: _matrix(path, name, table[name])
        for name in names
        if _is_list(table.schema.field(name).type) and name != label and name not in factors
    }
    if not spaces:
        raise UnweaveError(f"{path} has no column of embeddings (lists of numbers); its columns are {', '.join(names)}")
    labels = None if label is None else _values(path, label, table[label])
    return EmbeddingTable(
        spaces=spaces,
        labels=labels,
        tested=_tested(path, table) if "split" in names and "split" not in (label, *factors) else None,
        factors={name: _values(path, name, table[name]) for name in factors},
    )


def read_factors(file: str | Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Columns of a Parquet or CSV file."""
    path = Path(file)
    suffix = path.suffix.lower()
    if suffix not in (".parquet", ".csv", ".tsv"):
        raise UnweaveError(f"`factors` are columns of a Parquet or CSV file, and {path} is neither")
    with reading(path):
        if suffix == ".parquet":
            found = pq.read_schema(path).names
            table = pq.read_table(path, columns=[name for name in names if name in found], partitioning=None)
        else:
            from pyarrow import csv

            table = csv.read_csv(path, parse_options=csv.ParseOptions(delimiter="\t" if suffix == ".tsv" else ","))
            found = table.column_names
    if absent := [name for name in names if name not in found]:
        raise UnweaveError(f"`factors` {absent[0]}: the columns of {path} are {', '.join(found)}")
    return {name: _values(path, name, table[name]) for name in names}


def _is_list(kind: pa.DataType) -> bool:
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(listed and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)))


def _matrix(path: Path, name: str, column: pa.ChunkedArray) -> np.ndarray:
    lengths = {len(value) for value in column.combine_chunks() if value.is_valid}
    if column.null_count or len(lengths) != 1:
        raise UnweaveError(f"{path}: the lists in column {name!r} are of different lengths or missing")
    flat = column.combine_chunks().flatten()
    return flat.to_numpy(zero_copy_only=False).reshape(len(column), -1)


def _values(path: Path, name: str, column: pa.ChunkedArray) -> np.ndarray:
    if _is_list(column.type):
        return _matrix(path, name, column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        if column.null_count and not pa.types.is_floating(kind):
            raise UnweaveError(f"{path}: column {name!r} has missing values")
        return column.to_numpy()
    return np.array(column.to_pylist(), dtype=object)


def _tested(path: Path, table: pa.Table) -> np.ndarray:
    split = np.array([str(value) for value in table["split"].to_pylist()])
    if not ({"test"} <= set(split) and len(set(split)) > 1):
        raise UnweaveError(f"{path}: column 'split' must be train or test, not {', '.join(sorted(set(split)))} alone")
    return split == "test"
