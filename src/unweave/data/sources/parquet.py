"""Images in Parquet files, in data sets that Hugging Face's library has saved, and in CSV files of paths.

Parquet can only be read by whole row groups, and training reads in random order. The encoded images are therefore read
once, and kept in memory if they fit, otherwise in a flat file (flat_file.py). Where images are read in order, as for
embedding, only those needed next are in memory.
"""

import copy
import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unweave.data.resources import available_memory
from unweave.data.sources.columns import ArrowColumn, find_columns, image_parts, read_labels, reading
from unweave.data.sources.flat_file import FlatFile, flat_file
from unweave.data.sources.remote import StoredFile
from unweave.data.unreadable import UnreadableImageError
from unweave.errors import UnweaveError

T = TypeVar("T")
IN_ORDER = 2**28
"""Bytes of encoded images in memory where they are read in order; twice as many while the next are read."""
ENDS = 2**16
"""Bytes at the beginning and at the end of a file by which it is recognised: its first images, and its footer."""
CONNECTIONS = 16
"""Remote files that are opened at a time."""


class TableImages:
    """The images of tables, in order: base of the sources below.

    A subclass sets ``_images``, ``_rows`` (the number of rows of each file), ``files``, ``labels`` and ``classes``.
    """

    files: Sequence[Path | StoredFile]
    labels: list[int] | None
    classes: list[str] | None
    _images: "ArrowColumn | FlatFile | _Window"
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
        file, _ = self._file(i)
        if isinstance(file, StoredFile):
            raise UnreadableImageError(f"the row names the file {path}; only images inside {file} are read")
        return file.parent / path

    def _file(self, i: int) -> tuple[Path | StoredFile, int]:
        """The file and the row of image i."""
        number = int(np.searchsorted(self._starts, i, "right")) - 1
        return self.files[number], i - int(self._starts[number])

    def name(self, i: int) -> str:
        """The path of image i, or its file and row number."""
        file, row = self._file(i)
        return self._images.path(i) or f"{file.name}#{row}"

    def check(self) -> None:
        """Nothing to check: the files are not read again."""


class ParquetImages(TableImages):
    """The images of one or more Parquet files, in order.

    Args:
        files: files with the same columns.
        image_column: by default the column whose metadata, type or name says that it holds images.
        label_column: by default ``label`` or a similar name.
        random_access: images are read in any order, and are all read now; otherwise ``in_order`` reads them.
    """

    def __init__(
        self,
        files: Sequence[Path | StoredFile],
        image_column: str | None = None,
        label_column: str | None = None,
        *,
        random_access: bool = True,
    ) -> None:
        self.files, self._random_access = list(files), random_access
        about = _each(self.files, _metadata)
        first = self.files[0]
        with reading(first):
            columns = find_columns(first, about[0].schema.to_arrow_schema(), image_column, label_column)
        for file, its in zip(self.files[1:], about[1:], strict=True):
            with reading(file):
                found = {*its.schema.to_arrow_schema().names, None}
            if absent := {columns.image, columns.label} - found:
                raise UnweaveError(f"{file} has no column {absent.pop()!r}, but {first} has")
        self._count([its.num_rows for its in about])
        self._column, self._size = columns.image, _encoded_size(about, columns.image)
        if not random_access:
            self._groups = [[its.row_group(i).num_rows for i in range(its.num_row_groups)] for its in about]
        elif self._size < available_memory() / 2:
            self._images = ArrowColumn(_each(self.files, partial(_read, column=columns.image)))
        else:
            self._images = flat_file(self.files, columns.image, self._size, partial(_rows, column=columns.image))
        self.labels, self.classes = None, columns.names
        if columns.label is not None:
            read = _each(self.files, partial(_read, column=columns.label))
            values = [value for column in read for value in column.to_pylist()]
            self.labels, self.classes = read_labels(values, columns.names)

    @property
    def identity(self) -> str:
        """The same for files with the same names, first images and footers; nothing else is read."""
        digest = hashlib.sha256(self._column.encode())
        for part in _each(self.files, _ends):
            digest.update(part)
        return digest.hexdigest()[:16]

    def in_order(self, numbers: range, batch_size: int) -> Iterator[tuple[range, "ParquetImages"]]:
        """The images with these numbers, some batches at a time, each with a source that has them in memory."""
        if self._random_access:
            yield numbers, self
            return
        least = max(1, IN_ORDER * len(self) // max(1, self._size) // batch_size) * batch_size
        start, held, count = numbers.start, [], 0
        for chunk in self._chunks(numbers):
            while count + len(chunk) >= least:
                held.append(chunk.slice(0, least - count))
                chunk = chunk.slice(least - count)
                yield range(start, start + least), self._window(held, start)
                start, held, count = start + least, [], 0
            held.append(chunk)
            count += len(chunk)
        if count:
            yield range(start, start + count), self._window(held, start)

    def _chunks(self, numbers: range) -> Iterator[pa.Array]:
        """The encoded images with these numbers; only row groups that contain some are read."""
        for file, start, groups in zip(self.files, self._starts.tolist(), self._groups, strict=False):
            if start + sum(groups) <= numbers.start or start >= numbers.stop:
                continue
            with reading(file), pq.ParquetFile(_source(file), pre_buffer=isinstance(file, StoredFile)) as parquet:
                for group, rows in enumerate(groups):
                    place, start = start, start + rows
                    if place >= numbers.stop or start <= numbers.start:
                        continue
                    for batch in parquet.iter_batches(256, row_groups=[group], columns=[self._column]):
                        first, last = max(0, numbers.start - place), max(0, numbers.stop - place)
                        yield batch.column(self._column)[first:last]
                        place += batch.num_rows

    def _window(self, chunks: list[pa.Array], start: int) -> "ParquetImages":
        window = copy.copy(self)
        columns = [pa.chunked_array([chunk]) for chunk in chunks]  # the types of files may differ, as null and text
        window._images, window._random_access = _Window(ArrowColumn(columns), start), True
        return window


class _Window:
    """The images of a column, with numbers from ``start``."""

    def __init__(self, column: ArrowColumn, start: int) -> None:
        self._column, self._start = column, start

    def get(self, i: int) -> tuple[bytes | None, str | None]:
        """The bytes of image i and its path."""
        return self._column.get(i - self._start)

    def path(self, i: int) -> str | None:
        """The path of image i."""
        return self._column.path(i - self._start)


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


def _each(files: Sequence[Path | StoredFile], function: Callable[[Path | StoredFile], T]) -> list[T]:
    """The function of every file; of remote ones, of several at a time."""
    if len(files) == 1 or isinstance(files[0], Path):
        return [function(file) for file in files]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return list(pool.map(function, files))


def _source(file: Path | StoredFile) -> "Path | pa.NativeFile":
    """What the functions of pyarrow.parquet take."""
    return file if isinstance(file, Path) else file.open()


def _encoded_size(about: list[pq.FileMetaData], column: str) -> int:
    size = 0
    for file in about:
        for group in (file.row_group(i) for i in range(file.num_row_groups)):
            parts = (group.column(i) for i in range(file.num_columns))
            size += sum(part.total_uncompressed_size for part in parts if part.path_in_schema.split(".")[0] == column)
    return size


def _metadata(file: Path | StoredFile) -> pq.FileMetaData:
    with reading(file):
        return pq.read_metadata(_source(file))


def _read(file: Path | StoredFile, column: str) -> pa.ChunkedArray:
    with reading(file):
        if isinstance(file, Path):
            return pq.read_table(file, columns=[column], partitioning=None)[column]
        with pq.ParquetFile(file.open(), pre_buffer=True) as parquet:
            return parquet.read(columns=[column])[column]


def _ends(file: Path | StoredFile) -> bytes:
    """A digest of a file's name, size and ends."""
    with reading(file), open(file, "rb") if isinstance(file, Path) else file.open() as opened:
        size = opened.seek(0, 2)
        digest = hashlib.sha256(f"{file.name} {size}".encode("utf-8", "surrogateescape"))
        for place in (0, max(0, size - ENDS)):
            opened.seek(place)
            digest.update(opened.read(ENDS))
        return digest.digest()


def _rows(file: Path | StoredFile, column: str) -> Iterator[tuple[bytes | None, str | None]]:
    with reading(file):
        for batch in pq.ParquetFile(_source(file)).iter_batches(256, columns=[column]):
            data, paths = image_parts(batch.column(column))
            missing = [None] * batch.num_rows
            yield from zip(
                missing if data is None else data.to_pylist(),
                missing if paths is None else paths.to_pylist(),
                strict=True,
            )
