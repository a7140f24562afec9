"""Images in Parquet files, in data sets that Hugging Face's library has saved, and in CSV files of paths.

Parquet can only be read by whole row groups, and training reads in random order. The encoded images are therefore read
once, and kept in memory if they fit, otherwise in a flat file (flat_file.py).
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unweave.data.resources import available_memory
from unweave.data.sources.columns import ArrowColumn, find_columns, image_parts, read_labels, reading
from unweave.data.sources.flat_file import FlatFile, flat_file
from unweave.data.unreadable import UnreadableImageError
from unweave.errors import UnweaveError


class TableImages:
    """The images of tables, in order: base of the sources below.

    A subclass sets ``_images``, ``_rows`` (the number of rows of each file), ``files``, ``labels`` and ``classes``.
    """

    files: list[Path]
    labels: list[int] | None
    classes: list[str] | None
    _images: ArrowColumn | FlatFile
    _starts: np.ndarray

    def _count(self, rows: Sequence[int]) -> None:
        if not sum(rows):
            raise UnweaveError(f"there are no images in {self.files[0]}: it has no rows")
        self._starts = np.cumsum([0, *rows])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, i: int) -> bytes | Path:
        """The bytes of image i, or the path of its file."""
        data, path = self._images.get(i)
        if data is not None:
            return data
        if path is None:
            raise UnreadableImageError("the row has no image")
        return self.place(i)[0].parent / path

    def place(self, i: int) -> tuple[Path, int]:
        """The file and the row of image i."""
        number = int(np.searchsorted(self._starts, i, "right")) - 1
        return self.files[number], i - int(self._starts[number])

    def name(self, i: int) -> str:
        """The path of image i, or its file and row number."""
        file, row = self.place(i)
        return self._images.path(i) or f"{file.name}#{row}"

    def check(self) -> None:
        """Nothing to check: the files are not read again."""


class ParquetImages(TableImages):
    """The images of one or more Parquet files, in order.

    Args:
        files: files with the same columns.
        image_column: by default the column whose metadata, type or name says that it holds images.
        label_column: by default ``label`` or a similar name.
    """

    def __init__(self, files: Sequence[Path], image_column: str | None = None, label_column: str | None = None) -> None:
        self.files = list(files)
        with reading(self.files[0]):
            columns = find_columns(self.files[0], pq.read_schema(self.files[0]), image_column, label_column)
        for file in self.files[1:]:
            with reading(file):
                found = {*pq.read_schema(file).names, None}
            if absent := {columns.image, columns.label} - found:
                raise UnweaveError(f"{file} has no column {absent.pop()!r}, but {self.files[0]} has")
        self._count([_metadata(file).num_rows for file in self.files])
        needed = _encoded_size(self.files, columns.image)
        if needed < available_memory() / 2:
            self._images = ArrowColumn([_read(file, columns.image) for file in self.files])
        else:
            self._images = flat_file(self.files, columns.image, needed, partial(_rows, column=columns.image))
        self.labels, self.classes = None, columns.names
        if columns.label is not None:
            values = [value for file in self.files for value in _read(file, columns.label).to_pylist()]
            self.labels, self.classes = read_labels(values, columns.names)


class SavedDatasetImages(TableImages):
    """The images of a data set that Hugging Face's ``Dataset.save_to_disk`` wrote; of several splits, ``train``."""

    def __init__(self, folder: Path, image_column: str | None = None, label_column: str | None = None) -> None:
        if (folder / "dataset_dict.json").is_file():
            if not (folder / "train").is_dir():
                raise UnweaveError(f"{folder} has no split named train; name the folder of a split")
            folder = folder / "train"
        self.files = sorted(folder.glob("*.arrow"))
        if not self.files:
            raise UnweaveError(f"{folder} has no .arrow files")
        tables = []
        for file in self.files:
            with reading(file):
                tables.append(pa.ipc.open_stream(pa.memory_map(str(file))).read_all())
        columns = find_columns(folder, tables[0].schema, image_column, label_column)
        self._count([len(table) for table in tables])
        self._images = ArrowColumn([table[columns.image] for table in tables])
        self.labels, self.classes = None, columns.names
        if columns.label is not None:
            values = [value for table in tables for value in table[columns.label].to_pylist()]
            self.labels, self.classes = read_labels(values, columns.names)


class CsvImages(TableImages):
    """The images whose paths a CSV file lists, relative to its folder, perhaps with labels."""

    def __init__(self, file: Path, image_column: str | None = None, label_column: str | None = None) -> None:
        from pyarrow import csv

        self.files = [file]
        with reading(file):
            separator = "\t" if file.suffix.lower() == ".tsv" else ","
            table = csv.read_csv(file, parse_options=csv.ParseOptions(delimiter=separator))
            columns = find_columns(file, table.schema, image_column, label_column)
        self._count([len(table)])
        self._images = ArrowColumn([table[columns.image]])
        self.labels, self.classes = None, None
        if columns.label is not None:
            self.labels, self.classes = read_labels(table[columns.label].to_pylist(), None)


def _encoded_size(files: list[Path], column: str) -> int:
    size = 0
    for file in files:
        about = _metadata(file)
        for group in (about.row_group(i) for i in range(about.num_row_groups)):
            parts = (group.column(i) for i in range(about.num_columns))
            size += sum(part.total_uncompressed_size for part in parts if part.path_in_schema.split(".")[0] == column)
    return size


def _metadata(file: Path) -> pq.FileMetaData:
    with reading(file):
        return pq.read_metadata(file)


def _read(file: Path, column: str) -> pa.ChunkedArray:
    with reading(file):
        return pq.read_table(file, columns=[column], partitioning=None)[column]


def _rows(file: Path, column: str) -> Iterator[tuple[bytes | None, str | None]]:
    with reading(file):
        for batch in pq.ParquetFile(file).iter_batches(256, columns=[column]):
            data, paths = image_parts(batch.column(column))
            missing = [None] * batch.num_rows
            yield from zip(
                missing if data is None else data.to_pylist(),
                missing if paths is None else paths.to_pylist(),
                strict=True,
            )
