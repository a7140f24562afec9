"""SIGTERM, by which Slurm announces that a job must go, and Ctrl-C: finish the step, save, and leave."""

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

import torch

from unweave.processes import rank, world_size

AGREE_EVERY = 10
"""Steps between two looks at what the other processes were told: each look waits for them."""


class StopRequest:
    """Listens for SIGTERM and SIGINT while it is open; before and after, the signals do what they did.

    A second Ctrl-C does so at once.
    """

    def __init__(self, device: torch.device) -> None:
        self.interrupted = False
        """Ctrl-C it was: who called us should hear of it."""
        self._device, self._told = device, False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._tell) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            if before is not None:  # set by something other than Python, which cannot be put back
                signal.signal(number, before)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        self._told = True
        if number == signal.SIGINT:
            self.interrupted = True
            signal.signal(signal.SIGINT, self._before[signal.SIGINT] or signal.default_int_handler)
            if rank() == 0:
                print("stopping when this step is done and saved; Ctrl-C again stops at once", file=sys.stderr)

    def asked(self, step: int) -> bool:
        """Whether to stop after ``step`` steps: the same answer on every process."""
        if world_size() == 1:
            return self._told
        if step % AGREE_EVERY:
            return False
        told = torch.tensor(int(self._told), device=self._device)
        torch.distributed.all_reduce(told, torch.distributed.ReduceOp.MAX)
        return bool(told)
