"""Parquet's images in one flat file, for sets larger than memory.

Parquet can only be read by whole row groups, and training reads in random order. The encoded images are therefore
written once, one after another, to a file that is then read at any place; the operating system keeps what is used
often. It lies in the folder for temporary files (``TMPDIR``), under a name that tells which Parquet files it is of:
every process of a machine, and the next run, use the same.
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

from unweave.errors import UnweaveError

Rows = Callable[[Path], Iterator[tuple[bytes | None, str | None]]]
"""Gives the bytes and the path of every row of a file."""


class UnpackedImages:
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
        """Image i's bytes, and its path; None where there are none."""
        if self.lengths[i] < 0:
            return None, self.path(i)
        with open(self._file, "rb") as file:
            return os.pread(file.fileno(), int(self.lengths[i]), int(self._starts[i])), self.path(i)

    def path(self, i: int) -> str | None:
        """Its path alone."""
        return self._paths[i].as_py()


def unpack(files: Sequence[Path], column: str, needed: int, rows: Rows) -> UnpackedImages:
    """Opens the flat file of these Parquet files; writes it first, where it is not there yet."""
    import fcntl  # not on Windows, where only this fails

    about = [f"{file.resolve()} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
    name = hashlib.sha256("\n".join([column, *about]).encode()).hexdigest()[:16]
    home = Path(tempfile.gettempdir()) / f"unweave-{os.getuid()}"
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        if home.stat().st_uid != os.getuid():
            raise UnweaveError(f"{home} belongs to somebody else; set TMPDIR to a folder of your own")
        with open(home / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one process of this machine writes, the others wait for it
            if not (home / name).is_dir():
                _write(home / name, files, needed, rows)
        return UnpackedImages(home / name)
    except OSError as error:
        raise UnweaveError(f"the images cannot be unpacked to {home}: {error.strerror}; set TMPDIR") from None


def _write(folder: Path, files: Sequence[Path], needed: int, rows: Rows) -> None:
    if needed > (free := shutil.disk_usage(folder.parent).free):
        raise UnweaveError(
            f"the Parquet files hold {needed / 2**30:.1f} GB of encoded images, more than memory; unpacked they do not "
            f"fit into {folder.parent} either, where {free / 2**30:.1f} GB are free: set TMPDIR"
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
