"""SIGTERM, by which Slurm announces that a job must go: finish the step, save, and leave."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

import torch

from unweave.processes import world_size

AGREE_EVERY = 10
"""Steps between two looks at what the other processes were told: each look waits for them."""


class StopRequest:
    """Listens for SIGTERM while it is open; before and after, the signal does what it did."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._told = device, False
        self._before: Any = None

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._tell)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        self._told = True

    def asked(self, step: int) -> bool:
        """Whether to stop after ``step`` steps: the same answer on every process."""
        if world_size() == 1:
            return self._told
        if step % AGREE_EVERY:
            return False
        told = torch.tensor(int(self._told), device=self._device)
        torch.distributed.all_reduce(told, torch.distributed.ReduceOp.MAX)
        return bool(told)
