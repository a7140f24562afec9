"""The exact gradient of a batch that is larger than memory.

    pass 1   every part through the network, keeping only z            memory of one part, and of all z
    loss     of all z together, and its gradient with respect to z
    pass 2   every part again, now backwards from that gradient

The loss compares every image with every other, so the mean of the parts' own losses would be another objective. Batch
norm normalises a part at a time; without it, the gradient is that of one pass.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from unweave.augment import Pair
from unweave.distributed import world_size
from unweave.objectives import LossTerms, Objective
from unweave.training.random_state import random_states, restore_random_states

Outputs = dict[str, Tensor]


def backward(fabric: Fabric, model: nn.Module, objective: Objective, pair: Pair) -> LossTerms:
    """The terms of a batch in one pass; the gradient is added to the parameters'."""
    targets = _targets(fabric, objective, pair)
    terms = objective(*_encoded(model, objective, pair), pair.shared, targets)
    fabric.backward(terms.loss)
    return terms


def backward_in_parts(
    fabric: Fabric,
    model: nn.Module,
    objective: Objective,
    make_pair: Callable[[int, int], Pair],
    images: int,
    part: int,
) -> LossTerms:
    """The same for a batch of ``images``, ``part`` of them at a time; ``make_pair(start, stop)`` makes their views.

    Views, and random layers of the network, draw the same numbers in both passes.
    """
    spans = [(start, min(start + part, images)) for start in range(0, images, part)]
    states, shared, parts, targets = [], [], [], []
    with torch.no_grad(), _statistics_kept(model):
        for span in spans:
            pair = make_pair(*span)
            states.append(random_states())
            shared.append(pair.shared)
            parts.append(_encoded(model, objective, pair))
            targets.append(_targets(fabric, objective, pair))
    z_a, z_b = (_joined([p[side] for p in parts], objective.outputs) for side in (0, 1))
    joined = {name: torch.cat([target[name] for target in targets]) for name in targets[0]}
    terms = objective(z_a, z_b, torch.cat(shared), joined)
    own = [p for p in objective.parameters() if p.requires_grad]
    # An objective need not use every space of every view: what it does not use has a gradient of 0.
    gradients = torch.autograd.grad(terms.loss, [*z_a.values(), *z_b.values(), *own], materialize_grads=True)
    for parameter, gradient in zip(own, gradients[len(gradients) - len(own) :], strict=True):
        parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    rows = [len(next(iter(part[0].values()))) for part in parts]
    # For each part, its rows of every embedding's gradient.
    pieces = zip(*(gradient.split(rows) for gradient in gradients[: len(gradients) - len(own)]), strict=True)
    for i, (span, piece, state) in enumerate(zip(spans, pieces, states, strict=True)):
        pair = make_pair(*span)
        restore_random_states(state)
        with _without_sync(fabric, model, enabled=i + 1 < len(spans)):
            outputs = _encoded(model, objective, pair)
            z = [side[name] for side in outputs if side for name in objective.outputs]
            fabric.backward(torch.stack([(x * g).sum() for x, g in zip(z, piece, strict=True)]).sum())
    return terms


def _encoded(model: nn.Module, objective: Objective, pair: Pair) -> tuple[Outputs, Outputs]:
    """The encoder's outputs for the views that it sees."""
    return model(pair.a, pair.b) if objective.encodes_b else model(pair.a)


@torch.no_grad()
def _targets(fabric: Fabric, objective: Objective, pair: Pair) -> Outputs:
    """In the precision of the run, as the encoder."""
    with fabric.autocast():
        return objective.targets(pair)


def _joined(parts: list[Outputs], names: tuple[str, ...]) -> Outputs:
    """One tensor of each output; none of a view that was not encoded."""
    return {name: torch.cat([part[name] for part in parts]).requires_grad_() for name in names if parts[0]}


@contextmanager
def _without_sync(fabric: Fabric, model: nn.Module, *, enabled: bool) -> Iterator[None]:
    """Gradients are averaged over processes once, with the last part."""
    if world_size() == 1:
        yield
    else:
        with fabric.no_backward_sync(model, enabled=enabled):  # type: ignore[arg-type]
            yield


@contextmanager
def _statistics_kept(model: nn.Module) -> Iterator[None]:
    """Keeps batch norm's running statistics, so that each image counts once: in the second pass."""
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats and m.training]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
