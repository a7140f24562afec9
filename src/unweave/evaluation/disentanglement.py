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
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unweave.errors import UnweaveError
from unweave.evaluation.features import as_tensor
from unweave.evaluation.targets import as_targets


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
    code: Mapping[str, Any] | Any,
    factors: Mapping[str, Any] | Any,
    *,
    test_fraction: float = 0.5,
    trees: int = 30,
    depth: int = 12,
    seed: int = 0,
) -> DCI:
    """DCI of a code that consists of spaces (n, d_m); importances are summed over the dimensions of each space.

    Factors are classes; informativeness is the mean accuracy on the rows that were not used to fit.

    Args:
        code: embeddings (n, d_m) by space; of a matrix (n, d), every dimension is a space, as in the definition.
        factors: classes (n,) by factor, or a matrix (n, k) of numbers of classes. Texts are classes too.
        test_fraction: the fraction of rows that are scored.
        trees: of each random forest.
        depth: of each tree, at most.
        seed: of the split and the forests.

    Tensors and arrays are accepted.

    Examples:
        >>> x = torch.randint(4, (400, 2), generator=torch.Generator().manual_seed(0))
        >>> found = dci({"a": x[:, :1].float(), "b": x[:, 1:].float()}, {"first": x[:, 0], "second": x[:, 1]})
        >>> found.disentanglement > 0.95 and found.completeness > 0.95 and found.informativeness > 0.95
        True
    """
    from sklearn.ensemble import RandomForestClassifier

    spaces = [as_tensor(z, "code").float().cpu() for z in _columns(code)]
    truth = [as_targets(values, "classes", name="factors").values.numpy() for values in _columns(factors)]
    rows = {*map(len, spaces), *map(len, truth)}
    if len(rows) != 1:
        raise UnweaveError(f"`code` and `factors` have different numbers of rows: {sorted(rows)}")
    spaces = [z.view(len(z), -1) for z in spaces]
    features = torch.cat(spaces, 1).numpy()
    edges = np.cumsum([0, *(z.shape[1] for z in spaces)])
    order = np.random.default_rng(seed).permutation(len(features))
    test, fit = np.split(order, [round(len(order) * test_fraction)])
    columns, accuracy = [], []
    for y in truth:
        forest = RandomForestClassifier(
            n_estimators=trees, max_depth=depth, max_features=None, random_state=seed, n_jobs=-1
        )
        forest.fit(features[fit], y[fit])
        accuracy.append(float((forest.predict(features[test]) == y[test]).mean()))
        columns.append([forest.feature_importances_[a:b].sum() for a, b in pairwise(edges)])
    importance = np.array(columns).T  # (d, k)
    weight = importance.sum(1) / max(importance.sum(), 1e-12)  # no tree has a split where the code is constant
    return DCI(
        disentanglement=float((weight * (1 - _entropy(importance, axis=1))).sum()),
        completeness=float(
            ((1 - _entropy(importance, axis=0)) * importance.sum(0)).sum() / max(importance.sum(), 1e-12)
        ),
        informativeness=sum(accuracy) / len(accuracy),
        importance=importance.round(4).tolist(),
    )


def _columns(values: Any) -> list[Any]:
    """What a mapping holds, or the columns of a matrix."""
    if isinstance(values, Mapping):
        return list(values.values())
    matrix = values if isinstance(values, Tensor) else np.asarray(values)
    if matrix.ndim != 2:
        raise UnweaveError(f"`code` and `factors` must be matrices or mappings, not of the shape {tuple(matrix.shape)}")
    return [matrix[:, i] for i in range(matrix.shape[1])]


def _entropy(importance: np.ndarray, axis: int) -> np.ndarray:
    """The normalised entropy of the shares along an axis: 0 where one has all, 1 where all are equal."""
    shares = importance / np.maximum(importance.sum(axis, keepdims=True), 1e-12)
    return -(shares * np.log(np.maximum(shares, 1e-12))).sum(axis) / max(np.log(importance.shape[axis]), 1e-12)


def mcc(recovered: Any, true: Any) -> float:
    """Mean |Spearman correlation| of the best one-to-one matching of recovered (n, d) and true (n, k) variables.

    Tensors and arrays are accepted. Ties have average ranks, as in scipy.

    Examples:
        >>> true = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
        >>> mcc(-true.flip(1).exp(), true)
        1.0...
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.stats import rankdata

    matrices = [as_tensor(x, name).cpu() for x, name in ((recovered, "recovered"), (true, "true"))]
    if any(x.ndim != 2 for x in matrices) or len(matrices[0]) != len(matrices[1]):
        shapes = " and ".join(str(tuple(x.shape)) for x in matrices)
        raise UnweaveError(f"`recovered` and `true` must be matrices with the same number of rows, not {shapes}")
    a, b = (rankdata(x.numpy(), axis=0) for x in matrices)
    a, b = a - a.mean(0), b - b.mean(0)
    norms = np.linalg.norm(a, axis=0)[:, None] * np.linalg.norm(b, axis=0)
    correlation = np.abs(a.T @ b) / np.maximum(norms, np.finfo(float).tiny)
    rows, columns = linear_sum_assignment(correlation, maximize=True)
    return float(correlation[rows, columns].mean())
