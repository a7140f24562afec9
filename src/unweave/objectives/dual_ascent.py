"""How the weights λ_m of the invariance terms come about (paper, appendix A.3).

The goal is that every space fully reaches its invariance, c_m ≤ ε, and stays alive. Two ways to fail are known: a
weight that grows too eagerly collapses its space (everything maps to one point, which is perfectly invariant), and a
space that has collapsed never comes back; a weight that grows too shyly leaves style in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from unweave.errors import UnweaveError

Rule = Literal["paper", "signed", "geometric", "fixed"]
RULES = ("paper", "signed", "geometric", "fixed")


@dataclass(frozen=True, kw_only=True)
class DualAscent:
    """A rule for the weights, as a pure function of what was measured.

    ``paper``      λ ← λ + η·relu(c − ε)
    ``signed``     λ ← relu(λ + η·(c − ε)), which can fall again (the authors' release)
    ``geometric``  λ ← λ·(1 + η) while c > ε
    ``fixed``      λ stays

    In all but the last, a space whose variance or effective rank is below its floor is near collapse: its λ does not
    grow, and shrinks by the factor 1 − ``retreat``, though not below where it started.

    >>> rule = DualAscent(lr=2.0, tolerance=0.5)
    >>> lam, c, alive = torch.tensor([1.0, 1.0]), torch.tensor([0.75, 0.25]), torch.tensor([True, True])
    >>> rule.step(lam, c, alive, torch.full((2,), 0.5))
    tensor([1.5000, 1.0000])
    """

    rule: Rule = "paper"
    """Which of the rules above."""
    lr: float = 1.0
    """The step size η."""
    tolerance: float | Mapping[str, float] = 1e-3
    """ε: how much invariance may be missing; one number, or one for each space."""
    start: float | Mapping[str, float] | None = None
    """The first λ; the base method's own by default."""
    warmup: int = 0
    """Calls of ``update`` before the weights begin to move."""
    settle: int | None = None
    """Calls of ``update`` after which they stay, while the learning rate still falls; None for never."""
    interval: int = 1
    """Calls of ``update`` between two moves of the weights: the paper's outer loop."""
    maximum: float = 1e6
    """λ never passes this."""
    min_variance: float = 0.1
    """A space with less variance than this is near collapse (1 is a space spread evenly); 0 switches the guard off."""
    min_rank: float = 0.0
    """A space with a smaller effective rank is near collapse; off at 0, since a style of one dimension has rank 1."""
    retreat: float = 0.02
    """How fast λ shrinks while its space is near collapse."""

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise UnweaveError(f"DualAscent: rule is one of {', '.join(RULES)}, not {self.rule!r}")
        if self.interval < 1:
            raise UnweaveError(f"DualAscent: interval must be at least 1, not {self.interval}")
        if self.settle is not None and self.settle < self.warmup:
            raise UnweaveError(f"DualAscent: settle ({self.settle}) cannot come before warmup ({self.warmup}) is over")
        if not 0 <= self.retreat < 1:
            raise UnweaveError(f"DualAscent: retreat must be in [0, 1), not {self.retreat}")
        for name in ("lr", "warmup", "maximum", "min_variance", "min_rank"):
            if getattr(self, name) < 0:
                raise UnweaveError(f"DualAscent: {name} cannot be negative: {getattr(self, name)}")
        for name in ("tolerance", "start"):
            value = getattr(self, name)
            values = value.values() if isinstance(value, Mapping) else [value]
            if any(v is not None and v < 0 for v in values):
                raise UnweaveError(f"DualAscent: {name} cannot be negative: {value}")

    def step(
        self, weights: Tensor, constraints: Tensor, alive: Tensor, tolerances: Tensor, starts: Tensor | None = None
    ) -> Tensor:
        """The next weights, from each space's weight, constraint, whether it is alive, tolerance, and the weight it
        started with: all (M + 1,).
        """
        if self.rule == "fixed":
            return weights
        excess = constraints - tolerances
        if self.rule == "paper":
            moved = weights + self.lr * excess.relu()
        elif self.rule == "signed":
            moved = (weights + self.lr * excess).relu()
        else:
            moved = torch.where(excess > 0, weights * (1 + self.lr), weights)
        back = weights * (1 - self.retreat)
        if starts is not None:  # at its first λ a space lives or dies by its base method
            back = torch.maximum(back, torch.minimum(weights, starts))
        moved = torch.where(alive, moved, torch.minimum(moved, back))
        return moved.clamp(max=self.maximum)

    def alive(self, variances: Tensor, ranks: Tensor) -> Tensor:
        """Which spaces are above both floors."""
        return (variances >= self.min_variance) & (ranks >= self.min_rank)


def Fixed(weight: float | Mapping[str, float] | None = None) -> DualAscent:
    """Weights that never move: the base method's own by default."""
    return DualAscent(rule="fixed", start=weight)
