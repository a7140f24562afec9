"""A batch larger than memory, with its exact gradient.

    pass 1   every part through the network, nothing kept but z        memory of one part, and of all z
    loss     of all z together, and its gradient with respect to them
    pass 2   every part again, now backwards from that gradient

The loss compares every image with every other, so the mean of the parts' own losses would be another objective. What is
normalised over a batch inside the network (batch norm) sees a part at a time; without it, the gradient is that of one
pass.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from unweave.augment import Pair
from unweave.objectives import DisentangledLoss
from unweave.objectives.disentangled import Terms
from unweave.processes import world_size
from unweave.training.checkpoint import random_states, restore_random_states

Embeddings = dict[str, Tensor]


def backward(fabric: Fabric, model: nn.Module, objective: DisentangledLoss, pair: Pair) -> Terms:
    """One pass: the terms of a batch, its gradient added to the parameters'."""
    terms = objective(*model(pair.a, pair.b), pair.shared)
    fabric.backward(terms.loss)
    return terms


def backward_in_parts(
    fabric: Fabric,
    model: nn.Module,
    objective: DisentangledLoss,
    make_pair: Callable[[int, int], Pair],
    images: int,
    part: int,
) -> Terms:
    """The same for a batch of ``images``, ``part`` of them at a time; ``make_pair(start, stop)`` gives their views.

    Views, and what is random in the network, are drawn alike in both passes.
    """
    spans = [(start, min(start + part, images)) for start in range(0, images, part)]
    states, shared, parts = [], [], []
    with torch.no_grad(), _statistics_kept(model):
        for span in spans:
            pair = make_pair(*span)
            states.append(random_states())
            shared.append(pair.shared)
            parts.append(model(pair.a, pair.b))
    z_a, z_b = (_joined([p[side] for p in parts], objective.spaces) for side in (0, 1))
    terms = objective(z_a, z_b, torch.cat(shared))
    leaves = [*z_a.values(), *z_b.values()]
    gradients = torch.autograd.grad(terms.loss, leaves)
    rows = [len(s) for s in shared]
    # One row of pieces for each part: its rows of every leaf's gradient.
    pieces = zip(*(gradient.split(rows) for gradient in gradients), strict=True)
    for i, (span, piece, state) in enumerate(zip(spans, pieces, states, strict=True)):
        pair = make_pair(*span)
        restore_random_states(state)
        with _without_sync(fabric, model, enabled=i + 1 < len(spans)):
            out_a, out_b = model(pair.a, pair.b)
            z = [side[space] for side in (out_a, out_b) for space in objective.spaces]
            fabric.backward(torch.stack([(x * g).sum() for x, g in zip(z, piece, strict=True)]).sum())
    return terms


def _joined(parts: list[Embeddings], spaces: tuple[str, ...]) -> Embeddings:
    return {space: torch.cat([part[space] for part in parts]).requires_grad_() for space in spaces}


@contextmanager
def _without_sync(fabric: Fabric, model: nn.Module, *, enabled: bool) -> Iterator[None]:
    """Gradients are averaged over processes with the last part, once."""
    if world_size() == 1:
        yield
    else:
        with fabric.no_backward_sync(model, enabled=enabled):  # type: ignore[arg-type]
            yield


@contextmanager
def _statistics_kept(model: nn.Module) -> Iterator[None]:
    """Batch norm's running statistics count each image once: in the second pass."""
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats and m.training]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
