"""Base methods as invariance and entropy, the disentangled objective over them, and the rule for its weights."""

from unweave.objectives._base import BaseMethod, effective_rank, variance
from unweave.objectives.barlow_twins import BarlowTwins
from unweave.objectives.disentangled import CollapseWarning, DisentangledLoss, Terms
from unweave.objectives.dual_ascent import DualAscent, Fixed
from unweave.objectives.simclr import SimCLR
from unweave.objectives.vicreg import VICReg

__all__ = [
    "BarlowTwins",
    "BaseMethod",
    "CollapseWarning",
    "DisentangledLoss",
    "DualAscent",
    "Fixed",
    "SimCLR",
    "Terms",
    "VICReg",
    "effective_rank",
    "variance",
]
