"""Mean correlation coefficient: how well single variables are recovered up to order and a monotone map.

Legend: n rows, k recovered variables, l true ones.
"""

from torch import Tensor


def ranks(x: Tensor) -> Tensor:
    """0 … n − 1 in the order of size, along the first dimension."""
    return x.argsort(0).argsort(0).double()


def mean_correlation(recovered: Tensor, true: Tensor) -> float:
    """Mean |Spearman correlation| of the best one-to-one matching of recovered (n, k) and true (n, l) variables.

    >>> import torch
    >>> true = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    >>> mean_correlation(-true.flip(1).exp(), true)
    1.0...
    """
    from scipy.optimize import linear_sum_assignment

    a, b = (ranks(x) - (len(x) - 1) / 2 for x in (recovered, true))
    correlation = (a.T @ b / (a.norm(dim=0)[:, None] * b.norm(dim=0))).abs().cpu().numpy()
    rows, columns = linear_sum_assignment(correlation, maximize=True)
    return float(correlation[rows, columns].mean())
