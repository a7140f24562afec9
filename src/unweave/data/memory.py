"""How much memory is to be had."""

import os
import shutil
from pathlib import Path

from unweave.processes import processes_here


def available_memory() -> int:
    """Bytes this process may fill: what is free on the machine, or in its container, divided by our processes there."""
    return min(_free_on_machine(), _free_in_container()) // processes_here()


def _free_on_machine() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, OSError):
        return 4 * 2**30


def _free_in_container() -> int:
    """Under cgroups a container may have less than the machine; without a limit, boundless."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        return 2**62 if limit == "max" else max(0, int(limit) - used)
    except (OSError, ValueError):
        return 2**62


def free_shared_memory() -> int:
    """Bytes free in /dev/shm, through which processes hand tensors to one another."""
    try:
        return shutil.disk_usage("/dev/shm").free
    except OSError:  # not Linux: shared memory has no such limit
        return 2**62


def cores() -> int:
    """Processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """Processes that decode for one that trains: its share of the cores, 16 at most."""
    told = os.environ.get("SLURM_CPUS_PER_TASK", "")
    share = int(told) if told.isdigit() else cores() // processes_here()
    return max(1, min(16, share))
