"""Memory and processor cores that this process may use."""

import os
import shutil
from pathlib import Path

from unweave.distributed import local_world_size


def available_memory() -> int:
    """Bytes this process may use: what is free on the machine or in its container, divided by our processes there."""
    return min(_free_on_machine(), _free_in_container()) // local_world_size()


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
    """The rest of the container's memory limit (cgroups); without a limit, a very large number."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        return 2**62 if limit == "max" else max(0, int(limit) - used)
    except (OSError, ValueError):
        return 2**62


def free_shared_memory() -> int:
    """Bytes free in /dev/shm, which worker processes use to pass tensors."""
    try:
        return shutil.disk_usage("/dev/shm").free
    except OSError:  # not Linux: shared memory has no such limit
        return 2**62


def cores() -> int:
    """The number of processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """Processes that decode images for one training process: its share of the cores, at most 16."""
    slurm = os.environ.get("SLURM_CPUS_PER_TASK", "")
    share = int(slurm) if slurm.isdigit() else cores() // local_world_size()
    return max(1, min(16, share))
