"""Tables of features: one row for each image, as a Parquet or a CSV file.

path                  text: the image's name in its source; ``unescape_name`` restores undecodable bytes
label                 int64: the number of the class; null (in CSV empty) where there is none
class_name            text: the name of the class; null where it is not known
h, content, …         Parquet: a list of float32 of fixed length
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


def check_output(out: Path, spaces: Sequence[str] = ()) -> None:
    """Raises unless features of these spaces can be written to ``out``; creates its folder."""
    if out.is_dir():
        raise UnweaveError(f"`out` {out} is a folder: name a file that ends with {' or '.join(FORMATS)}")
    if out.suffix.lower() not in ("", *FORMATS):
        raise UnweaveError(f"`out` {out} ends with {out.suffix}: use {' or '.join(FORMATS)}")
    if out.exists() and not out.is_file():
        raise UnweaveError(f"`out` {out} is not a regular file: choose another name")
    if taken := [name for name in spaces if name in ABOUT]:
        raise UnweaveError(
            f"the space {taken[0]!r} has the name of another column of the table: use model.embed in Python, which "
            "returns the features"
        )
    make_writable_folder(Path(os.path.realpath(out)).parent)
    remove_partial_writes(out)


def check_not_source(out: Path, source: Source) -> None:
    """Raises where ``out`` is a file that the images are read from."""
    if out.exists() and any(os.path.samefile(out, file) for file in getattr(source, "files", ())):
        raise UnweaveError(f"`out` {out} is the file of the images: choose another name")


class TableWriter:
    """Writes rows of images to a file that appears when it is complete."""

    def __init__(self, temporary: Path, source: Source, *, as_csv: bool) -> None:
        self._temporary, self._source, self._as_csv = temporary, source, as_csv
        self._writer: Any = None

    def write(self, numbers: Sequence[int], features: Mapping[str, Tensor]) -> None:
        """A row for each of these images of the source."""
        columns = {**self._about(numbers), **(_flat(features) if self._as_csv else _lists(features))}
        table = pa.table(columns).replace_schema_metadata({"unweave": __version__})
        if self._writer is None:
            self._writer = (
                pyarrow.csv.CSVWriter(self._temporary, table.schema)
                if self._as_csv
                else pq.ParquetWriter(self._temporary, table.schema, compression="zstd")
            )
        self._writer.write_table(table)

    def close(self) -> None:
        """Completes the file."""
        if self._writer is not None:
            self._writer.close()

    @property
    def empty(self) -> bool:
        """Whether nothing was written."""
        return self._writer is None

    def _about(self, numbers: Sequence[int]) -> dict[str, pa.Array]:
        labels, classes = self._source.labels, self._source.classes or []
        known = [None if labels is None or labels[i] == MISSING else labels[i] for i in numbers]
        names = [None if label is None or label >= len(classes) else escape_name(classes[label]) for label in known]
        paths = [escape_name(self._source.name(i)) for i in numbers]
        return dict(
            zip(
                ABOUT,
                (pa.array(paths, pa.string()), pa.array(known, pa.int64()), pa.array(names, pa.string())),
                strict=True,
            )
        )


@contextmanager
def table_writer(out: Path, source: Source) -> Iterator[TableWriter]:
    """Opens a table; the format is that of the file's ending, Parquet where it has none."""
    try:
        with atomic_write(out) as temporary:
            writer = TableWriter(temporary, source, as_csv=out.suffix.lower() == ".csv")
            try:
                yield writer
                if writer.empty:
                    raise UnweaveError("none of the images can be read")
            finally:
                writer.close()
    except OSError as error:
        raise UnweaveError(f"cannot write `out` {out}: {error.strerror or error}") from None


def _lists(features: Mapping[str, Tensor]) -> dict[str, pa.Array]:
    """A column of lists for each space."""
    return {
        name: pa.FixedSizeListArray.from_arrays(pa.array(z.float().cpu().contiguous().view(-1).numpy()), z.shape[1])
        for name, z in features.items()
    }


def _flat(features: Mapping[str, Tensor]) -> dict[str, pa.Array]:
    """A column for each number of each space."""
    return {
        f"{name}_{i}": pa.array(column.numpy())
        for name, z in features.items()
        for i, column in enumerate(z.float().cpu().T.contiguous())
    }
