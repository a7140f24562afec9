"""Where a number comes from: the command, the machine and the versions behind it."""

import os
import platform
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from unweave._version import __version__

PACKAGES = ("torch", "torchvision", "timm", "lightning-fabric", "numpy")


def provenance(*more_packages: str) -> dict[str, Any]:
    """``command``, ``hardware`` and ``versions`` as they stand at the head of every file of results."""
    return {"command": command(), "hardware": hardware(), "versions": versions(*more_packages)}


def command() -> str:
    """The command line; of what lies in a folder of this machine alone, only the name."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv]
    return shlex.join(["unweave" if words[0] == "__main__.py" else words[0], *words[1:]])


def hardware() -> str:
    """The GPU where there is one, and the processor."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cpu = f"{cores} cores of {_cpu_name()}"
    return f"{torch.cuda.get_device_name()}, {cpu}" if torch.cuda.is_available() else cpu


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions(*more: str) -> dict[str, str]:
    """Of Python and of the packages that matter."""
    found = {"python": platform.python_version(), "unweave": __version__}
    for name in (*PACKAGES, *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found
