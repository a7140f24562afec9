"""Ridge and logistic regression with a fixed penalty: scikit-learn's models, on any device.

With a fixed penalty, directions of little variance contribute little. The probes of ``probes.py`` choose a penalty
relative to the features' variance, and use such directions. ``LinearProbe`` chooses among 45 fixed ones.

Legend: n rows, d features, k outputs or classes.
"""

import torch
from torch import Tensor

from unweave.evaluation.features import Features, rotation_of
from unweave.evaluation.logistic import Problems, minimise
from unweave.evaluation.metrics import r2
from unweave.evaluation.ridge import RidgeSearch

TOLERANCE = 1e-14
"""Distance of the mean loss from its minimum."""


class RidgeRegression:
    """min ‖y − x·w − b‖² + α‖w‖²: scikit-learn's ``Ridge``.

    Examples:
        >>> x = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
        >>> round(RidgeRegression().fit(x[:100], x[:100, :1] + 1).score(x[100:], x[100:, :1] + 1), 3)
        1.0
    """

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def fit(self, x: Tensor, y: Tensor) -> "RidgeRegression":
        """Features (n, d) and targets (n, k); returns itself."""
        alone = torch.zeros(len(x), dtype=torch.long)
        search = RidgeSearch(Features(x), y.double().view(len(y), -1), (self.alpha,), alone)
        self.coef, self.intercept = search.solve(self.alpha)
        return self

    def score(self, x: Tensor, y: Tensor) -> float:
        """r², the mean over outputs."""
        return float(r2(x.double() @ self.coef + self.intercept, y.double().view(len(y), -1)).mean())


class LogisticRegression:
    """min C·Σ cross entropy + ½‖w‖²: scikit-learn's ``LogisticRegression``, with one logit for two classes.

    Examples:
        >>> x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
        >>> y = torch.arange(300) % 3
        >>> LogisticRegression().fit(x + 9 * y[:, None], y).score(x + 9 * y[:, None], y)
        1.0
    """

    def __init__(self, C: float = 1.0, iterations: int = 1000) -> None:
        self.C, self.iterations = C, iterations

    def fit(self, x: Tensor, y: Tensor) -> "LogisticRegression":
        """Features (n, d) and classes (n,) from 0; returns itself."""
        rotation = rotation_of(rows := Features(x.double()))
        rotated = rotation.apply(rows, torch.float64)
        classes = max(2, int(y.max()) + 1)
        labels, logits = (y[:, None].double(), 1) if classes == 2 else (y, classes)
        used = rotated.new_ones(len(x), 1)
        problems = Problems(labels, used, used.new_full((1,), 1 / self.C), logits)
        weights = minimise(
            rotated, rotation.variance, problems, problems.start(rotated.shape[1]),
            tolerance=TOLERANCE, iterations=self.iterations,
        )[:, 0]  # fmt: skip
        self.weight = rotation.basis @ weights[:-1]
        self.bias = weights[-1] - rotation.mean @ self.weight
        return self

    @torch.no_grad()
    def predict_probability(self, x: Tensor) -> Tensor:
        """The probability of each class, (n, k)."""
        scores = x.double() @ self.weight + self.bias
        if scores.shape[1] > 1:
            return scores.softmax(1)
        return torch.cat([-scores, scores], 1).sigmoid()

    def predict(self, x: Tensor) -> Tensor:
        """The class of each row."""
        return self.predict_probability(x).argmax(1)

    def score(self, x: Tensor, y: Tensor) -> float:
        """Accuracy."""
        return float((self.predict(x) == y).double().mean())
