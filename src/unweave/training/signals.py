"""SIGTERM, which Slurm sends before it ends a job, and Ctrl-C: finish the step, save, and stop."""

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

import torch

from unweave.distributed import rank, world_size

AGREE_EVERY = 10
"""Steps between two exchanges with the other processes, each of which waits for them."""


class StopSignals:
    """Handles SIGTERM and SIGINT while it is open; the previous handlers are restored afterwards.

    A second Ctrl-C is handled by the previous handler at once.
    """

    def __init__(self, device: torch.device) -> None:
        self.interrupted = False
        """Whether the signal was Ctrl-C."""
        self._device, self._received = device, False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            if before is not None:  # a handler that was not set by Python cannot be restored
                signal.signal(number, before)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = True
        if number == signal.SIGINT:
            self.interrupted = True
            signal.signal(signal.SIGINT, self._before[signal.SIGINT] or signal.default_int_handler)
            if rank() == 0:
                print("stopping after this step is saved; press Ctrl-C again to stop at once", file=sys.stderr)

    def received(self, step: int) -> bool:
        """Whether to stop after ``step`` steps: the same answer on every process."""
        if world_size() == 1:
            return self._received
        if step % AGREE_EVERY:
            return False
        received = torch.tensor(int(self._received), device=self._device)
        torch.distributed.all_reduce(received, torch.distributed.ReduceOp.MAX)
        return bool(received)
