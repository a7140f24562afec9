"""What a run must not lose: everything that is saved, and how it is taken up again."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unweave.augment import Views
from unweave.errors import UnweaveError
from unweave.objectives import DisentangledLoss
from unweave.processes import rank
from unweave.training import checkpoint as ckpt
from unweave.training.config import TrainConfig

FREE = (
    "log_every", "checkpoint_every", "checkpoint_minutes", "accelerator", "devices", "nodes", "strategy", "compile",
    "micro_batch", "tensorboard", "graph",
)  # fmt: skip
"""Settings that may differ between the two halves of a run."""


def identity(
    images: int, views: Views, encoder: nn.Module, objective: DisentangledLoss, config: TrainConfig
) -> dict[str, Any]:
    """What must not differ between the two halves of a run; of the encoder, what its weights do not show."""
    settings = {k: v for k, v in asdict(config).items() if k not in FREE}
    rule = f"{objective.base!r}, {objective.rule!r}, content_pairs={objective.content_pairs}, {objective.entropies}"
    rule += f", independence={objective.independence}" if objective.independence else ""
    ends = sorted(getattr(encoder, "ends", ()))
    return {**settings, "images": images, "views": repr(views), "objective": rule, "ends": ends}


def save_run(
    path: Path,
    step: int,
    encoder: nn.Module,
    optimizer: torch.optim.Optimizer,
    objective: DisentangledLoss,
    about: dict[str, Any],
) -> None:
    """Writes the checkpoint; the first process does, the others have the same."""
    if rank() != 0:
        return
    state = {
        "step": step,
        "config": about,
        "encoder": encoder.state_dict(),
        "optimizer": optimizer.state_dict(),
        "objective": objective.state_dict(),
        "random": ckpt.random_states(),
    }
    try:
        ckpt.save_checkpoint(path, state)
    except OSError as error:
        kept = "; the one before it is whole" if path.exists() else ""
        raise UnweaveError(f"the checkpoint of step {step} could not be written: {error}{kept}") from None


def resume(
    path: Path,
    encoder: nn.Module,
    optimizer: torch.optim.Optimizer,
    objective: DisentangledLoss,
    about: dict[str, Any],
) -> int:
    """The step to go on from: 0, or what the checkpoint in the folder has reached."""
    if not path.exists():
        return 0
    state = ckpt.load_checkpoint(path)
    theirs, ours = {"ends": [], **state["config"]}, json.loads(json.dumps(about))  # a run from before ends has none
    if differ := {k: (theirs.get(k), v) for k, v in ours.items() if theirs.get(k) != v}:
        changes = ", ".join(
            f"other {k}" if k in ("views", "objective") else f"{k} was {old}, now {new}"
            for k, (old, new) in differ.items()
        )
        raise UnweaveError(f"{path.parent} holds another run ({changes}); choose an empty folder or the same settings")
    try:
        encoder.load_state_dict(state["encoder"])
        objective.load_state_dict(state["objective"])
        optimizer.load_state_dict(state["optimizer"])
        _lay_out_as_parameters(optimizer)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UnweaveError(f"{path} is of another model ({reason}); choose an empty folder") from None
    ckpt.restore_random_states(state["random"])
    return int(state["step"])


def _lay_out_as_parameters(optimizer: torch.optim.Optimizer) -> None:
    """Gives moments their parameter's strides: a file has none, and a fused step refuses any others."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                state[name] = torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)
