"""Checkpoints: one safetensors file with everything a run needs to go on. No pickle, so a stranger's is safe to open.

Tensors are stored as such; all else (step, λ's rule, the optimiser's settings) is the file's JSON metadata.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unweave.errors import UnweaveError

FORMAT = 1
"""Raised whenever an older unweave could not read what is written."""


@contextmanager
def atomically(path: Path) -> Iterator[Path]:
    """A name to write to; what is written there takes the place of ``path`` once it is safe on the disk.

    Either the old file or the new one is there, whole, whenever the machine stops.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())  # safetensors makes files for the owner alone
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def remove_remains(path: Path) -> None:
    """Deletes what writes of ``path`` left behind that were killed half-way."""
    for remains in path.parent.glob(f".{path.name}.*.tmp"):
        remains.unlink(missing_ok=True)


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Writes nested dictionaries and lists of tensors, numbers, strings and None."""
    tensors: dict[str, Tensor] = {}
    skeleton = _pack(state, "", tensors)
    metadata = {"unweave_format": str(FORMAT), "skeleton": json.dumps(skeleton)}
    with atomically(path) as temporary:
        try:
            save_file(tensors, temporary, metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from None


def load_checkpoint(path: Path) -> dict[str, Any]:
    """What ``save_checkpoint`` was given, on the CPU."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            found = metadata.get("unweave_format")
            if found is None:
                raise UnweaveError(f"{path} is a safetensors file, but no checkpoint of unweave")
            if int(found) > FORMAT:
                raise UnweaveError(
                    f"{path} has checkpoint format {found}, this unweave reads up to {FORMAT}: update it"
                )
            return _unpack(json.loads(metadata["skeleton"]), file)
    except (SafetensorError, OSError) as error:
        raise UnweaveError(f"{path} cannot be read as a checkpoint: {error}") from None


def _pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """JSON for all but tensors, which go to ``tensors``. Dictionaries become lists of pairs: keys may be numbers."""
    if isinstance(value, Tensor):
        # A copy: safetensors refuses tensors that share memory.
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[key, _pack(item, f"{name}.{key}".lstrip("."), tensors)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return {"list": [_pack(item, f"{name}.{i}", tensors) for i, item in enumerate(value)]}
    return {"value": value}


def _unpack(packed: Any, file: Any) -> Any:
    (kind, value), *_ = packed.items()
    if kind == "tensor":
        return file.get_tensor(value)
    if kind == "dict":
        return {key: _unpack(item, file) for key, item in value}
    if kind == "list":
        return [_unpack(item, file) for item in value]
    return value


def random_states() -> dict[str, Any]:
    """torch's global generators, as dropout and the like use them; the run's own draws hang on seed and step alone."""
    states: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random_states(states: dict[str, Any]) -> None:
    """Undoes whatever was drawn since ``random_states``."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
