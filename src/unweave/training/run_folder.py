"""The folder of a run: its files, its lock, its fingerprint and its model."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from unweave.augment import Views
from unweave.describe import describe, differences, rebuild
from unweave.distributed import rank, world_size
from unweave.errors import UnweaveError
from unweave.files import locked, make_writable_folder, remove_partial_writes, write_text
from unweave.settings import read_yaml, to_yaml
from unweave.tensor_files import damaged, open_tensors, save_tensors
from unweave.training.checkpoint import load_checkpoint
from unweave.training.metrics import read_metrics

LOCK_TIMEOUT = 12.0
"""Seconds to wait for the folder: worker processes of a run that was killed hold it until they notice."""
DESCRIPTION = "unweave_description"
"""The entry in the metadata of exported weights that identifies the model's description."""


class RunFolder:
    """Everything that is known about a run on disk.

    Examples:
        >>> RunFolder("run").checkpoint.as_posix()
        'run/checkpoint.safetensors'
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoint = self.path / "checkpoint.safetensors"
        self.metrics = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.config = self.path / "config.yaml"
        self.unreadable = self.path / "unreadable.jsonl"
        self.report = self.path / "report.html"
        self.exported_weights = self.path / "model.safetensors"
        self.exported_model = self.path / "model.json"
        self.onnx = self.path / "model.onnx"

    @property
    def projectors(self) -> "RunFolder":
        """The run that trained the projectors alone, before this one."""
        return RunFolder(self.path / "projectors")

    def create(self) -> None:
        """Creates the folder; raises where it cannot be written to."""
        make_writable_folder(self.path)

    @contextmanager
    def locked(self, device: torch.device) -> Iterator[None]:
        """Holds the folder for this run. All processes raise if another run holds it."""
        first = rank() == 0
        with locked(self.path, LOCK_TIMEOUT) if first else _nothing() as held:
            in_use = torch.tensor(not held, device=device)
            if world_size() > 1:
                dist.broadcast(in_use, 0)
            if in_use:
                raise UnweaveError(
                    f"another run is writing to {self.path}; wait for it, stop it, or choose another `out`"
                )
            if first:
                remove_partial_writes(self.checkpoint)
            yield

    def require_space(self, encoder: nn.Module) -> None:
        """Raises unless two checkpoints fit on the disk: weights and two moments each, the old file and the new."""
        needed = 2 * 3 * sum(p.numel() * p.element_size() for p in encoder.parameters())
        if needed > (free := shutil.disk_usage(self.path).free):
            raise UnweaveError(
                f"checkpoints need {needed / 2**30:.2f} GB in {self.path}, {free / 2**30:.2f} GB are free; free some "
                "space or choose another `out`"
            )

    def require_same(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """Raises where the fingerprint of the run in this folder differs from that of the run to be started."""
        if changes := differences(old, new):
            said = ", ".join(f"`{path}` was {_short(before)}, now {_short(now)}" for path, before, now in changes[:4])
            more = f" and {len(changes) - 4} more" if len(changes) > 4 else ""
            raise UnweaveError(
                f"{self.path} contains another run ({said}{more}); choose an empty folder or the same settings"
            )

    def save_config(self, config: Mapping[str, Any]) -> None:
        """Writes the settings of ``unweave train``; on the first process."""
        if rank() == 0:
            try:
                write_text(self.config, to_yaml(config))
            except OSError as error:
                raise UnweaveError(f"cannot write {self.config}: {error.strerror}") from None

    def load_config(self) -> dict[str, Any]:
        """The settings that ``save_config`` has written."""
        return read_yaml(self.config)

    def load_model(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The description of the model and the weights of its encoder, from the last checkpoint."""
        state = load_checkpoint(self.checkpoint, only=("model", "encoder"))
        if not (isinstance(state.get("model"), dict) and isinstance(state.get("encoder"), dict)):
            raise damaged(self.checkpoint, "it has no model")
        return state["model"], state["encoder"]

    def load_views(self) -> Views:
        """The views of the run, from the last checkpoint."""
        state = load_checkpoint(self.checkpoint, only=("fingerprint",))
        views = rebuild(state["fingerprint"]["views"])
        if not isinstance(views, Views):
            raise UnweaveError(f"{self.path} was trained with pairs of another kind than those of unweave.Views")
        return views

    def load_metrics(self) -> list[dict[str, float]]:
        """The lines of ``metrics.jsonl``."""
        return read_metrics(self.metrics) if self.metrics.is_file() else []

    def save_exported_model(self, description: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        """Writes a model for ``load_exported_model``. The weights hold a digest of the description."""
        for file in (self.exported_weights, self.exported_model):
            remove_partial_writes(file)
        text = json.dumps(description, indent=1, ensure_ascii=False)
        save_tensors(self.exported_weights, weights, {"format": "pt", DESCRIPTION: _digest(json.loads(text))})
        write_text(self.exported_model, text + "\n")

    def load_exported_model(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The description and the weights that ``save_exported_model`` has written."""
        try:
            description = json.loads(self.exported_model.read_text(encoding="utf-8"))
        except OSError as error:
            raise UnweaveError(f"{self.exported_model} cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise damaged(self.exported_model, str(error)) from None
        if not isinstance(description, dict):
            raise damaged(self.exported_model, f"it holds a {type(description).__name__}, not a description")
        with open_tensors(self.exported_weights) as file:
            expected = file.metadata.get(DESCRIPTION)
            weights = {name: file.get(name) for name in file.names}
        if expected is not None and expected != _digest(description):
            raise damaged(
                self.exported_model, f"it is not the description that belongs to {self.exported_weights.name}"
            )
        return description, weights


@contextmanager
def _nothing() -> Iterator[bool]:
    yield True


def describe_model(encoder: nn.Module, views: Any, objective: Any) -> dict[str, Any]:
    """What ``uw.load`` needs besides the weights. The shape of the encoder's input is added during training."""
    spaces = getattr(encoder, "spaces", views.spaces)
    return {
        "spaces": list(spaces),
        "encoder": describe(encoder),
        "preparation": describe(getattr(views, "preparation", [])),
        "input_shape": None,
        "method": describe(getattr(objective, "geometry", None)),
    }


def _digest(description: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "…"
