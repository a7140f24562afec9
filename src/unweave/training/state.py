"""What a run saves and resumes from."""

import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from unweave.distributed import rank
from unweave.errors import UnweaveError
from unweave.objectives import Objective
from unweave.training.checkpoint import load_checkpoint, save_checkpoint
from unweave.training.random_state import random_states, restore_random_states
from unweave.training.run_folder import RunFolder


@dataclass
class TrainingState:
    """Encoder, optimiser and objective, with the run's fingerprint and the description of its model."""

    folder: RunFolder
    encoder: nn.Module
    optimizer: torch.optim.Optimizer
    objective: Objective
    fingerprint: dict[str, Any]
    """What must not change when the run resumes."""
    model: dict[str, Any]
    """What ``uw.load`` needs besides the weights."""
    allow_other_data: bool = False
    """Whether the images may be others than those with which the run began."""
    threads: int | None = None
    """The number of CPU threads of the run that is resumed."""

    def save(self, step: int) -> None:
        """Writes the checkpoint; on the first process, since the others have the same state."""
        if rank() != 0:
            return
        state = {
            "step": step,
            "fingerprint": self.fingerprint,
            "model": self.model,
            "encoder": self.encoder.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "objective": self.objective.state_dict(),
            "random": random_states(),
            "threads": torch.get_num_threads(),
        }
        path = self.folder.checkpoint
        try:
            save_checkpoint(path, state)
        except OSError as error:
            kept = "; the previous one is complete" if path.exists() else ""
            raise UnweaveError(f"the checkpoint of step {step} could not be written: {error}{kept}") from None

    def resume(self) -> int:
        """Loads the checkpoint in the folder; returns its step, or 0 where there is none."""
        path = self.folder.checkpoint
        if not path.exists():
            return 0
        state = load_checkpoint(path)
        self._require_same(state["fingerprint"])
        try:
            self.encoder.load_state_dict(state["encoder"])
            self.objective.load_state_dict(state["objective"])
            self.optimizer.load_state_dict(state["optimizer"])
            _match_parameter_layout(self.optimizer)
        except (RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise UnweaveError(f"{path} is of another model ({reason}); choose an empty folder") from None
        self.model["input_shape"] = state["model"]["input_shape"]
        self.threads = state["threads"]
        restore_random_states(state["random"])
        return int(state["step"])

    def _require_same(self, old: dict[str, Any]) -> None:
        new = json.loads(json.dumps(self.fingerprint))
        self.folder.require_same(*({k: v for k, v in fingerprint.items() if k != "data"} for fingerprint in (old, new)))
        if old["data"] != new["data"] and not self.allow_other_data:
            raise UnweaveError(
                f"the images are not those with which the run in {self.folder.path} began; restore them, choose an "
                "empty folder, or set `allow_other_data`"
            )


def _match_parameter_layout(optimizer: torch.optim.Optimizer) -> None:
    """Gives moments the strides of their parameters, which a file does not keep and a fused step requires."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                state[name] = torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)
