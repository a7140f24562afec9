"""Scores of predictions: accuracy, mean accuracy of classes, average precision, r².

Legend: n rows, k outputs or classes.
"""

import torch
from torch import Tensor


def accuracy(predicted: Tensor, true: Tensor) -> float:
    """The fraction of rows whose class is predicted.

    Examples:
        >>> accuracy(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1, 1, 2]))
        0.75
    """
    return float((predicted == true).double().mean())


def mean_class_accuracy(predicted: Tensor, true: Tensor) -> float:
    """The mean of the accuracies of the classes: scikit-learn's ``balanced_accuracy_score``.

    Examples:
        >>> mean_class_accuracy(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1, 1, 2]))
        0.66...
    """
    classes, number = true.unique(return_inverse=True)
    right = torch.zeros(len(classes), dtype=torch.float64, device=true.device)
    right.index_add_(0, number, (predicted == true).double())
    return float((right / number.bincount(minlength=len(classes))).mean())


def mean_average_precision(scores: Tensor, present: Tensor) -> float:
    """The mean over classes of the 11-point interpolated average precision, as VOC2007 defines it.

    Args:
        scores: (n, k), larger where a class is more likely.
        present: (n, k) of 1 and 0; NaN where an image is left out of a class ("difficult").

    Classes without a positive image are left out of the mean.

    Examples:
        >>> scores = torch.tensor([[0.9], [0.8], [0.7], [0.6]])
        >>> round(mean_average_precision(scores, torch.tensor([[1.0], [0.0], [1.0], [0.0]])), 4)
        0.8485
    """
    found = []
    for column, truth in zip(scores.unbind(1), present.double().unbind(1), strict=True):
        known = ~truth.isnan()
        if truth[known].sum() > 0:
            found.append(_average_precision(column[known], truth[known]))
    return sum(found) / len(found) if found else float("nan")


def _average_precision(scores: Tensor, present: Tensor) -> float:
    hits = present[scores.argsort(descending=True, stable=True)].cumsum(0)
    precision = hits / torch.arange(1, len(hits) + 1, dtype=torch.float64, device=hits.device)
    recall = hits / hits[-1]
    best = precision.flip(0).cummax(0).values.flip(0)  # the best precision at this recall or a higher one
    levels = torch.arange(11, dtype=torch.float64, device=hits.device) / 10
    place = torch.searchsorted(recall, levels - 1e-9)
    return float(best[place.clamp(max=len(best) - 1)].mean())


def r2(predicted: Tensor, true: Tensor) -> Tensor:
    """1 − squared error / variance, for each output (k,).

    Examples:
        >>> r2(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [3.0]]))
        tensor([0.5000])
    """
    error = (predicted - true).square().sum(0)
    spread = (true - true.mean(0)).square().sum(0)
    return 1 - error / spread.clamp(min=torch.finfo(true.dtype).tiny)


def mean_r2(predicted: Tensor, true: Tensor) -> float:
    """r² over the rows that are known (not NaN), the mean over the outputs that vary.

    Examples:
        >>> mean_r2(torch.tensor([[1.0], [2.0], [9.0]]), torch.tensor([[1.0], [3.0], [float("nan")]]))
        0.5
    """
    scores = []
    for guess, truth in zip(predicted.unbind(1), true.unbind(1), strict=True):
        known = ~truth.isnan()
        if known.sum() > 1 and (truth[known] != truth[known][0]).any():
            scores.append(float(r2(guess[known][:, None], truth[known][:, None])))
    return sum(scores) / len(scores) if scores else float("nan")
