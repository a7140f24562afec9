"""Rules for the weights λ_m of the invariance terms (paper, appendix A.3).

Every space should reach its invariance, gap_m ≤ ε, without collapsing. A λ that grows too fast collapses its space; a λ
that grows too slowly leaves style in it. ``CollapseGuard`` limits the growth.

Legend: M + 1 spaces, λ_m and gap_m the weight and the invariance gap of space m, ε the tolerance, η the step size.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from unweave.errors import UnweaveError
from unweave.settings import require

LARGEST_RATE = 0.01
"""Of ``DualAscent.over``: the network must be able to follow λ."""
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

    relative_gap: ClassVar[bool] = False
    """Whether the gap is relative to the distance of different images, rather than the base method's own."""
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
    """λ ← λ·exp(rate · clip(log(gap/ε), −1, 1)): dual ascent on log λ.

    λ grows while the gap exceeds the tolerance, decreases where it is below, and is constant where the two are equal.
    The gap is the mean squared distance of two views over that of different images, as in the sensitivity matrix, so
    that a tolerance means the same for every base method. Use ``DualAscent.over(steps)`` for a run of this many
    steps.

    Notes:
        A multiplier may have to change by orders of magnitude, and the gaps of methods and data differ by as much. On a
        logarithmic scale neither needs a step size of its own: λ changes by at most the factor e^rate per update, and
        its rest point does not depend on the rate.

    Examples:
        >>> rule = DualAscent(rate=0.5, tolerance=0.1)
        >>> rule.step(torch.tensor([2.0, 2.0, 2.0]), torch.tensor([0.9, 0.1, 0.01]), torch.full((3,), 0.1))
        tensor([3.2974, 2.0000, 1.2131])
        >>> DualAscent.over(10_000).warmup
        2000
    """

    relative_gap: ClassVar[bool] = True
    tolerance: PerSpace = 1e-4
    rate: float = 1e-3
    """The largest change of log λ per update."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, ">= 0", "rate")

    @classmethod
    def over(
        cls, steps: int, *, factor: float = 1000.0, window: tuple[float, float] = (0.2, 0.8), **settings: Any
    ) -> "DualAscent":
        """The rule for a run of this many steps.

        λ changes within ``window``, fractions of the run, and by at most ``factor`` in all. Before it the space is
        learned, after it the network converges under a constant λ. In a run of few steps it changes by less, at most
        by the factor e^``LARGEST_RATE`` per step.
        """
        first, last = (round(share * steps) for share in window)
        rate = min(LARGEST_RATE, math.log(factor) / max(1, last - first))
        return cls(rate=rate, warmup=first, stop=last, **settings)

    def propose(self, lambdas: Tensor, gaps: Tensor, tolerances: Tensor) -> Tensor:
        """λ·exp(rate · clip(log(gap/ε), −1, 1))"""
        excess = (gaps.log() - tolerances.log()).nan_to_num(0.0)  # both are 0: unchanged
        return lambdas * (self.rate * excess.clamp(-1, 1)).exp()


@dataclass(frozen=True, kw_only=True)
class AdditiveAscent(LambdaRule):
    """λ ← λ + η·relu(gap − ε), the rule of the paper.

    With ``can_decrease``, λ ← relu(λ + η·(gap − ε)): gradient ascent on the dual problem, as in the authors' release.

    Examples:
        >>> rule = AdditiveAscent(lr=2.0)
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
