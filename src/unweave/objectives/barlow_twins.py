"""Barlow Twins as invariance and entropy.

Legend: n images, d dimensions, C (d, d) the correlation of view a's dimensions with view b's.
"""

from dataclasses import dataclass

from torch import Tensor

from unweave.errors import UnweaveError
from unweave.objectives._base import BaseMethod


def standardise(z: Tensor, eps: float = 1e-5) -> Tensor:
    """Each dimension to mean 0 and variance 1 over the batch."""
    centred = z - z.mean(0)
    return centred / (centred.square().mean(0) + eps).sqrt()


def on_diagonal(z_a: Tensor, z_b: Tensor, power: int = 2) -> Tensor:
    """Σ_j (1 − C_jj)²; with a ``power`` of 1, Σ_j (1 − C_jj), which is half the squared distance of the two views."""
    missing = 1 - (standardise(z_a) * standardise(z_b)).mean(0)
    return (missing.square() if power == 2 else missing).sum()


def off_diagonal(z_a: Tensor, z_b: Tensor) -> Tensor:
    """Σ_{j≠k} C_jk²"""
    correlation = standardise(z_a).T @ standardise(z_b) / len(z_a)
    return correlation.square().sum() - correlation.diagonal().square().sum()


@dataclass(frozen=True)
class BarlowTwins(BaseMethod):
    """inv = Σ_j (1 − C_jj)²,  ent = off_diagonal_weight · Σ_{j≠k} C_jk²  (paper, table 1; dimensions centred first).

    Its entropy has no scale of its own: both terms see standardised dimensions.
    """

    weight: float = 1.0
    off_diagonal_weight: float = 0.0051
    power: int = 2
    """Of 1 − C_jj in the invariance. Squared, the pull towards invariance fades as it comes near: what is left of style
    falls only as fast as λ grows, and is lost in the noise of training. At 1 it does not fade."""

    def __post_init__(self) -> None:
        if self.power not in (1, 2):
            raise UnweaveError(f"BarlowTwins: power is 1 or 2, not {self.power}")
        for name in ("weight", "off_diagonal_weight"):
            if getattr(self, name) < 0:
                raise UnweaveError(f"BarlowTwins: {name} cannot be negative: {getattr(self, name)}")

    def invariance(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """Σ_j (1 − C_jj)²"""
        return on_diagonal(z_a, z_b, self.power)

    def constraint(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """The mean of (1 − C_jj)² over dimensions."""
        return on_diagonal(z_a, z_b, self.power) / z_a.shape[1]

    def entropy(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """off_diagonal_weight · Σ_{j≠k} C_jk²"""
        return self.off_diagonal_weight * off_diagonal(z_a, z_b)

    def geometry(self, z: Tensor) -> Tensor:
        """Standardised, as both terms see it: its variance is 1 until the embedding is all but constant."""
        return standardise(z)
