"""A process of the run that ends while the others wait for it: one line instead of the others' tracebacks."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from unweave.distributed import rank, world_size
from unweave.errors import UnweaveError
from unweave.files import process_runs

SIGNS = ("connection", "peer", "gloo", "nccl", "timed out", "socket", "store")
"""Words in the errors of torch.distributed."""
PATIENCE = 2.0
"""Seconds in which a lost process of this machine ends."""


@contextmanager
def noticing_lost_processes() -> Iterator[None]:
    """Raises ``UnweaveError`` where the connection to another process breaks."""
    if world_size() == 1:
        yield
        return
    everyone: list[tuple[str, int]] = [("", 0)] * world_size()
    dist.all_gather_object(everyone, (socket.gethostname(), os.getpid()))
    try:
        yield
    except (RuntimeError, OSError) as error:
        text = f"{type(error).__name__} {error}".lower()
        if isinstance(error, UnweaveError) or not any(sign in text for sign in SIGNS):
            raise
        here = [(i, pid) for i, (host, pid) in enumerate(everyone) if host == socket.gethostname()]
        deadline = time.monotonic() + PATIENCE
        while not (gone := [i for i, pid in here if not process_runs(pid)]) and time.monotonic() < deadline:
            time.sleep(0.05)  # its connections close before the process has ended
        who = f"process {gone[0]} of {world_size()}" if gone else f"another of the {world_size()} processes"
        raise UnweaveError(
            f"{who} was lost, and process {rank()} ends too; the same command resumes from the last checkpoint"
        ) from None
