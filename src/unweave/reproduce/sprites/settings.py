"""The base methods of the sprites experiment, the settings of each, and the trials among which they were chosen.

A setting belongs to a method and a rule for λ and is the same for all strengths. ``settings.yaml`` has those that are
reported; ``unweave reproduce sprites --tune`` chooses them among ``TRIALS`` on tuning seeds and validation images.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from unweave import AdditiveAscent, BarlowTwins, CollapseGuard, DisentangledLoss, DualAscent, SimCLR, VICReg
from unweave.models import Output
from unweave.objectives import BaseMethod, FixedWeights, LambdaRule
from unweave.settings import from_nested, read_yaml

RULES = ("standard", "paper", "ours")
"""The standard λ from the first step; the paper's rule; ours."""
FILE = Path(__file__).with_name("settings.yaml")
MIN_RANK = 1.6
"""Three shapes span two directions."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a method is trained with one of the rules, at every strength."""

    lr: float = 2e-3
    """Learning rate."""
    temperature: float = 0.25
    """SimCLR's τ."""
    start: float = 1.0
    """The first λ, over the method's standard one."""
    window: tuple[float, float] = (0.2, 0.8)
    """The fractions of the run between which λ changes."""
    tolerance: float = 1e-3
    """ε."""
    eta: float = 1.0
    """η of the paper's rule."""
    factor: float = 100.0
    """Our rule: the largest change of λ, as a factor."""
    power: float | None = None
    """Exponent of the distance of two views in place of the method's invariance; None for the method's."""
    relative: bool = False
    """Whether that distance is divided by the one of different images."""
    own_first: bool = False
    """Whether the method's own invariance is used until λ begins to change."""
    noise: float = 0.0
    """Noise on the embedding during training."""
    output: Output = "linear"
    """The last layer of the projector."""
    min_variance: float = 0.3
    """Our rule: variance below which λ is reduced."""
    min_rank: float = MIN_RANK
    """Our rule: effective rank below which λ is reduced."""
    precision: Literal["auto", "32-true"] = "auto"
    """Precision of training; auto is bfloat16 on a GPU."""


@dataclass(frozen=True)
class Method:
    """A base method and its projector, as in the authors' release."""

    base: BaseMethod
    dim: int
    depth: int

    def objective(self, rule: str, setting: Setting, spaces: Sequence[str], steps: int) -> DisentangledLoss:
        """The objective of a row."""
        base = replace(self.base, temperature=setting.temperature) if isinstance(self.base, SimCLR) else self.base
        lambda_rule, guard = lambda_rule_of(rule, setting, base.invariance_weight, steps)
        return DisentangledLoss(
            base,
            spaces=spaces,
            lambda_rule=lambda_rule,
            collapse_guard=guard,
            power=setting.power,
            relative=setting.relative,
            power_start=round(setting.window[0] * steps) if setting.own_first else 0,
            noise=setting.noise,
        )


METHODS = {
    "simclr": Method(SimCLR(), dim=256, depth=2),
    "vicreg": Method(VICReg(), dim=512, depth=3),
    "barlow_twins": Method(BarlowTwins(), dim=512, depth=3),
}


def lambda_rule_of(rule: str, setting: Setting, standard: float, steps: int) -> tuple[LambdaRule, CollapseGuard]:
    """The rule for λ of a row, and its collapse guard: ours alone has one."""
    start = setting.start * standard
    if rule == "standard":
        return FixedWeights(), CollapseGuard(min_variance=0.0)
    if rule == "paper":
        first, last = (round(share * steps) for share in setting.window)
        additive = AdditiveAscent(lr=setting.eta, tolerance=setting.tolerance, start=start, warmup=first, stop=last)
        return additive, CollapseGuard(min_variance=0.0)
    ours = DualAscent.over(
        steps, factor=setting.factor, window=setting.window, tolerance=setting.tolerance, start=start
    )
    return ours, CollapseGuard(min_variance=setting.min_variance, min_rank=setting.min_rank)


def load_settings(path: Path = FILE) -> dict[str, dict[str, Setting]]:
    """Settings by method and rule, from a YAML file."""
    stored = read_yaml(path)
    return {
        method: {
            rule: from_nested(Setting(), values, f"{path.name}, {method} {rule}") for rule, values in rules.items()
        }
        for method, rules in stored.items()
    }


def _trials(common: dict[str, Any], *changes: dict[str, Any]) -> tuple[Setting, ...]:
    return tuple(Setting(**{**common, **change}) for change in changes)


def _paper(lr: float, unit: float) -> tuple[Setting, ...]:
    """Six trials of the paper's rule: η in units of the method, ε, the first λ and when λ starts to grow."""
    return _trials(
        {"lr": lr},
        {"eta": 0.3 * unit},
        {"eta": unit},
        {"eta": 3 * unit},
        {"eta": unit, "start": 0.2},
        {"eta": unit, "tolerance": 1e-2, "start": 0.2},
        {"eta": unit, "tolerance": 1e-5, "start": 0.2, "window": (0.3, 0.8)},
    )


NON_NEGATIVE = {"power": 1.0, "output": "nonnegative", "min_rank": 0.0, "min_variance": 0.0}
"""On the non-negative orthant contents do not merge as λ grows, so that no guard is needed."""


def _ours(**common: Any) -> tuple[Setting, ...]:
    """Six trials of our rule: when λ changes, the share of pairs that may disagree, the last layer and precision."""
    late = {"window": (0.5, 0.9)}
    return _trials(
        {"power": 1.0, "factor": 1000.0, "tolerance": 1e-4, **common},
        {},
        late,
        {"tolerance": 1e-3},
        {**late, "tolerance": 1e-3},
        {**NON_NEGATIVE, **late},
        {**late, "precision": "32-true"},
    )


def _ours_by_variance(**common: Any) -> tuple[Setting, ...]:
    """The same for VICReg and Barlow Twins, whose entropy is a variance: distances are relative, and come second."""
    relative = {"power": 1.0, "relative": True, "own_first": True, "factor": 1000.0}
    return _trials(
        {"tolerance": 1e-4, **common},
        {**relative, "factor": 100.0},
        relative,
        {**relative, "window": (0.4, 0.8)},
        {**relative, "power": 1.5},
        {**relative, "precision": "32-true"},
        {"factor": 1000.0},
    )


TRIALS: dict[str, dict[str, tuple[Setting, ...]]] = {
    "simclr": {
        "paper": _paper(2e-3, 1.0),
        "ours": _ours(lr=2e-3, output="unit", start=0.3, min_variance=0.3),
    },
    "vicreg": {
        "paper": _paper(7e-4, 100.0),
        "ours": _ours_by_variance(lr=7e-4, min_variance=0.01),
    },
    "barlow_twins": {
        "paper": _paper(2e-3, 100.0),
        "ours": _ours_by_variance(lr=2e-3),
    },
}
"""Trials by method and rule, as many for the paper's rule as for ours. The standard λ has nothing to choose."""
