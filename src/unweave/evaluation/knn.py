"""Predictions by nearest neighbours.

Legend: n rows, m rows to predict, d features, k outputs or classes.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave.evaluation.features import Features
from unweave.evaluation.linear_probe import Metric, choose_metric, score_decision
from unweave.evaluation.targets import Kind, as_targets
from unweave.settings import require_number

NEIGHBOURS = 20
TEMPERATURE = 0.07
ROWS = 1024
"""Rows that are compared with a block of others at a time."""


class KNNProbe:
    """A vote among the nearest rows by cosine, each weighted by exp(cosine/τ) (Wu et al. 2018).

    For classes and several labels the vote is the score of a class; for numbers it is their weighted mean. Labels,
    kinds and metrics are those of ``LinearProbe``.

    Args:
        kind: as ``LinearProbe``.
        metric: as ``LinearProbe``.
        neighbours: the number of nearest rows; all rows where there are fewer.
        temperature: τ of the weights.
        device: where to compute; by default where the features are.

    Examples:
        >>> x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0)) + 1
        >>> KNNProbe().fit(x[:200], x[:200, 0] > x[:200, 1]).score(x[200:], x[200:, 0] > x[200:, 1]) > 0.9
        True
    """

    def __init__(
        self,
        kind: Kind | Literal["auto"] = "auto",
        *,
        metric: Metric | Literal["auto"] = "auto",
        neighbours: int = NEIGHBOURS,
        temperature: float = TEMPERATURE,
        device: torch.device | str | None = None,
    ) -> None:
        require_number("neighbours", neighbours, ">= 1")
        require_number("temperature", temperature, "> 0")
        self.kind, self.metric, self.device = kind, metric, device
        self.neighbours, self.temperature = neighbours, temperature

    def fit(self, features: Any, labels: Any) -> "KNNProbe":
        """Features (n, d) and labels; returns itself."""
        self._x, self._targets = Features(features, self.device), as_targets(labels, self.kind)
        self._metric = choose_metric(self._targets.kind, self.metric)
        return self

    def decision(self, features: Any) -> Tensor:
        """The vote (m, k), or the weighted mean of numbers."""
        similarity, nearest = self._nearest(Features(features, self.device))
        weights = ((similarity - similarity[:, :1]) / self.temperature).exp()  # of the nearest: 1
        values = self._targets.values.to(self._x.device)
        if self._targets.kind == "classes":
            votes = torch.zeros(len(nearest), len(self._targets.classes), device=weights.device)
            return votes.scatter_add_(1, values[nearest], weights)
        near = values[nearest]  # (m, neighbours, k)
        known = ~near.isnan()
        total = (weights[:, :, None] * known).sum(1)
        return (weights[:, :, None] * near.nan_to_num(0.0)).sum(1) / total.clamp(min=1e-30)

    def score(self, features: Any, labels: Any) -> float:
        """The metric; 1 is perfect."""
        return score_decision(self.decision(features), as_targets(labels, like=self._targets), self._metric)

    def _nearest(self, x: Features) -> tuple[Tensor, Tensor]:
        """Cosines and rows of the nearest, (m, neighbours), nearest first."""
        count = min(self.neighbours, len(self._x))
        best = torch.full((len(x), count), -torch.inf, device=self._x.device)
        rows = torch.zeros(len(x), count, dtype=torch.long, device=self._x.device)
        for place, fit in self._x.blocks(torch.float32):
            unit = F.normalize(fit, dim=1)
            for where, block in x.blocks(torch.float32):
                for start in range(where.start, where.stop, ROWS):
                    stop = min(start + ROWS, where.stop)
                    part = F.normalize(block[start - where.start : stop - where.start], dim=1).to(unit.device)
                    similarity, index = (part @ unit.T).topk(min(count, len(unit)), 1)
                    merged = torch.cat([best[start:stop], similarity], 1)
                    best[start:stop], order = merged.topk(count, 1)
                    rows[start:stop] = torch.cat([rows[start:stop], index + place.start], 1).gather(1, order)
        return best, rows


def knn_accuracy(fit: Tensor, fit_labels: Tensor, test: Tensor, test_labels: Tensor) -> float:
    """The accuracy of ``KNNProbe``.

    Examples:
        >>> labels = torch.arange(100) % 2
        >>> z = torch.nn.functional.one_hot(labels, 4) + 0.1 * torch.randn(100, 4)
        >>> knn_accuracy(z[:50], labels[:50], z[50:], labels[50:])
        1.0
    """
    return KNNProbe("classes").fit(fit, fit_labels).score(test, test_labels)
