"""``unweave doctor``: versions and devices for a bug report, and what is missing."""

import os
import platform
import shutil
import warnings
from importlib.metadata import PackageNotFoundError, version

from unweave._version import __version__

NEEDED = (
    "torch",
    "torchvision",
    "timm",
    "lightning-fabric",
    "safetensors",
    "numpy",
    "pillow",
    "pyarrow",
    "pyyaml",
    "tyro",
)
OPTIONAL = {
    "onnx": "unweave export (pip install 'unweave[export]')",
    "onnxscript": "unweave export (pip install 'unweave[export]')",
    "onnxruntime": "running an exported model (pip install 'unweave[export]')",
    "lancedb": "--store lance (pip install 'unweave[lance]')",
    "qdrant-client": "--store qdrant (pip install 'unweave[qdrant]')",
    "tensorboard": "--tensorboard (pip install 'unweave[tensorboard]')",
    "triton": "fast views on a GPU (part of torch on Linux)",
}


def doctor() -> None:
    """Print versions, devices, threads and what is missing: for bug reports."""
    print(report())


def report() -> str:
    """Versions, devices, threads and what is missing, one line each."""
    lines = [f"unweave {__version__}", f"python {platform.python_version()} on {platform.platform()}"]
    lines += [f"{name} {_version(name) or 'MISSING'}" for name in NEEDED]
    lines += _devices() + _machine() + _decoders()
    missing = [f"missing, optional: {name}, for {use}" for name, use in OPTIONAL.items() if _version(name) is None]
    return "\n".join([*lines, *(missing or ["nothing optional is missing"])])


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _devices() -> list[str]:
    import torch

    from unweave.gpu import triton_works

    if not torch.cuda.is_available():
        return [f"no GPU that torch can use (built for {torch.version.cuda or 'CPU only'})"]
    lines = []
    for i in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(i)
        free = torch.cuda.mem_get_info(i)[0]
        lines.append(f"GPU {i}: {about.name}, {free / 2**30:.1f} of {about.total_memory / 2**30:.1f} GB free")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernels = "work" if triton_works() else str(caught[-1].message) if caught else "are not available: no Triton"
    return [
        *lines,
        f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}",
        f"unweave's GPU kernels {kernels}",
    ]


def _machine() -> list[str]:
    import torch

    from unweave.data.resources import available_memory, cores, free_shared_memory

    shared = free_shared_memory()
    names = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "WORLD_SIZE", "LOCAL_RANK", "SLURM_JOB_ID", "SLURM_NTASKS")
    lines = [
        f"{cores()} cores of {os.cpu_count()}, torch uses {torch.get_num_threads()} threads",
        f"memory free: {available_memory() / 2**30:.1f} GB; "
        + (f"/dev/shm {shared / 2**30:.1f} GB" if shared < 2**62 else "no /dev/shm"),
        f"disk free here: {shutil.disk_usage('.').free / 2**30:.1f} GB",
    ]
    environment = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
    return [*lines, "environment: " + (", ".join(environment) or "none of these set")]


def _decoders() -> list[str]:
    from PIL import features

    turbo = features.check_feature("libjpeg_turbo")
    formats = [name for name in ("jpg", "webp", "avif", "jpg_2000", "libtiff") if features.check(name)]
    return [f"Pillow reads {', '.join(formats)}; libjpeg-turbo {'yes' if turbo else 'NO: decoding will be slow'}"]
