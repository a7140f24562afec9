"""One run a folder: two that write to the same checkpoint would both be lost."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from unweave.errors import UnweaveError
from unweave.locks import take
from unweave.processes import rank, world_size

PATIENCE = 12.0
"""Seconds: the workers of a run that was killed hold the folder until they notice."""


@contextmanager
def only_run(out: Path, device: torch.device) -> Iterator[None]:
    """Holds the folder while it is open. The system lets go of it when a process dies, however it dies."""
    held = take(out, PATIENCE) if rank() == 0 else -1
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
