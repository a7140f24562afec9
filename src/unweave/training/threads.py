"""How many CPU threads torch uses.

Threads of one operation wait for each other. Where other programs occupy some of the cores, many threads can be several
times slower than one.
"""

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.functional import conv2d

from unweave.errors import UnweaveWarning

ROUNDS = 12
"""Measurements of each number of threads."""
CLEARLY = 0.75
"""Fewer threads are chosen if they take less than this fraction of the time."""
WATCHED_SECONDS = 20.0
"""How long the use of the cores is watched before a hint."""
BUSY = 0.4
"""The fraction of the threads' time that a process should use at least."""


@contextmanager
def cpu_threads(device: torch.device, given: int | None, before: int | None) -> Iterator[None]:
    """Sets torch's threads: as given, as in the run that is resumed, or as measured; restores them afterwards."""
    earlier = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(given or before or _default(earlier))
    try:
        yield
    finally:
        torch.set_num_threads(earlier)


def _default(present: int) -> int:
    if present == 1 or "OMP_NUM_THREADS" in os.environ:
        return present
    return fastest_threads(present)


def fastest_threads(most: int) -> int:
    """``most``, unless half of them, a quarter, … are clearly faster: a measurement of some tenths of a second.

    Examples:
        >>> fastest_threads(1)
        1
    """
    counts = [most]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    seconds = {count: _seconds(count) for count in counts}
    best = min(counts, key=lambda count: seconds[count])
    return best if seconds[best] < CLEARLY * seconds[most] else most


def _seconds(threads: int) -> float:
    """The mean time of a small convolution and some elementwise operations: a delay of one thread delays all."""
    torch.set_num_threads(threads)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        images, kernel = torch.randn(16, 32, 32, 32), torch.randn(32, 32, 3, 3)
        times = []
        for _ in range(ROUNDS + 1):
            start = time.perf_counter()
            out = conv2d(images, kernel, padding=1)
            for _ in range(8):
                out = out.relu() + images
            times.append(time.perf_counter() - start)
    return sum(times[1:]) / ROUNDS  # the first one starts the threads


class CoreUse:
    """Warns once if a process gets much less time on the cores than its threads could use.

    Args:
        threads: of torch in this process.
    """

    def __init__(self, threads: int) -> None:
        self._threads, self._warned = threads, False
        self.restart()

    def restart(self) -> None:
        """Forgets what was measured: called after anything that is not training."""
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def check(self) -> None:
        """Called at intervals."""
        wall = time.perf_counter() - self._wall
        if self._warned or wall < WATCHED_SECONDS:
            return
        used = (time.process_time() - self._cpu) / wall
        self.restart()
        if used < BUSY * self._threads:
            self._warned = True
            warnings.warn(
                f"training uses {used:.1f} of {self._threads} cores: other programs occupy them, and `threads` "
                f"{max(1, self._threads // 2)} may be faster; or images arrive too slowly, and `cache` ram or more "
                "`workers` help",
                UnweaveWarning,
                stacklevel=2,
            )
