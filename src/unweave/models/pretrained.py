"""Weights to start from: of a run of unweave, or a checkpoint of torchvision, timm and similar libraries.

No code is unpickled: safetensors files hold tensors only, and of .pth files only tensors are read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unweave.errors import UnweaveError
from unweave.models.encoder import Encoder
from unweave.tensor_files import open_tensors

PREFIXES = ("module.", "encoder.", "backbone.", "model.", "_orig_mod.", "student.", "net.", "base_encoder.")
"""Prefixes under which libraries store a backbone within a larger module."""
WRAPPERS = ("state_dict", "model", "model_state_dict", "encoder", "backbone")
"""Keys under which .pth files hold the weights."""


def load_weights(encoder: Encoder, weights: Mapping[str, Tensor], source: str = "these weights") -> str:
    """Copies weights into the encoder; returns a description of what was loaded.

    From the weights of an ``Encoder`` come the backbone and the projectors of spaces with the same name and shape; from
    those of another library, as ``read_weights`` gives them, the backbone alone. Errors name their ``source``.

    Examples:
        >>> from torchvision.models import resnet18
        >>> load_weights(Encoder("resnet18", ("content",)), resnet18().state_dict(), "resnet18.pth")
        'backbone from resnet18.pth'
    """
    if not any(name.startswith("projectors.") for name in weights):
        return _load_backbone(encoder, weights, source)
    backbone = {k.removeprefix("backbone."): v for k, v in weights.items() if k.startswith("backbone.")}
    loaded = _load_backbone(encoder, backbone, source)
    ours = encoder.projectors.state_dict()
    spaces = []
    for space in encoder.spaces:
        prefix = f"projectors.{space}."
        theirs = {k.removeprefix("projectors."): v for k, v in weights.items() if k.startswith(prefix)}
        if theirs and all(k in ours and ours[k].shape == v.shape for k, v in theirs.items()):
            encoder.projectors.load_state_dict(theirs, strict=False)
            spaces.append(space)
    return f"{loaded}, projectors of {', '.join(spaces)}" if spaces else f"{loaded}, new projectors"


def _load_backbone(encoder: Encoder, weights: Mapping[str, Tensor], source: str) -> str:
    ours = encoder.backbone.state_dict()
    theirs = _strip(weights, set(ours))
    missing = [name for name in ours if name not in theirs and not name.endswith("num_batches_tracked")]
    if missing:
        raise UnweaveError(
            f"{source} is of another network than `backbone`: {len(missing)} of {len(ours)} tensors are missing, "
            f"the first is {missing[0]}"
        )
    for name, value in ours.items():
        if name in theirs and theirs[name].shape != value.shape:
            raise UnweaveError(
                f"{source} is of another network than `backbone`: {name} has the shape "
                f"{tuple(theirs[name].shape)}, not {tuple(value.shape)}"
            )
    encoder.backbone.load_state_dict({k: v for k, v in theirs.items() if k in ours}, strict=False)
    return f"backbone from {source}"


def _strip(weights: Mapping[str, Tensor], wanted: set[str]) -> Mapping[str, Tensor]:
    """The weights without the prefix under which most of the wanted names are found."""
    best, found = weights, len(wanted & set(weights))
    tries = [""]
    for _ in range(2):  # such as module.encoder.
        tries = [before + prefix for before in tries for prefix in ("", *PREFIXES)]
    for prefix in dict.fromkeys(tries):
        stripped = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
        if (count := len(wanted & set(stripped))) > found:
            best, found = stripped, count
    return best


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The named tensors of a .safetensors or .pth file.

    Examples:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile(suffix=".pth") as file:
        ...     torch.save({"state_dict": {"weight": torch.zeros(2)}}, file.name)
        ...     read_weights(file.name)
        {'weight': tensor([0., 0.])}
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        with open_tensors(path) as file:
            return {name: file.get(name) for name in file.names}
    try:
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds of errors for files that are not checkpoints
        reason = " ".join((str(error) or type(error).__name__).split())[:160]
        raise UnweaveError(
            f"{path} is empty, damaged, or cannot be read without running code it may contain ({reason}); convert it "
            "to safetensors"
        ) from None
    for key in WRAPPERS:
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    items = loaded.items() if isinstance(loaded, dict) else ()
    tensors = {name: value for name, value in items if isinstance(name, str) and isinstance(value, Tensor)}
    if not tensors:
        raise UnweaveError(f"{path} contains no named tensors")
    return tensors
