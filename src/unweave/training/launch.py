"""How many processes there are, and who starts them: we ourselves, torchrun or Slurm."""

import atexit
import os

import torch.distributed as dist
from lightning_fabric import Fabric

from unweave.errors import UnweaveError
from unweave.training.config import TrainConfig


def processes(devices: int | None, nodes: int | None) -> tuple[int, int]:
    """Processes on each machine, and machines: as asked for, as torchrun or Slurm have started them, or one.

    >>> processes(None, None)
    (1, 1)
    """
    started = _started_by_torchrun() or _started_by_slurm()
    if started is None:
        return devices or 1, nodes or 1
    by, found = started
    for flag, asked, there in (("--devices", devices, found[0]), ("--nodes", nodes, found[1])):
        if asked is not None and asked != there:
            raise UnweaveError(
                f"{flag} is {asked}, but {by} has started {there}; leave the flag out, or make them agree"
            )
    return found


def _started_by_torchrun() -> tuple[str, tuple[int, int]] | None:
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    here, everywhere = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    return "torchrun", (here, everywhere // here)


def _started_by_slurm() -> tuple[str, tuple[int, int]] | None:
    """As Fabric sees it: tasks that srun has started; a shell inside an allocation is no such task."""
    if "SLURM_NTASKS" not in os.environ or os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive"):
        return None
    tasks, nodes = int(os.environ["SLURM_NTASKS"]), int(os.environ.get("SLURM_NNODES", "1"))
    if tasks % nodes:
        raise UnweaveError(
            f"Slurm has started {tasks} tasks on {nodes} nodes; ask for --ntasks-per-node, as many on each"
        )
    return "Slurm", (tasks // nodes, nodes)


def launch(config: TrainConfig) -> Fabric:
    """Fabric with its processes running."""
    try:
        fabric = Fabric(
            accelerator=config.accelerator,
            devices=config.devices,
            num_nodes=config.nodes,
            strategy=config.strategy,
            precision=config.precision,
        )
        fabric.launch()
    except Exception as error:  # Fabric's own exceptions have no common base
        if type(error).__name__ not in ("MisconfigurationException", "ValueError", "RuntimeError"):
            raise
        raise UnweaveError(f"the processes cannot be started: {' '.join(str(error).split())[:300]}") from None
    if dist.is_available() and dist.is_initialized():
        atexit.register(_disconnect)
    return fabric


def _disconnect() -> None:
    """Before the interpreter ends: gloo's threads, were they still running then, would abort the process."""
    if dist.is_initialized():
        dist.destroy_process_group()
