"""One run a folder: two that write to the same checkpoint would both be lost."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from unweave.errors import UnweaveError
from unweave.processes import rank, world_size

PATIENCE = 12.0
"""Seconds: the workers of a run that was killed hold the folder until they notice."""


@contextmanager
def only_run(out: Path, device: torch.device) -> Iterator[None]:
    """Holds the folder while it is open. The system lets go of it when a process dies, however it dies."""
    held = _lock(out) if rank() == 0 else -1
    try:
        taken = torch.tensor(held is None, device=device)
        if world_size() > 1:
            dist.broadcast(taken, 0)
        if taken:
            raise UnweaveError(f"another run is writing to {out}; wait for it, stop it, or choose another --out")
        yield
    finally:
        if held is not None and held >= 0:
            os.close(held)


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the lock; None if somebody else has it; -1 where there are no such locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return -1
    descriptor, until = os.open(folder, os.O_RDONLY), time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(descriptor)
                return None
            time.sleep(0.2)
        except OSError:  # a file system without them
            return descriptor
