"""VICReg as invariance and entropy.

Legend: n images, d dimensions.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from unweave.errors import UnweaveError
from unweave.objectives.base import BaseMethod


def variance_hinge(z: Tensor, eps: float = 1e-4) -> Tensor:
    """mean_j max(0, 1 − √(Var(z_j) + eps))"""
    return F.relu(1 - (z.var(0) + eps).sqrt()).mean()


def covariance_penalty(z: Tensor) -> Tensor:
    """(1/d) Σ_{j≠k} Cov(z)²_jk: all squares minus those of the diagonal."""
    n, d = z.shape
    centred = z - z.mean(0)
    # The n×n matrix of inner products has the same sum of squares as the d×d covariance: use the smaller one.
    gram = centred.T @ centred if d <= n else centred @ centred.T
    total = gram.square().sum()
    diagonal = centred.square().sum(0).square().sum()
    return (total - diagonal) / ((n - 1) ** 2 * d)


@dataclass(frozen=True)
class VICReg(BaseMethod):
    """inv = mean squared difference,  ent = λ_v · variance hinge + λ_c · covariance penalty  (paper, table 1).

    As in VICReg's public code, the invariance is a mean over images and dimensions with a plus sign, the variance term
    is averaged over the two views and the covariance term summed.

    Examples:
        >>> import torch, unweave as uw
        >>> z_a, z_b = torch.zeros(2, 4), torch.ones(2, 4)
        >>> uw.VICReg().invariance(z_a, z_b)
        tensor(1.)
    """

    invariance_weight: float = 25.0
    """λ."""
    variance_weight: float = 25.0
    """Weight of the variance hinge."""
    covariance_weight: float = 1.0
    """Weight of the covariance penalty."""
    eps: float = 1e-4
    """Added to variances before the square root."""

    def __post_init__(self) -> None:
        for name in ("invariance_weight", "variance_weight", "covariance_weight"):
            if getattr(self, name) < 0:
                raise UnweaveError(f"VICReg: `{name}` cannot be negative: {getattr(self, name)}")

    def invariance(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """mean (z_a − z_b)²"""
        return F.mse_loss(z_a, z_b)

    def invariance_gap(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """The same."""
        return self.invariance(z_a, z_b)

    def entropy(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """λ_v · (hinge_a + hinge_b)/2 + λ_c · (cov_a + cov_b)"""
        hinge = (variance_hinge(z_a, self.eps) + variance_hinge(z_b, self.eps)) / 2
        covariance = covariance_penalty(z_a) + covariance_penalty(z_b)
        return self.variance_weight * hinge + self.covariance_weight * covariance
