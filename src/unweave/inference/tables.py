"""Tables of features: one row for each image, as a Parquet or a CSV file. folder.py has tables of several files.

path                  text: the image's name in its source; ``unescape_name`` restores undecodable bytes
label                 int64: the number of the class; null (in CSV empty) where there is none
class_name            text: the name of the class; null where it is not known
h, content, …         Parquet: a list of float32 or float16 of fixed length
content_0, …          CSV: one column for each number
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from torch import Tensor

from unweave._version import __version__
from unweave.data.sources.base import MISSING, Source, escape_name
from unweave.errors import UnweaveError
from unweave.files import atomic_write, make_writable_folder, remove_partial_writes

ABOUT = ("path", "label", "class_name")
"""Columns about the image."""
FORMATS = (".parquet", ".csv")


def check_output(out: Path) -> None:
    """Raises unless a file can be written to ``out``; creates its folder."""
    if out.suffix.lower() not in ("", *FORMATS):
        raise UnweaveError(f"`out` {out} ends with {out.suffix}: use {' or '.join(FORMATS)}")
    if out.exists() and not out.is_file():
        raise UnweaveError(f"`out` {out} is not a regular file: choose another name")
    make_writable_folder(Path(os.path.realpath(out)).parent)
    remove_partial_writes(out)


def check_names(spaces: Sequence[str]) -> None:
    """Raises where a space has the name of another column."""
    if taken := [name for name in spaces if name in ABOUT]:
        raise UnweaveError(
            f"the space {taken[0]!r} has the name of another column of the table: use model.embed in Python, which "
            "returns the features"
        )


def check_not_source(out: Path, source: Source) -> None:
    """Raises where ``out`` is a file that the images are read from."""
    files = [file for file in getattr(source, "files", ()) if isinstance(file, Path)]
    if out.exists() and any(os.path.samefile(out, file) for file in files):
        raise UnweaveError(f"`out` {out} is the file of the images: choose another name")


class TableWriter:
    """Writes rows of images to a file that appears when it is complete."""

    def __init__(self, temporary: Path, *, as_csv: bool, dtype: str = "float32") -> None:
        self._temporary, self._as_csv, self._dtype = temporary, as_csv, dtype
        self._writer: Any = None
        self.rows = 0

    def write(self, source: Source, numbers: Sequence[int], features: Mapping[str, Tensor]) -> None:
        """A row for each of these images of the source."""
        features = {name: self._rounded(name, z.float().cpu()) for name, z in features.items()}
        columns = {**_about(source, numbers), **(_flat(features) if self._as_csv else _lists(features))}
        table = pa.table(columns).replace_schema_metadata({"unweave": __version__})
        if self._writer is None:
            self._writer = (
                pyarrow.csv.CSVWriter(self._temporary, table.schema)
                if self._as_csv
                else pq.ParquetWriter(self._temporary, table.schema, compression="zstd")
            )
        self._writer.write_table(table)
        self.rows += len(numbers)

    def _rounded(self, name: str, z: Tensor) -> Tensor:
        """The features as they are written; raises where they are too large for their type."""
        if self._dtype == "float32":
            return z
        rounded = z.half()
        if (rounded.isinf() & z.isfinite()).any():
            raise UnweaveError(f"`dtype` float16 holds numbers up to 65504, and {name} has larger ones: use float32")
        return rounded.float() if self._as_csv else rounded

    def close(self) -> None:
        """Completes the file."""
        if self._writer is not None:
            self._writer.close()


def _about(source: Source, numbers: Sequence[int]) -> dict[str, pa.Array]:
    """The columns about the images."""
    labels, classes = source.labels, source.classes or []
    known = [None if labels is None or labels[i] == MISSING else labels[i] for i in numbers]
    names = [None if label is None or label >= len(classes) else escape_name(classes[label]) for label in known]
    paths = [escape_name(source.name(i)) for i in numbers]
    arrays = (pa.array(paths, pa.string()), pa.array(known, pa.int64()), pa.array(names, pa.string()))
    return dict(zip(ABOUT, arrays, strict=True))


@contextmanager
def table_writer(out: Path, *, dtype: str = "float32") -> Iterator[TableWriter]:
    """Opens a table; the format is that of the file's ending, Parquet where it has none."""
    try:
        with atomic_write(out) as temporary:
            writer = TableWriter(temporary, as_csv=out.suffix.lower() == ".csv", dtype=dtype)
            try:
                yield writer
            finally:
                writer.close()
    except OSError as error:
        raise UnweaveError(f"cannot write `out` {out}: {error.strerror or error}") from None


def _lists(features: Mapping[str, Tensor]) -> dict[str, pa.Array]:
    """A column of lists for each space."""
    return {
        name: pa.FixedSizeListArray.from_arrays(pa.array(z.contiguous().view(-1).numpy()), z.shape[1])
        for name, z in features.items()
    }


def _flat(features: Mapping[str, Tensor]) -> dict[str, pa.Array]:
    """A column for each number of each space."""
    return {
        f"{name}_{i}": pa.array(column.numpy())
        for name, z in features.items()
        for i, column in enumerate(z.T.contiguous())
    }
