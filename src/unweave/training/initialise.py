"""Start from what others have trained: a run of ours, or a checkpoint of torchvision's, timm's or their kin.

Nothing here unpickles code: safetensors files hold tensors alone, and of .pth files only tensors are read.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from unweave.errors import UnweaveError
from unweave.models import Encoder
from unweave.training.checkpoint import load_checkpoint

PREFIXES = ("module.", "encoder.", "backbone.", "model.", "_orig_mod.", "student.", "net.", "base_encoder.")
"""Under which libraries store a backbone within a larger module."""
WRAPPERS = ("state_dict", "model", "model_state_dict", "encoder", "backbone")
"""Keys under which a .pth file holds its weights."""


def initialise(encoder: Encoder, init: str) -> str:
    """Loads the weights that ``init`` names into the encoder; says in words what was taken."""
    path = Path(init).expanduser()
    checkpoint = path / "checkpoint.safetensors"
    exported = path / "model.safetensors"
    if checkpoint.is_file():
        return _from_run(encoder, load_checkpoint(checkpoint)["encoder"], init)
    if exported.is_file():
        return _from_run(encoder, _tensors(exported), init)
    if path.is_file():
        weights = _tensors(path)
        if any(name.startswith("projectors.") for name in weights):
            return _from_run(encoder, weights, init)
        return _from_backbone(encoder, weights, init)
    if path.is_dir():
        raise UnweaveError(f"--init {init}: the folder holds no checkpoint of a run")
    raise UnweaveError(f"--init {init}: there is no such run or file; 'pretrained' takes the library's own weights")


def _from_run(encoder: Encoder, weights: dict[str, Tensor], init: str) -> str:
    """The backbone, and the projectors of spaces that have the same name and shape."""
    backbone = {k.removeprefix("backbone."): v for k, v in weights.items() if k.startswith("backbone.")}
    said = _from_backbone(encoder, backbone, init)
    ours = encoder.projectors.state_dict()
    taken = []
    for space in encoder.spaces:
        theirs = {
            k: v
            for k, v in ((k.removeprefix("projectors."), v) for k, v in weights.items())
            if k.startswith(f"{space}.")
        }
        if theirs and all(k in ours and ours[k].shape == v.shape for k, v in theirs.items()):
            encoder.projectors.load_state_dict(theirs, strict=False)
            taken.append(space)
    return f"{said}, projectors of {', '.join(taken)}" if taken else f"{said}, new projectors"


def _from_backbone(encoder: Encoder, weights: dict[str, Tensor], init: str) -> str:
    ours = encoder.backbone.state_dict()
    theirs = _strip(weights, set(ours))
    missing = [name for name in ours if name not in theirs and not name.endswith("num_batches_tracked")]
    if missing:
        raise UnweaveError(
            f"--init {init} is of another network than --backbone: {len(missing)} of its {len(ours)} tensors are not "
            f"there, {missing[0]} first"
        )
    for name, value in ours.items():
        if name in theirs and theirs[name].shape != value.shape:
            raise UnweaveError(
                f"--init {init} is of another network than --backbone: {name} is {tuple(theirs[name].shape)} there, "
                f"{tuple(value.shape)} here"
            )
    encoder.backbone.load_state_dict({k: v for k, v in theirs.items() if k in ours}, strict=False)
    return f"backbone from {init}"


def _strip(weights: dict[str, Tensor], wanted: set[str]) -> dict[str, Tensor]:
    """Without the prefix under which most of the wanted names are found."""
    best, found = weights, len(wanted & set(weights))
    tries = [""]
    for _ in range(2):  # module.encoder. and the like
        tries = [before + prefix for before in tries for prefix in ("", *PREFIXES)]
    for prefix in dict.fromkeys(tries):
        stripped = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
        if (count := len(wanted & set(stripped))) > found:
            best, found = stripped, count
    return best


def _tensors(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise UnweaveError(f"{path} cannot be read: {error}") from None
    try:
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a file that is no checkpoint makes torch raise
        reason = str(error).splitlines()[0][:160]
        raise UnweaveError(
            f"{path} cannot be read as weights without running code it may hold ({reason}); convert it to safetensors"
        ) from None
    for key in WRAPPERS:
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    tensors = {k: v for k, v in loaded.items() if isinstance(v, Tensor)} if isinstance(loaded, dict) else {}
    if not tensors:
        raise UnweaveError(f"{path} holds no tensors by name")
    return tensors
