"""The states of torch's global generators, which dropout and similar layers draw from."""

from typing import Any

import torch


def random_states() -> dict[str, Any]:
    """The present states. What the training loop itself draws depends on seed and step alone."""
    states: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random_states(states: dict[str, Any]) -> None:
    """Sets the generators to these states."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
