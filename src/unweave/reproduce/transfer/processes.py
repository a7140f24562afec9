"""Several processes: those that train one model together, and those that share the models of a study."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from unweave import LaunchConfig, UnweaveError
from unweave.files import locked

T = TypeVar("T")
LONGEST_WAIT = timedelta(days=30)
"""The others wait while the first process scores a model, which can take hours."""
TRAINING_AT_ONCE = 2
"""Calls of a study that train at the same time: one reads its images while the other keeps the GPU busy. More of them
slow each other and the probes down."""


class Processes:
    """The processes that train one model together; the first decides for all and scores alone.

    Args:
        launch: starts or joins them.
    """

    def __init__(self, launch: LaunchConfig) -> None:
        fabric = launch.start()
        self.first = fabric.is_global_zero
        self._group: Any = None
        if fabric.world_size > 1:
            self._group = dist.new_group(backend="gloo", timeout=LONGEST_WAIT)

    def agree(self, value: T) -> T:
        """The value of the first process, for which the others wait."""
        if self._group is None:
            return value
        values = [value]
        try:
            dist.broadcast_object_list(values, 0, self._group, torch.device("cpu"))
        except RuntimeError:
            raise UnweaveError("another process of the study has ended; the same command resumes it") from None
        return values[0]

    @contextmanager
    def training(self, folder: Path) -> Iterator[None]:
        """Waits until fewer than ``TRAINING_AT_ONCE`` calls are within this block, whose locks are in ``folder``."""
        with ExitStack() as stack:
            number = 0
            while self.first and not stack.enter_context(locked(folder / f".training-{number}.lock", 0.0)):
                number = (number + 1) % TRAINING_AT_ONCE
                stack.close()
                time.sleep(0.1)
            yield

    @contextmanager
    def claimed(self, folder: Path, timeout: float = 0.0) -> Iterator[bool]:
        """Whether these processes may make what belongs into ``folder``: another call may be doing so.

        Args:
            folder: of a model; its lock is the file beside it.
            timeout: seconds to wait for the other call.
        """
        with locked(folder.with_suffix(".lock"), timeout) if self.first else nullcontext(True) as mine:
            yield self.agree(mine)
