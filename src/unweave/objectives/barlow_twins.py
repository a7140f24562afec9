"""Barlow Twins as invariance and entropy.

Legend: n images, d dimensions, C (d, d) the correlation of view a's dimensions with view b's.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unweave.errors import UnweaveError
from unweave.objectives.base import BaseMethod
from unweave.objectives.collapse import variance


def standardise(z: Tensor, eps: float = 1e-5) -> Tensor:
    """Each dimension to mean 0 and variance 1 over the batch."""
    centred = z - z.mean(0)
    return centred / (centred.square().mean(0) + eps).sqrt()


def on_diagonal(z_a: Tensor, z_b: Tensor) -> Tensor:
    """Σ_j (1 − C_jj)²"""
    return (1 - (standardise(z_a) * standardise(z_b)).mean(0)).square().sum()


def off_diagonal(z_a: Tensor, z_b: Tensor) -> Tensor:
    """Σ_{j≠k} C_jk²"""
    correlation = standardise(z_a).T @ standardise(z_b) / len(z_a)
    return correlation.square().sum() - correlation.diagonal().square().sum()


@dataclass(frozen=True)
class BarlowTwins(BaseMethod):
    """inv = Σ_j (1 − C_jj)²,  ent = off_diagonal_weight · Σ_{j≠k} C_jk²  (paper, table 1; dimensions centred first).

    Both terms are computed on standardised dimensions.

    Examples:
        >>> import torch, unweave as uw
        >>> z = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])  # uncorrelated dimensions
        >>> uw.BarlowTwins().loss(z, z) < 1e-6
        tensor(True)
    """

    least_pairs: ClassVar[int] = 2  # of one pair there is no correlation
    invariance_weight: float = 1.0
    """λ."""
    off_diagonal_weight: float = 0.0051
    """Weight of the off-diagonal correlations."""

    def __post_init__(self) -> None:
        for name in ("invariance_weight", "off_diagonal_weight"):
            if getattr(self, name) < 0:
                raise UnweaveError(f"BarlowTwins: `{name}` cannot be negative: {getattr(self, name)}")

    def invariance(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """Σ_j (1 − C_jj)²"""
        return on_diagonal(z_a, z_b)

    def invariance_gap(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """The mean of (1 − C_jj)² over dimensions."""
        return on_diagonal(z_a, z_b) / z_a.shape[1]

    def entropy(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """off_diagonal_weight · Σ_{j≠k} C_jk²"""
        return self.off_diagonal_weight * off_diagonal(z_a, z_b)

    def normalize(self, z: Tensor) -> Tensor:
        """Standardised dimensions: their variance is 1 unless the embedding is nearly constant."""
        return standardise(z)

    def distances(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """Of standardised dimensions, however short: the ``eps`` of ``standardise`` would reward small embeddings."""
        return (standardise(z_a, 1e-12) - standardise(z_b, 1e-12)).norm(dim=1) / z_a.shape[1] ** 0.5

    def spread(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """The root mean square distance of different images, in the same units as ``distances``."""
        return (2 * variance(standardise(torch.cat([z_a, z_b]), 1e-12))).sqrt().clamp(min=1e-12)

    def distance_weight(self, d: int) -> float:
        """Σ_j (1 − C_jj) is half the squared distance of the standardised views; the method's own squares each term."""
        return d / 2
