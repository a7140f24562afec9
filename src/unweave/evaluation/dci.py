"""Disentanglement, completeness and informativeness (Eastwood and Williams 2018), with scikit-learn's forests.

A forest predicts each factor from the code; how much it uses each code dimension is an importance matrix R (d, k).
Disentanglement: does a dimension serve one factor? Completeness: is a factor held by one dimension (here: space)?
Informativeness: how well are factors predicted?

Legend: n rows, d dimensions of the code or spaces, k factors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class DCI:
    """Three numbers, 1 being perfect, and the importances behind them."""

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
    """Of a code made of spaces (n, d_m); importances are summed over each space, since a space is what we name.

    Factors are classes; informativeness is the mean accuracy on the rows held out.

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
    """Of the shares along an axis, to the base of their number: 0 where one has all, 1 where all have as much."""
    shares = importance / np.maximum(importance.sum(axis, keepdims=True), 1e-12)
    return -(shares * np.log(np.maximum(shares, 1e-12))).sum(axis) / max(np.log(importance.shape[axis]), 1e-12)
