"""How many processes there are, and who starts them: unweave, torchrun or Slurm."""

import atexit
import os
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed as dist
from lightning_fabric import Fabric

from unweave.distributed import started_by_slurm, started_by_torchrun
from unweave.errors import UnweaveError

if TYPE_CHECKING:
    from unweave.training.config import LaunchConfig


def process_counts(devices: int | None, nodes: int | None) -> tuple[int, int]:
    """Processes on each machine, and machines: as given, as torchrun or Slurm have started them, or one.

    Examples:
        >>> process_counts(None, None)
        (1, 1)
    """
    started = _torchrun_counts() or _slurm_counts()
    if started is None:
        return devices or 1, nodes or 1
    launcher, counts = started
    for name, given, found in (("devices", devices, counts[0]), ("nodes", nodes, counts[1])):
        if given is not None and given != found:
            raise UnweaveError(f"`{name}` is {given}, but {launcher} has started {found}; leave it out")
    return counts


def _torchrun_counts() -> tuple[str, tuple[int, int]] | None:
    if not started_by_torchrun():
        return None
    local, total = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    return "torchrun", (local, total // local)


def _slurm_counts() -> tuple[str, tuple[int, int]] | None:
    if not started_by_slurm():
        return None
    tasks, nodes = int(os.environ["SLURM_NTASKS"]), int(os.environ.get("SLURM_NNODES", "1"))
    if tasks % nodes:
        raise UnweaveError(
            f"Slurm has started {tasks} tasks on {nodes} nodes; use --ntasks-per-node, so that each has as many"
        )
    return "Slurm", (tasks // nodes, nodes)


def launch(config: "LaunchConfig") -> Fabric:
    """Fabric, with its processes running."""
    devices, nodes = process_counts(config.devices, config.nodes)
    precision = automatic_precision(config.accelerator) if config.precision == "auto" else config.precision
    try:
        fabric = Fabric(
            accelerator=config.accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy=config.strategy,
            precision=precision,
        )
        fabric.launch()
    except Exception as error:  # Fabric's own exceptions have no common base
        if type(error).__name__ not in ("MisconfigurationException", "ValueError", "RuntimeError"):
            raise
        raise UnweaveError(f"the processes cannot be started: {' '.join(str(error).split())[:300]}") from None
    if dist.is_available() and dist.is_initialized():
        atexit.register(_disconnect)
    return fabric


def automatic_precision(accelerator: str) -> Literal["bf16-mixed", "32-true"]:
    """bf16-mixed where products of bfloat16 matrices are faster than those of single precision.

    Examples:
        >>> automatic_precision("cpu") in ("bf16-mixed", "32-true")
        True
    """
    on_gpu = accelerator in ("auto", "cuda", "gpu") and torch.cuda.is_available()
    return "bf16-mixed" if on_gpu or cpu_has_bfloat16() else "32-true"


def cpu_has_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16: AMX or AVX512-BF16, as in server processors of the last years.

    A step of the preset small is then 1.6 to 1.7 times as fast as in single precision (`benchmarks/step.py`).
    """
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # torch 2.11 and later
    return any(capabilities.get(name, False) for name in ("amx_bf16", "avx512_bf16"))


def _disconnect() -> None:
    """Ends the process group before the interpreter exits: threads of gloo that still run then abort the process."""
    if dist.is_initialized():
        dist.destroy_process_group()
