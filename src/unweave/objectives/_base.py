"""What a base method is: an invariance and an entropy (paper, equation 1 and table 1).

Legend: n images, d dimensions, z_a and z_b (n, d) the embeddings of their two views.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor


class BaseMethod(ABC):
    """loss = weight · invariance(z_a, z_b) + entropy(z_a, z_b).

    Holds hyper-parameters only: the mathematics are functions of tensors.
    """

    weight: float = 1.0
    """The method's own λ, in its standard form."""

    @abstractmethod
    def invariance(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """How far apart the two views of the same image are: the term that λ weighs."""

    @abstractmethod
    def constraint(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """The same on a scale where 0 is full invariance: what a tolerance is compared with."""

    @abstractmethod
    def entropy(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """Low where the embeddings of different images are spread out."""

    def joint_entropy(self, z_a: Sequence[Tensor], z_b: Sequence[Tensor]) -> Tensor:
        """Entropy of all spaces together: of their concatenation."""
        return self.entropy(torch.cat(list(z_a), 1), torch.cat(list(z_b), 1))

    def geometry(self, z: Tensor) -> Tensor:
        """The embedding as this method sees it: what variance and effective rank are measured on."""
        return z

    def loss(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """The method as published."""
        return self.weight * self.invariance(z_a, z_b) + self.entropy(z_a, z_b)


def variance(z: Tensor) -> Tensor:
    """Mean over dimensions of the variance over rows."""
    return z.var(0, correction=0).mean()


def effective_rank(z: Tensor) -> Tensor:
    """How many directions an embedding uses: (Σ e)² / Σ e² of the eigenvalues e of its covariance.

    It is d where all directions vary alike and 1 where one varies alone (the participation ratio), and needs no
    eigenvalues: both sums are traces. An embedding that does not vary at all has 0.

    >>> effective_rank(torch.eye(4)[torch.arange(400) % 4]).item()  # 4 points: 3 directions
    3.0...
    """
    centred = z - z.mean(0)
    gram = centred.T @ centred if z.shape[1] <= len(z) else centred @ centred.T
    return gram.diagonal().sum() ** 2 / gram.square().sum().clamp(min=torch.finfo(z.dtype).tiny)
