"""How many CPU threads torch uses.

Threads of one operation wait for each other. Where other programs occupy some of the cores, many threads can be several
times slower than one.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.functional import conv2d

ROUNDS = 12
"""Measurements of each number of threads."""
CLEARLY = 0.75
"""Fewer threads are chosen if they take less than this fraction of the time."""


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
