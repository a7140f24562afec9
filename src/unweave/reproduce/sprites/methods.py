"""The base methods of the sprites experiment and how λ is set for each."""

import math
from dataclasses import dataclass, replace

from unweave import (
    BarlowTwins,
    CollapseGuard,
    DualAscent,
    FixedWeights,
    GeometricGrowth,
    SimCLR,
    VICReg,
)
from unweave.objectives import BaseMethod, LambdaRule
from unweave.reproduce.sprites.views import STRENGTHS


@dataclass(frozen=True)
class Variant:
    """A form of a base method that the rule ``geometric`` uses in its place; otherwise as in ``Method``.

    The gradient of a squared invariance vanishes near full invariance; a smaller power avoids this.
    """

    base: BaseMethod
    maximum: float
    tolerance: float = 1e-6
    adapted: tuple[float, float] = (0.3, 0.8)
    strengths: tuple[str, ...] = tuple(STRENGTHS)
    """The strengths of augmentation for which it is used."""


@dataclass(frozen=True)
class Method:
    """A base method, its projector and how λ is adapted."""

    base: BaseMethod
    dim: int
    depth: int
    tolerance: float
    """ε of the adapted rules."""
    lambda_lr: float
    """η of the paper's rule."""
    start: float
    """The first λ of the rules ``geometric`` and ``raised``."""
    maximum: float
    """The largest λ of the rule ``geometric``."""
    min_variance: float
    """Variance below which λ is reduced."""
    lr: float = 2e-3
    adapted: tuple[float, float] = (0.3, 0.8)
    """The fractions of the run between which λ is adapted."""
    variant: Variant | None = None

    def for_row(self, rule: str, strength: str) -> "Method":
        """The method as a row with this rule and strength uses it."""
        variant = self.variant
        if variant is None or rule != "geometric" or strength not in variant.strengths:
            return self
        return replace(
            self,
            base=variant.base,
            maximum=variant.maximum,
            tolerance=variant.tolerance,
            adapted=variant.adapted,
            variant=None,
        )


METHODS = {
    "simclr": Method(
        SimCLR(0.25), dim=256, depth=2, tolerance=1e-6, lambda_lr=1.0, start=1.0, maximum=1000.0, min_variance=0.3
    ),
    "vicreg": Method(
        VICReg(),
        dim=512,
        depth=3,
        tolerance=1e-6,
        lambda_lr=100.0,
        start=4.0,
        maximum=40_000.0,
        min_variance=0.01,
        lr=7e-4,
        adapted=(0.2, 0.7),
        variant=Variant(VICReg(power=1.5), maximum=8000.0, tolerance=5.6e-6, adapted=(0.35, 0.8), strengths=("weak",)),
    ),
    "barlow_twins": Method(
        BarlowTwins(),
        dim=512,
        depth=3,
        tolerance=1e-6,
        lambda_lr=100.0,
        start=0.3,
        maximum=3000.0,
        min_variance=0.3,
        variant=Variant(BarlowTwins(power=1), maximum=3000.0),
    ),
}
MIN_RANK = 1.6
"""Effective rank below which λ is reduced: three shapes span two directions."""
RAISED = (0.3, 0.6)
"""The fractions of the run between which a standard λ is raised to its value."""


def lambda_rule(rule: str, method: Method, steps: int) -> tuple[LambdaRule, CollapseGuard]:
    """The rule for λ of a row, and the collapse guard.

    ``fixed`` is the standard λ from the first step, ``raised`` grows to it from a smaller value, ``paper`` is the
    paper's rule, and ``geometric`` (or ``squared``, without the variant) grows by a constant factor.
    """
    unguarded = CollapseGuard(min_variance=0.0)
    if rule == "fixed":
        return FixedWeights(), unguarded
    first, last = (round(share * steps) for share in (RAISED if rule == "raised" else method.adapted))
    if rule == "raised":
        standard = method.base.invariance_weight
        rate = math.log(standard / method.start) / max(1, last - first)
        return GeometricGrowth(rate=rate, start=method.start, maximum=standard, tolerance=0.0, warmup=first), unguarded
    if rule == "paper":
        return DualAscent(lr=method.lambda_lr, tolerance=method.tolerance, warmup=first, stop=last), unguarded
    rate = math.log(method.maximum / method.start) / max(1, last - first)
    growth = GeometricGrowth(
        rate=rate, start=method.start, maximum=method.maximum, tolerance=method.tolerance, warmup=first, stop=last
    )
    return growth, CollapseGuard(min_variance=method.min_variance, min_rank=MIN_RANK)
