"""Collapse of an embedding space: how it is measured, and what is done about it.

A space that maps everything to one point is perfectly invariant. Once there it has no gradient that would spread it
again, so λ must stop growing before.

Legend: n rows, d dimensions, M + 1 spaces.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unweave.errors import UnweaveWarning
from unweave.settings import require

REPORTED = 0.1
"""Variance below which a space is reported as close to collapse."""


class CollapseWarning(UnweaveWarning):
    """A space is close to collapse, or has recovered.

    Examples:
        >>> import warnings
        >>> warnings.simplefilter("error", CollapseWarning)  # stop at the first collapse
        >>> warnings.simplefilter("default", CollapseWarning)
    """


def variance(z: Tensor) -> Tensor:
    """The variance over rows, averaged over dimensions.

    Examples:
        >>> variance(torch.tensor([[0.0, 1.0], [2.0, 1.0]]))
        tensor(0.5000)
    """
    return z.var(0, correction=0).mean()


def effective_rank(z: Tensor) -> Tensor:
    """The number of directions an embedding uses: (Σ e)² / Σ e² of the eigenvalues e of its covariance.

    The participation ratio is d where all directions vary equally, 1 where one alone varies, and at most about 1 for a
    constant, of which rounding is left. Both sums are traces, so no eigenvalues are computed.

    Examples:
        >>> effective_rank(torch.eye(4)[torch.arange(400) % 4]).item()  # 4 points: 3 directions
        3.0...
    """
    centred = z - z.mean(0)
    gram = centred.T @ centred if z.shape[1] <= len(z) else centred @ centred.T
    return gram.diagonal().sum() ** 2 / gram.square().sum().clamp(min=torch.finfo(z.dtype).tiny)


@dataclass(frozen=True, kw_only=True)
class CollapseGuard:
    """Limits λ where its space is close to collapse: variance or effective rank below a threshold.

    The λ of such a space does not grow, and shrinks by the factor 1 − ``shrink`` at each update at which the rule
    changes λ, though not below its first value.

    Examples:
        >>> guard = CollapseGuard(min_variance=0.1)
        >>> guard.collapsed(torch.tensor([1.0, 0.01]), torch.tensor([5.0, 5.0]))
        tensor([False,  True])
    """

    min_variance: float = 0.1
    """Least variance, in the geometry of the loss; 1 is a space spread evenly."""
    min_rank: float = 0.0
    """Least effective rank; 0 by default, since a style with one dimension has rank 1."""
    shrink: float = 0.02
    """How fast λ shrinks."""

    def __post_init__(self) -> None:
        require(self, ">= 0", "min_variance", "min_rank")
        require(self, "in [0, 1]", "shrink")

    def collapsed(self, variances: Tensor, ranks: Tensor) -> Tensor:
        """Which spaces are below a threshold: (M + 1,)."""
        return (variances < self.min_variance) | (ranks < self.min_rank)

    def reported(self, variances: Tensor, ranks: Tensor) -> Tensor:
        """Which spaces a warning names: a guard that limits λ early does not warn as early, (M + 1,)."""
        return (variances < min(self.min_variance, REPORTED)) | (ranks < self.min_rank)

    def limit(self, before: Tensor, proposed: Tensor, collapsed: Tensor, start: Tensor) -> Tensor:
        """The next λ, from the present, the proposed and the first one: (M + 1,) each."""
        smaller = torch.maximum(before * (1 - self.shrink), torch.minimum(before, start))
        return torch.where(collapsed, torch.minimum(proposed, smaller), proposed)
