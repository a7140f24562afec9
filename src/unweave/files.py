"""Files that survive a crash: atomic writes, folder locks, a check that a folder can be written to."""

import errno
import glob
import math
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unweave.errors import UnweaveError, UnweaveWarning


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary name to write to; on success the file there replaces ``path``.

    At any moment, whenever the process or the machine stops, ``path`` holds the old file or the new one, complete. A
    symbolic link is followed; a device or a folder is not replaced.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())  # safetensors creates files readable by their owner alone
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_text(path: Path, text: str) -> None:
    """Replaces a text file atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def remove_partial_writes(path: Path) -> None:
    """Deletes the temporary files of earlier writes of ``path`` whose processes have ended."""
    path = Path(os.path.realpath(path))
    for partial in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        pid = partial.name.split(".")[-2]
        if not (pid.isdigit() and process_runs(int(pid))):
            partial.unlink(missing_ok=True)


def process_runs(pid: int) -> bool:
    """Whether a process of this machine runs; one that has ended and is not yet removed does not.

    Examples:
        >>> process_runs(os.getpid())
        True
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return not Path("/proc/self").exists()  # where there is /proc, a process that runs is listed there


@contextmanager
def locked(path: Path, timeout: float = math.inf) -> Iterator[bool]:
    """Holds an exclusive lock on a folder or file; yields False if another process kept it for ``timeout`` seconds.

    The operating system releases the lock when its process ends, however it ends. Where the platform or the file system
    has no such locks, nothing is locked, and a warning says so.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        _warn_unlocked(path)
        yield True
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT)
    deadline = time.monotonic() + timeout
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    held = False
                    break
                time.sleep(0.05)
            except OSError:  # a file system without locks
                _warn_unlocked(path)
                held = True
                break
        yield held
    finally:
        os.close(descriptor)


def _warn_unlocked(path: Path) -> None:
    message = f"{path} cannot be locked here: make sure that no other run writes to it"
    warnings.warn(message, UnweaveWarning, stacklevel=4)


def make_writable_folder(path: Path) -> None:
    """Creates a folder where it does not exist, and raises ``UnweaveError`` where it cannot be written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".write-test-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UnweaveError(f"cannot write to the folder {path}: {error.strerror}; choose another folder") from None
