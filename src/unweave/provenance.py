"""Where a number comes from: command, commit, machine and versions."""

import os
import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from unweave import __version__

PACKAGES = ("torch", "torchvision", "timm", "lightning-fabric", "numpy")


def provenance(*more_packages: str) -> dict[str, Any]:
    """``command``, ``commit``, ``hardware`` and ``versions``, as every file of results begins."""
    return {"command": command(), "commit": commit(), "hardware": hardware(), "versions": versions(*more_packages)}


def command() -> str:
    """The command line; absolute paths are reduced to their last part, since they name a machine."""
    words = [_last_part(word) for word in sys.argv]
    return shlex.join(["unweave" if words[0] == "__main__.py" else words[0], *words[1:]])


def without_folders(value: Any) -> Any:
    """Settings, nested dictionaries and lists, with absolute paths reduced to their last part.

    Examples:
        >>> without_folders({"source": "/data/photos", "views": {"size": 64}})
        {'source': 'photos', 'views': {'size': 64}}
    """
    if isinstance(value, dict):
        return {name: without_folders(item) for name, item in value.items()}
    if isinstance(value, list):
        return [without_folders(item) for item in value]
    return _last_part(value) if isinstance(value, str) else value


def _last_part(word: str) -> str:
    """The last part of an absolute path, which may follow a name, as in dtd=/data/dtd."""
    name, separator, path = word.rpartition("=")
    return f"{name}{separator}{Path(path).name}" if Path(path).is_absolute() else word


def commit() -> str:
    """The commit of the source tree, marked where it has uncommitted changes.

    The variable ``UNWEAVE_COMMIT`` names it for a copy of the tree without git.
    """
    if named := os.environ.get("UNWEAVE_COMMIT"):
        return named
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return "unknown: not a git checkout"
    git = ["git", "-C", str(root)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changes = subprocess.run(
            [*git, "status", "--porcelain", "src"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown: git failed"
    return f"{head} with uncommitted changes" if changes.strip() else head


def hardware() -> str:
    """The GPU, if there is one, and the processor."""
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
    """The versions of Python, unweave and the packages that results depend on."""
    found = {"python": platform.python_version(), "unweave": __version__}
    for name in (*PACKAGES, *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found
