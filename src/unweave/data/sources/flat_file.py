"""The images of Parquet files in one flat file, for data sets larger than memory.

Parquet can only be read by whole row groups, and training reads in random order. The encoded images are therefore
copied once to a file that allows random access. The file is in the folder for temporary files (``TMPDIR``), under a
name derived from the Parquet files, so that all processes of a machine and later runs share it.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unweave.data.sources.remote import StoredFile
from unweave.errors import UnweaveError
from unweave.files import locked

Rows = Callable[[Path | StoredFile], Iterator[tuple[bytes | None, str | None]]]
"""The bytes and the path of every row of a file."""


class FlatFile:
    """Encoded images by number, from a flat file."""

    def __init__(self, folder: Path) -> None:
        index = pq.read_table(folder / "index.parquet")
        self.lengths = index["length"].to_numpy()
        self._paths = index["path"].combine_chunks()
        self._starts = np.concatenate([[0], np.cumsum(np.maximum(self.lengths, 0))])
        self._file = folder / "images.bin"

    def __len__(self) -> int:
        return len(self.lengths)

    def get(self, i: int) -> tuple[bytes | None, str | None]:
        """The bytes of image i and its path; None where they are missing."""
        if self.lengths[i] < 0:
            return None, self.path(i)
        with open(self._file, "rb") as file:
            return os.pread(file.fileno(), int(self.lengths[i]), int(self._starts[i])), self.path(i)

    def path(self, i: int) -> str | None:
        """The path of image i."""
        return self._paths[i].as_py()


def flat_file(files: Sequence[Path | StoredFile], column: str, needed: int, rows: Rows) -> FlatFile:
    """Opens the flat file of these Parquet files, after writing it if it does not exist."""
    about = [_version(file) for file in files]
    name = hashlib.sha256("\n".join([column, *about]).encode()).hexdigest()[:16]
    home = Path(tempfile.gettempdir()) / f"unweave-{os.getuid()}"
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        if home.stat().st_uid != os.getuid():
            raise UnweaveError(f"{home} belongs to another user; set TMPDIR to a folder of your own")
        with locked(home / f"{name}.lock"):  # one process of this machine writes, the others wait for it
            if not (home / name).is_dir():
                _write(home / name, files, needed, rows)
        return FlatFile(home / name)
    except OSError as error:
        raise UnweaveError(f"the images cannot be copied to {home}: {error.strerror}; set TMPDIR") from None


def _version(file: Path | StoredFile) -> str:
    """Another text once the file has changed."""
    if isinstance(file, StoredFile):
        return f"{file} {file.size} {file.changed}"
    return f"{file.resolve()} {file.stat().st_size} {file.stat().st_mtime_ns}"


def _write(folder: Path, files: Sequence[Path | StoredFile], needed: int, rows: Rows) -> None:
    if needed > (free := shutil.disk_usage(folder.parent).free):
        raise UnweaveError(
            f"the Parquet files hold {needed / 2**30:.1f} GB of encoded images, more than fits into memory; a copy "
            f"needs as much in {folder.parent}, where {free / 2**30:.1f} GB are free: set TMPDIR to another folder"
        )
    temporary = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        lengths, paths = [], []
        with open(temporary / "images.bin", "wb") as out:
            for data, path in (row for file in files for row in rows(file)):
                lengths.append(-1 if data is None else len(data))
                paths.append(path)
                out.write(data or b"")
        index = pa.table({"length": pa.array(lengths, pa.int64()), "path": pa.array(paths, pa.string())})
        pq.write_table(index, temporary / "index.parquet")
        os.rename(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
