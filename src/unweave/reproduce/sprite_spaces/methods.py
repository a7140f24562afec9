"""Settings of each base method, and the ablations."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from unweave import (
    BarlowTwins,
    DisentangledLoss,
    FixedWeights,
    GeometricGrowth,
    Independence,
    SimCLR,
    VICReg,
)
from unweave.models import Output
from unweave.objectives import BaseMethod, LambdaRule
from unweave.reproduce.sprite_spaces.views import SPACES

INDEPENDENCE = {"color": 60.0, "scale": 60.0, "orientation": 5.0, "x": 60.0, "y": 60.0}
"""Weight of the independence from content. Orientation has less: a square repeats every 90° and a heart every 360°, so
that its distribution cannot be the same for all shapes."""

ABLATIONS = {
    "none": "the whole objective",
    "per-space entropy": "one entropy for each space instead of the joint one",
    "no content entropy": "the joint entropy alone",
    "no independence": "no independence term",
    "no ends": "the scale space is the whole sphere, not its non-negative orthant",
    "fixed weights": "λ fixed at 1",
    "plain": "the paper's objective: no independence, no orthant, λ from 1, content's invariance on its own pairs, one "
    "temperature; with our widths, schedule and learning rate",
}
"""The names of the rows, and what they mean."""


@dataclass(frozen=True)
class SpacesMethod:
    """A base method and the settings of its objective and encoder."""

    base: BaseMethod
    dims: dict[str, int]
    lambda_rule: LambdaRule
    independence: Mapping[str, float] = field(default_factory=lambda: INDEPENDENCE)
    content_pairs: Literal["own", "all"] = "all"
    nonnegative: tuple[str, ...] = ()
    """Spaces restricted to the non-negative orthant."""
    lr: float = 1e-3
    power: float | None = None


def methods(steps: int, temperature: float) -> dict[str, SpacesMethod]:
    """Our settings for each base method, for a run of this many steps.

    λ starts below its standard value: at 1, a space whose factor the network cannot predict yet would collapse. The
    joint temperature is τ / (M + 1). Positions and angles have many dimensions, since a curve on a sphere of few
    dimensions winds and is not linearly decodable.
    """
    small = {"content": 4, "color": 9, "scale": 8, "orientation": 16, "x": 8, "y": 8}
    wide = {"content": 3, "color": 8, "scale": 16, "orientation": 32, "x": 32, "y": 32}

    def rule(start: float, tolerance: float) -> LambdaRule:
        window = {"warmup": steps * 4 // 10, "stop": steps * 8 // 10}
        return GeometricGrowth(rate=6 / steps, tolerance=tolerance, start=start, **window)

    simclr = SimCLR(temperature=temperature, joint_temperature=temperature / len(SPACES))
    barlow_twins = BarlowTwins(off_diagonal_weight=0.02)
    return {
        "simclr": SpacesMethod(simclr, wide, rule(0.5, 0.003), nonnegative=("scale",), lr=1.4e-3),
        "vicreg": SpacesMethod(VICReg(), small, rule(1.0, 0.01), lr=7e-4),
        "barlow_twins": SpacesMethod(barlow_twins, small, rule(0.1, 0.03), power=2),
    }


def make_objective(method: SpacesMethod, ablation: str) -> DisentangledLoss:
    """The objective of a row."""
    base, rule, pairs = method.base, method.lambda_rule, method.content_pairs
    # Independence starts when λ starts to grow, and reaches its full weight after as many steps again.
    independence = Independence(weight=method.independence, start=rule.warmup, ramp=rule.warmup)
    if ablation == "fixed weights":
        rule = FixedWeights()
    if ablation == "plain":
        pairs, rule = "own", replace(rule, start=None)
        if isinstance(base, SimCLR):
            base = SimCLR(temperature=0.15)
    return DisentangledLoss(
        base,
        spaces=SPACES,
        lambda_rule=rule,
        content_pairs=pairs,
        entropy={"per-space entropy": "per-space", "no content entropy": "joint"}.get(ablation, "content+joint"),  # type: ignore[arg-type]
        independence=None if ablation in ("no independence", "plain") else independence,
        power=method.power,
    )


def outputs(method: SpacesMethod, ablation: str) -> dict[str, Output]:
    """The last layer of each space's projector in a row."""
    restricted = () if ablation in ("no ends", "plain") else method.nonnegative
    return {space: "nonnegative" if space in restricted else "linear" for space in SPACES}
