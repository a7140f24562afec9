"""The disentangled objective (paper, equations 2 and 3).

    loss = Σ_m λ_m · inv(z_m of pairs of kind m)  +  ent(z_0 of all pairs)  +  ent([z_0, …, z_M] of all pairs)
           M + 1 invariance terms                    content entropy           joint entropy

The joint entropy keeps the spaces from being copies of one another; the content entropy sees to it that content is in
the content space; each invariance sees only the pairs whose shared latents its space is to keep.

Legend: n images, d_m dimensions of space m, z_a[m] and z_b[m] (n, d_m), shared (n,) the kind of each pair.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unweave.constants import constant
from unweave.errors import UnweaveError
from unweave.objectives._base import BaseMethod, effective_rank, variance
from unweave.objectives.dual_ascent import DualAscent, Fixed
from unweave.objectives.independence import dependence
from unweave.processes import gather, world_size

WARN_EVERY = 50
"""Updates between two looks for a collapse: each look waits for the device."""
MEASURED = 512
"""Images whose embeddings tell a space's variance and effective rank: enough to see a collapse, at little cost."""


class CollapseWarning(UserWarning):
    """A space is near collapse."""


@dataclass(frozen=True)
class Terms:
    """What one batch gave. Only ``loss`` carries a gradient; vectors have one entry for each space, in order."""

    loss: Tensor
    spaces: tuple[str, ...]
    weights: Tensor
    invariance: Tensor
    constraint: Tensor
    variance: Tensor
    effective_rank: Tensor
    content_entropy: Tensor
    joint_entropy: Tensor
    dependence: Tensor | None = None
    """On content, 0 for content itself; None while it is not asked for."""

    def as_dict(self) -> dict[str, float]:
        """Plain numbers by name, as they are written to a run's metrics: ``loss``, ``content/weight``, …"""
        out = {name: float(getattr(self, name).detach()) for name in ("loss", "content_entropy", "joint_entropy")}
        measured = ["weights", "invariance", "constraint", "variance", "effective_rank"]
        for name in measured if self.dependence is None else [*measured, "dependence"]:
            for space, value in zip(self.spaces, getattr(self, name).tolist(), strict=True):
                out[f"{space}/{name.removesuffix('s')}"] = value
        return out


class DisentangledLoss(nn.Module):
    """λ-weighted invariance of every space + content entropy + joint entropy, on top of a base method.

    Args:
        base: ``SimCLR()``, ``VICReg()`` or ``BarlowTwins()``.
        spaces: the names of the spaces in order, as ``views.spaces``; content alone gives the base method itself.
        weights: how λ moves; the base method's own λ, fixed, by default.
        content_pairs: "own" lets content's invariance see pairs of kind 0, as the paper does; "all" lets it see every
            pair, since all of them share content.
        entropies: "both", content's own and the joint one, as in the paper's objective; "joint" alone, as in its
            theorem; "each", one for every space apart, as in LooC, which lets content into the style spaces.
        independence: weight of a term the paper does not have: each style space's dependence on the content space,
            which is held fixed by it (``dependence``; 0 leaves it out). Or a weight for each style space by name: a
            small one where what a style looks like goes with content, as a turn does with a shape's symmetry. The
            theorem says that there is none at its optimum; spaces with room to spare do not get there by entropy
            alone. It begins when the weights begin to move: until content has found itself, it would drive style out
            of the style spaces. It comes to its full weight in as many steps again: in one short run on sprites, all
            at once made the gradient four times as long and the scale space lost scale (0.39; slowly, 0.98). We think
            Adam, which divides by the gradients of before, steps too far then; its steps were not measured.

    Under several processes the embeddings are gathered, so that loss, λ and gradients are those of one process on the
    whole batch; every process must bring as many images as the others.

    >>> import torch, unweave as uw
    >>> objective = uw.DisentangledLoss(uw.SimCLR(), spaces=("content", "color"), weights=uw.DualAscent(lr=0.1))
    >>> z_a, z_b = ({s: torch.randn(8, 4) for s in objective.spaces} for _ in "ab")
    >>> terms = objective(z_a, z_b, shared=torch.arange(8) % 2)
    >>> objective.update(terms)  # the dual step, after the optimiser's
    """

    weights: Tensor
    updates: Tensor
    tolerances: Tensor
    starts: Tensor
    independences: Tensor

    def __init__(
        self,
        base: BaseMethod,
        *,
        spaces: Sequence[str] = ("content",),
        weights: DualAscent | None = None,
        content_pairs: Literal["own", "all"] = "own",
        entropies: Literal["both", "joint", "each"] = "both",
        independence: float | Mapping[str, float] = 0.0,
    ) -> None:
        super().__init__()
        self.base, self.spaces, self.rule = base, tuple(spaces), weights or Fixed()
        if not self.spaces or self.spaces[0] != "content" or len(set(self.spaces)) != len(self.spaces):
            raise UnweaveError(f"spaces must be different names, 'content' first, not {self.spaces}")
        if content_pairs not in ("own", "all"):
            raise UnweaveError(f"content_pairs is 'own' or 'all', not {content_pairs!r}")
        if entropies not in ("both", "joint", "each"):
            raise UnweaveError(f"entropies is 'both', 'joint' or 'each', not {entropies!r}")
        self.content_pairs, self.entropies, self.independence = content_pairs, entropies, independence
        start = base.weight if self.rule.start is None else self.rule.start
        self.register_buffer("weights", self._per_space("start", start))
        self.register_buffer("starts", self.weights.clone(), persistent=False)
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.register_buffer("tolerances", self._per_space("tolerance", self.rule.tolerance), persistent=False)
        of_styles = {"content": 0.0, **independence} if isinstance(independence, Mapping) else independence
        self.register_buffer("independences", self._per_space("independence", of_styles), persistent=False)
        if (self.independences < 0).any():
            raise UnweaveError(f"independence is a weight and cannot be negative: {independence}")
        self._updates = 0  # the same as the buffer, known to the host
        self._wants_independence = bool((self.independences > 0).any())
        self._warned: set[str] = set()

    def _per_space(self, name: str, value: float | Mapping[str, float]) -> Tensor:
        if isinstance(value, Mapping):
            if set(value) != set(self.spaces):
                raise UnweaveError(f"{name} names the spaces {sorted(value)}, but there are {sorted(self.spaces)}")
            return torch.tensor([float(value[space]) for space in self.spaces])
        return torch.full((len(self.spaces),), float(value))

    def forward(self, z_a: Mapping[str, Tensor], z_b: Mapping[str, Tensor], shared: Tensor) -> Terms:
        """The terms of a batch: embeddings by space, (n, d_m) each, and which group each pair shares, (n,)."""
        self._check(z_a, z_b, shared)
        with torch.autocast(z_a["content"].device.type, enabled=False):  # similarities need more than eight bits
            a = [gather(_full_precision(z_a[space])) for space in self.spaces]
            b = [gather(_full_precision(z_b[space])) for space in self.spaces]
            shared = shared if world_size() == 1 else gather(shared.to(a[0].device))
            return self._terms(a, b, shared)

    def _terms(self, a: list[Tensor], b: list[Tensor], shared: Tensor) -> Terms:
        """Of the whole batch; nothing from here on knows of processes."""
        invariances, constraints = [], []
        for m in range(len(self.spaces)):
            own_a, own_b = self._own_pairs(m, a[m], b[m], shared)
            invariances.append(self.base.invariance(own_a, own_b))
            constraints.append(self.base.constraint(own_a.detach(), own_b.detach()))
        invariance = torch.stack(invariances)

        content_entropy, joint_entropy = self._entropies(a, b)
        loss = (self.weights.to(invariance.dtype) * invariance).sum() + content_entropy + joint_entropy
        dependences = self._dependences(a, b)
        if dependences is not None:
            loss = loss + (self._independence_now() * dependences).sum()
        with torch.no_grad():
            seen = [self.base.geometry(torch.cat([x[:MEASURED], y[:MEASURED]])) for x, y in zip(a, b, strict=True)]
            return Terms(
                loss=loss,
                spaces=self.spaces,
                weights=self.weights.clone(),
                invariance=invariance.detach(),
                constraint=torch.stack(constraints),
                variance=torch.stack([variance(z) for z in seen]),
                effective_rank=torch.stack([effective_rank(z) for z in seen]),
                content_entropy=content_entropy.detach(),
                joint_entropy=joint_entropy.detach(),
                dependence=None if dependences is None else dependences.detach(),
            )

    def _entropies(self, a: list[Tensor], b: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Content's own, and that of all spaces; without styles these are one and the same, which counts once."""
        content = self.base.entropy(a[0], b[0])
        if len(a) == 1:
            return content, torch.zeros_like(content)
        if self.entropies == "each":
            styles = [self.base.entropy(x, y) for x, y in zip(a[1:], b[1:], strict=True)]
            return content, torch.stack(styles).sum()
        joint = self.base.joint_entropy(a, b)
        return (content if self.entropies == "both" else torch.zeros_like(joint)), joint

    @property
    def asks_independence(self) -> bool:
        """Whether the independence term is part of the loss by now."""
        return self._wants_independence and self._updates >= self.rule.warmup

    def _independence_now(self) -> Tensor:
        """Its weights, rising from the end of the warm-up on."""
        warmup = self.rule.warmup
        return self.independences * ((self.updates + 1 - warmup) / max(1, warmup)).clamp(max=1)

    def _dependences(self, a: list[Tensor], b: list[Tensor]) -> Tensor | None:
        """Of each space on content, where it is asked for."""
        if not self.asks_independence:
            return None
        both = [self.base.geometry(torch.cat(views)) for views in zip(a, b, strict=True)]
        return torch.stack([torch.zeros_like(a[0][0, 0]), *(dependence(z, both[0].detach()) for z in both[1:])])

    def _own_pairs(self, m: int, z_a: Tensor, z_b: Tensor, shared: Tensor) -> tuple[Tensor, Tensor]:
        """The pairs that space m's invariance sees."""
        if len(self.spaces) == 1 or (m == 0 and self.content_pairs == "all"):
            return z_a, z_b
        rows = (shared == m).nonzero().squeeze(1)
        if rows.device != z_a.device:  # the same at every step: copied once
            rows = constant(tuple(rows.tolist()), z_a.device, torch.int64)
        if len(rows) == 0:
            raise UnweaveError(
                f"no pair in this batch shares {self.spaces[m]!r}; take a batch of at least {len(self.spaces)} images"
            )
        return z_a[rows], z_b[rows]

    @torch.no_grad()
    def update(self, terms: Terms) -> None:
        """The dual step: moves the weights by their rule. Call it after the optimiser's step."""
        self._updates += 1
        self.updates.add_(1)
        alive = self.rule.alive(terms.variance, terms.effective_rank)
        if self._updates > self.rule.warmup:
            if self._updates % WARN_EVERY == 0:
                self._warn_of_collapse(alive, terms)
            if self._updates % self.rule.interval == 0 and self._updates <= (self.rule.settle or math.inf):
                constraint = terms.constraint.to(self.weights)
                self.weights.copy_(self.rule.step(self.weights, constraint, alive, self.tolerances, self.starts))

    def _warn_of_collapse(self, alive: Tensor, terms: Terms) -> None:
        """Once for each time a space comes near collapse."""
        dead = {space for space, lives in zip(self.spaces, alive.tolist(), strict=True) if not lives}
        for space in sorted(dead - self._warned):
            m = self.spaces.index(space)
            remedy = "a smaller weight" if self.rule.rule == "fixed" else "its weight is held back; a larger tolerance"
            warnings.warn(
                f"space {space!r} is near collapse (variance {terms.variance[m]:.3g}, effective rank "
                f"{terms.effective_rank[m]:.3g}): {remedy} or a smaller lr may help",
                CollapseWarning,
                stacklevel=4,
            )
        self._warned = dead

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._updates = int(self.updates)

    def _check(self, z_a: Mapping[str, Tensor], z_b: Mapping[str, Tensor], shared: Tensor) -> None:
        for side in (z_a, z_b):
            if given := set(side) - {"h"} ^ set(self.spaces):
                raise UnweaveError(
                    f"embeddings are of {sorted(set(side) - {'h'})}, the objective's spaces are {sorted(self.spaces)}: "
                    f"{sorted(given)} differ; give both the same spaces=views.spaces"
                )
        n = len(shared)
        for space in self.spaces:
            a, b = z_a[space], z_b[space]
            if a.ndim != 2 or a.shape != b.shape or len(a) != n:
                raise UnweaveError(
                    f"space {space!r}: both views must be ({n}, d) to go with {n} entries of shared, "
                    f"not {tuple(a.shape)} and {tuple(b.shape)}"
                )
        if n < 2:
            raise UnweaveError(f"a batch of {n} has nothing to compare an image with; take more images")


def _full_precision(z: Tensor) -> Tensor:
    return z.float() if z.dtype in (torch.float16, torch.bfloat16) else z
