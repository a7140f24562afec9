"""Scores of disentanglement for embeddings with known factors: DCI and MCC.

DCI (Eastwood and Williams 2018): a random forest predicts each factor from the code; how much it uses each space is an
importance matrix R (d, k). Disentanglement: does a space serve one factor? Completeness: is a factor encoded in one
space? Informativeness: how well are factors predicted?

MCC, the mean correlation coefficient: how well single variables are recovered up to order and a monotone map.

Legend: n rows, d spaces, k factors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class DCI:
    """Three scores, 1 being perfect, and the importances (spaces × factors) that they are computed from.

    Examples:
        >>> DCI(disentanglement=1.0, completeness=1.0, informativeness=0.9, importance=[[1.0]]).informativeness
        0.9
    """

    disentanglement: float
    completeness: float
    informativeness: float
    importance: list[list[float]]


def dci(
    code: Mapping[str, Tensor],
    factors: Mapping[str, Tensor],
    *,
    test_fraction: float = 0.5,
    trees: int = 30,
    depth: int = 12,
    seed: int = 0,
) -> DCI:
    """DCI of a code that consists of spaces (n, d_m); importances are summed over the dimensions of each space.

    Factors are classes; informativeness is the mean accuracy on the rows that were not used to fit.

    Examples:
        >>> x = torch.randint(4, (400, 2), generator=torch.Generator().manual_seed(0))
        >>> found = dci({"a": x[:, :1].float(), "b": x[:, 1:].float()}, {"first": x[:, 0], "second": x[:, 1]})
        >>> found.disentanglement > 0.95 and found.completeness > 0.95 and found.informativeness > 0.95
        True
    """
    from sklearn.ensemble import RandomForestClassifier

    features = torch.cat([z.detach().float().cpu() for z in code.values()], 1).numpy()
    edges = np.cumsum([0, *(z.shape[1] for z in code.values())])
    order = np.random.default_rng(seed).permutation(len(features))
    test, fit = np.split(order, [round(len(order) * test_fraction)])
    columns, accuracy = [], []
    for values in factors.values():
        y = values.cpu().numpy()
        forest = RandomForestClassifier(
            n_estimators=trees, max_depth=depth, max_features=None, random_state=seed, n_jobs=-1
        )
        forest.fit(features[fit], y[fit])
        accuracy.append(float((forest.predict(features[test]) == y[test]).mean()))
        columns.append([forest.feature_importances_[a:b].sum() for a, b in pairwise(edges)])
    importance = np.array(columns).T  # (d, k)
    weight = importance.sum(1) / importance.sum()
    return DCI(
        disentanglement=float((weight * (1 - _entropy(importance, axis=1))).sum()),
        completeness=float(((1 - _entropy(importance, axis=0)) * importance.sum(0) / importance.sum()).sum()),
        informativeness=sum(accuracy) / len(accuracy),
        importance=importance.round(4).tolist(),
    )


def _entropy(importance: np.ndarray, axis: int) -> np.ndarray:
    """The normalised entropy of the shares along an axis: 0 where one has all, 1 where all are equal."""
    shares = importance / np.maximum(importance.sum(axis, keepdims=True), 1e-12)
    return -(shares * np.log(np.maximum(shares, 1e-12))).sum(axis) / max(np.log(importance.shape[axis]), 1e-12)


def mcc(recovered: Tensor, true: Tensor) -> float:
    """Mean |Spearman correlation| of the best one-to-one matching of recovered (n, d) and true (n, k) variables.

    Examples:
        >>> true = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
        >>> mcc(-true.flip(1).exp(), true)
        1.0...
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.stats import rankdata

    a, b = (rankdata(x.detach().cpu().numpy(), axis=0) for x in (recovered, true))
    a, b = a - a.mean(0), b - b.mean(0)
    norms = np.linalg.norm(a, axis=0)[:, None] * np.linalg.norm(b, axis=0)
    correlation = np.abs(a.T @ b) / np.maximum(norms, np.finfo(float).tiny)
    rows, columns = linear_sum_assignment(correlation, maximize=True)
    return float(correlation[rows, columns].mean())
