"""Classification by nearest neighbours.

Legend: n rows, k classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

NEIGHBOURS = 20
TEMPERATURE = 0.07


def knn_accuracy(fit: Tensor, fit_labels: Tensor, test: Tensor, test_labels: Tensor) -> float:
    """Accuracy of a vote among the 20 nearest rows by cosine, each weighted by exp(cosine/0.07) (Wu et al. 2018).

    Examples:
        >>> labels = torch.arange(100) % 2
        >>> z = torch.nn.functional.one_hot(labels, 4) + 0.1 * torch.randn(100, 4)
        >>> knn_accuracy(z[:50], labels[:50], z[50:], labels[50:])
        1.0
    """
    classes, members = fit_labels.unique(return_inverse=True)
    unit = F.normalize(fit.float(), dim=1)
    right = 0
    for rows, truth in zip(F.normalize(test.float(), dim=1).split(1024), test_labels.split(1024), strict=True):
        similarity, nearest = (rows @ unit.T).topk(min(NEIGHBOURS, len(unit)), 1)
        votes = torch.zeros(len(rows), len(classes), device=rows.device)
        votes.scatter_add_(1, members[nearest], (similarity / TEMPERATURE).exp())
        right += int((classes[votes.argmax(1)] == truth).sum())
    return right / len(test)
