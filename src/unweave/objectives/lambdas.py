"""Rules for the weights λ_m of the invariance terms (paper, appendix A.3).

Every space should reach its invariance, gap_m ≤ ε, without collapsing. A λ that grows too fast collapses its space; a λ
that grows too slowly leaves style in it. ``CollapseGuard`` limits the growth.

Legend: M + 1 spaces, λ_m and gap_m the weight and the invariance gap of space m, ε the tolerance, η the step size.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from unweave.errors import UnweaveError
from unweave.settings import require

PerSpace = float | Mapping[str, float]
"""One number for all spaces, or one for each by name."""


@dataclass(frozen=True, kw_only=True)
class LambdaRule(ABC):
    """How λ changes from one update to the next; a pure function of what was measured.

    A subclass implements ``propose``.

    Examples:
        >>> class Doubling(LambdaRule):
        ...     def propose(self, lambdas, gaps, tolerances):
        ...         return torch.where(gaps > tolerances, 2 * lambdas, lambdas)
        >>> Doubling(maximum=3.0).step(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.5]), torch.tensor([0.1, 0.1]))
        tensor([2., 3.])
    """

    tolerance: PerSpace = 1e-3
    """ε: the invariance gap that is accepted."""
    start: PerSpace | None = None
    """The first λ; the base method's standard weight by default."""
    warmup: int = 0
    """Updates before λ begins to change."""
    stop: int | None = None
    """The last update at which λ changes; None for no end."""
    interval: int = 1
    """Updates between two changes: the outer loop of the paper."""
    maximum: float = 1e6
    """The largest λ."""

    def __post_init__(self) -> None:
        require(self, ">= 1", "interval")
        require(self, ">= 0", "warmup", "stop", "maximum")
        if self.stop is not None and self.stop < self.warmup:
            raise UnweaveError(f"`stop` ({self.stop}) cannot be smaller than `warmup` ({self.warmup})")
        for name in ("tolerance", "start"):
            value = getattr(self, name)
            for number in value.values() if isinstance(value, Mapping) else [value]:
                if number is not None and not 0 <= number < float("inf"):
                    raise UnweaveError(f"`{name}` cannot be negative or infinite: {value}")

    @abstractmethod
    def propose(self, lambdas: Tensor, gaps: Tensor, tolerances: Tensor) -> Tensor:
        """The next λ before limits: (M + 1,) from each space's λ, invariance gap and tolerance."""

    def step(self, lambdas: Tensor, gaps: Tensor, tolerances: Tensor) -> Tensor:
        """The next λ, at most ``maximum``; unchanged where the gap is not a finite number."""
        proposed = self.propose(lambdas, gaps, tolerances).clamp(max=self.maximum)
        return torch.where(gaps.isfinite(), proposed, lambdas)

    def changes_at(self, update: int) -> bool:
        """Whether λ changes at this update, the first being 1."""
        return update > self.warmup and update % self.interval == 0 and (self.stop is None or update <= self.stop)


@dataclass(frozen=True, kw_only=True)
class DualAscent(LambdaRule):
    """λ ← λ + η·relu(gap − ε), the rule of the paper.

    With ``can_decrease``, λ ← relu(λ + η·(gap − ε)): gradient ascent on the dual problem, as in the authors' release.

    Examples:
        >>> rule = DualAscent(lr=2.0)
        >>> rule.step(torch.tensor([1.0, 1.0]), torch.tensor([0.75, 0.25]), torch.tensor([0.5, 0.5]))
        tensor([1.5000, 1.0000])
    """

    lr: float = 1.0
    """The step size η."""
    can_decrease: bool = False
    """Whether λ decreases where the gap is below the tolerance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, ">= 0", "lr")

    def propose(self, lambdas: Tensor, gaps: Tensor, tolerances: Tensor) -> Tensor:
        """λ + η·relu(gap − ε)"""
        excess = gaps - tolerances
        return (lambdas + self.lr * excess).relu() if self.can_decrease else lambdas + self.lr * excess.relu()


@dataclass(frozen=True, kw_only=True)
class GeometricGrowth(LambdaRule):
    """λ ← λ·(1 + rate) while gap > ε.

    Examples:
        >>> rule = GeometricGrowth(rate=0.5)
        >>> rule.step(torch.tensor([2.0, 2.0]), torch.tensor([0.5, 0.1]), torch.tensor([0.2, 0.2]))
        tensor([3., 2.])
    """

    rate: float = 1e-3
    """Growth per update."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, ">= 0", "rate")

    def propose(self, lambdas: Tensor, gaps: Tensor, tolerances: Tensor) -> Tensor:
        """λ·(1 + rate) where gap > ε"""
        return torch.where(gaps > tolerances, lambdas * (1 + self.rate), lambdas)


@dataclass(frozen=True, kw_only=True)
class FixedWeights(LambdaRule):
    """λ stays at ``start``, by default the base method's standard weight.

    Examples:
        >>> FixedWeights(start=25.0).step(torch.tensor([25.0]), torch.tensor([0.9]), torch.tensor([0.1]))
        tensor([25.])
    """

    def propose(self, lambdas: Tensor, gaps: Tensor, tolerances: Tensor) -> Tensor:
        """λ"""
        return lambdas
