"""Base methods as invariance and entropy, the disentangled objective over them, and rules for its weights λ."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.objectives.barlow_twins import BarlowTwins
    from unweave.objectives.base import BaseMethod, LossTerms, Objective
    from unweave.objectives.collapse import CollapseGuard, CollapseWarning, effective_rank, variance
    from unweave.objectives.config import ObjectiveConfig
    from unweave.objectives.disentangled import DisentangledLoss
    from unweave.objectives.hsic import Independence, dependence
    from unweave.objectives.lambdas import AdditiveAscent, DualAscent, FixedWeights, GeometricGrowth, LambdaRule
    from unweave.objectives.simclr import SimCLR
    from unweave.objectives.vicreg import VICReg

__all__ = [
    "AdditiveAscent",
    "BarlowTwins",
    "BaseMethod",
    "CollapseGuard",
    "CollapseWarning",
    "DisentangledLoss",
    "DualAscent",
    "FixedWeights",
    "GeometricGrowth",
    "Independence",
    "LambdaRule",
    "LossTerms",
    "Objective",
    "ObjectiveConfig",
    "SimCLR",
    "VICReg",
    "dependence",
    "effective_rank",
    "variance",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "barlow_twins": ("BarlowTwins",),
        "base": ("BaseMethod", "LossTerms", "Objective"),
        "collapse": ("CollapseGuard", "CollapseWarning", "effective_rank", "variance"),
        "config": ("ObjectiveConfig",),
        "disentangled": ("DisentangledLoss",),
        "hsic": ("Independence", "dependence"),
        "lambdas": ("AdditiveAscent", "DualAscent", "FixedWeights", "GeometricGrowth", "LambdaRule"),
        "simclr": ("SimCLR",),
        "vicreg": ("VICReg",),
    },
)
