"""One process at a time in a folder. The system lets go of a lock when its process dies, however it dies."""

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def take(folder: Path, patience: float) -> int | None:
    """A descriptor that holds the lock; None if somebody else has it so long; -1 where there are no such locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return -1
    descriptor, until = os.open(folder, os.O_RDONLY), time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(descriptor)
                return None
            time.sleep(0.05)
        except OSError:  # a file system without them
            return descriptor


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Waits for its turn, however long."""
    held = take(folder, math.inf)
    try:
        yield
    finally:
        if held is not None and held >= 0:
            os.close(held)
