"""Checkpoints: one safetensors file with everything that a run needs to resume, and checksums of all of it.

Tensors are stored as such; everything else (the step, the model's description, the optimiser's settings) is in the
file's JSON metadata.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from torch import Tensor

from unweave.errors import UnweaveError
from unweave.tensor_files import TensorFile, open_tensors, save_tensors

FORMAT = 2
"""Increased whenever an older unweave cannot read new files."""


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Writes nested dictionaries and lists of tensors, numbers, strings and None, atomically.

    Examples:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_checkpoint(Path(folder) / "c.safetensors", {"step": 3, "weight": torch.zeros(2)})
        ...     load_checkpoint(Path(folder) / "c.safetensors")
        {'step': 3, 'weight': tensor([0., 0.])}
    """
    tensors: dict[str, Tensor] = {}
    skeleton = _pack(state, "", tensors)
    save_tensors(path, tensors, {"unweave_format": str(FORMAT), "skeleton": json.dumps(skeleton)})


def load_checkpoint(path: Path, only: Collection[str] | None = None) -> dict[str, Any]:
    """What ``save_checkpoint`` was given, on the CPU; or only some of its entries.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_checkpoint(Path(folder) / "c.safetensors", {"step": 3, "name": "x"})
        ...     load_checkpoint(Path(folder) / "c.safetensors", only=("step",))
        {'step': 3}
    """
    with open_tensors(path) as file:
        found = file.metadata.get("unweave_format")
        if found is None:
            raise UnweaveError(f"{path} is a safetensors file, but not a checkpoint of unweave")
        if int(found) > FORMAT:
            raise UnweaveError(
                f"{path} has checkpoint format {found}, this unweave reads up to {FORMAT}: update unweave"
            )
        [(_, entries)] = json.loads(file.metadata["skeleton"]).items()
        return {key: _unpack(item, file) for key, item in entries if only is None or key in only}


def _pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """JSON of everything but tensors, which are added to ``tensors``. Dictionaries become lists of pairs, since JSON
    has no numbers as keys.
    """
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[key, _pack(item, f"{name}.{key}".lstrip("."), tensors)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return {"list": [_pack(item, f"{name}.{i}", tensors) for i, item in enumerate(value)]}
    return {"value": value}


def _unpack(packed: Any, file: TensorFile) -> Any:
    (kind, value), *_ = packed.items()
    if kind == "tensor":
        return file.get(value)
    if kind == "dict":
        return {key: _unpack(item, file) for key, item in value}
    if kind == "list":
        return [_unpack(item, file) for item in value]
    return value
