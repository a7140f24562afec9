"""Linear probes as the paper fits them: an L2 penalty chosen among 45 by 5-fold cross-validation.

Legend: n rows, d features, k outputs or classes.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from unweave.errors import UnweaveError
from unweave.evaluation.features import Features, rotation_of
from unweave.evaluation.logistic import Problems, minimise, search
from unweave.evaluation.metrics import accuracy, mean_average_precision, mean_class_accuracy, mean_r2
from unweave.evaluation.ridge import RidgeSearch
from unweave.evaluation.targets import Kind, Targets, as_targets, assign_folds

PENALTIES = tuple(10 ** (-6 + 11 * i / 44) for i in range(45))
"""45 values from 1e-6 to 1e5, evenly spaced in their logarithm (Kornblith et al. 2019)."""
SEARCH_TOLERANCE = 1e-6
"""Distance of the mean loss from its minimum while penalties are compared; scikit-learn stops further away."""
TOLERANCE = 1e-10
"""The same of the final fit."""
ITERATIONS = 1000

Metric = Literal["accuracy", "mean_per_class", "map", "r2"]
METRICS: dict[Kind, tuple[Metric, ...]] = {
    "classes": ("accuracy", "mean_per_class"),
    "multilabel": ("map",),
    "regression": ("r2",),
}
"""The metrics of each kind of target; the first is the default."""


def choose_metric(kind: Kind, metric: Metric | Literal["auto"]) -> Metric:
    """The metric asked for, or the default of this kind of targets."""
    if metric == "auto":
        return METRICS[kind][0]
    if metric not in METRICS[kind]:
        raise UnweaveError(f"`metric` of {kind} must be {' or '.join(METRICS[kind])}, not {metric!r}")
    return metric


def score_decision(decision: Tensor, targets: Targets, metric: Metric) -> float:
    """The metric of scores of classes (n, k), or of predicted numbers."""
    truth = targets.values.to(decision.device)
    if metric == "r2":
        return mean_r2(decision, truth)
    if metric == "map":
        return mean_average_precision(decision, truth)
    predicted = decision.argmax(1) if decision.shape[1] > 1 else (decision[:, 0] > 0).long()
    return accuracy(predicted, truth) if metric == "accuracy" else mean_class_accuracy(predicted, truth)


class LinearProbe:
    """Multinomial logistic regression for classes, a binary one for each of several labels, ridge for numbers.

    The objective is scikit-learn's with C = 1 / penalty (logistic) and alpha = penalty (ridge). Features are not
    scaled. Folds are random, with the images of each class divided evenly. The penalty with the best mean score on
    held-out folds is chosen, the larger one of two equal ones, and all rows are fitted with it.

    Args:
        kind: "classes", "multilabel" or "regression"; "auto" infers it from the labels, as ``as_targets``.
        metric: "accuracy" or "mean_per_class" for classes, "map" (11-point, VOC2007) for several labels, "r2" (the mean
            over outputs) for numbers. By default the first of them.
        penalties: λ of Σ loss + λ/2 ‖w‖² (logistic) or Σ error² + λ ‖w‖² (ridge).
        folds: of the cross-validation.
        seed: of the folds.
        device: where to compute; by default where the features are.
        on_progress: called with the number of penalties done.

    Features are tensors or arrays of any precision. An array that is mapped from a file (``numpy.memmap``) may be
    larger than memory; logits (n · k, a few times) must fit.

    Examples:
        >>> x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
        >>> names = ["red", "green", "blue"]
        >>> y = [names[i % 3] for i in range(300)]
        >>> x[:, 0] += 19 * torch.tensor([names.index(label) for label in y])
        >>> probe = LinearProbe().fit(x[:200], y[:200])
        >>> probe.score(x[200:], y[200:]), probe.predict(x[:2])
        (1.0, ['red', 'green'])
        >>> round(LinearProbe().fit(x[:200], x[:200] * 2 + 0.5).score(x[200:], x[200:] * 2 + 0.5), 3)
        1.0
    """

    def __init__(
        self,
        kind: Kind | Literal["auto"] = "auto",
        *,
        metric: Metric | Literal["auto"] = "auto",
        penalties: Sequence[float] = PENALTIES,
        folds: int = 5,
        seed: int = 0,
        device: torch.device | str | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        if not penalties or not all(np.isfinite(p) and p >= 0 for p in penalties):
            raise UnweaveError(f"`penalties` must be non-negative numbers, not {penalties!r}")
        if metric not in ("auto", *get_args(Metric)):
            raise UnweaveError(f"`metric` must be auto, {', '.join(get_args(Metric))}, not {metric!r}")
        self.kind, self.metric = kind, metric
        self.penalties = tuple(sorted(map(float, penalties), reverse=True))
        self.folds, self.seed, self.device, self.on_progress = folds, seed, device, on_progress
        self.penalty = self.penalties[0]
        """The penalty chosen."""
        self.cross_validation: dict[float, float] = {}
        """The mean score on held-out folds of each penalty."""
        self.coef, self.intercept = torch.empty(0), torch.empty(0)

    def fit(self, features: Any, labels: Any) -> "LinearProbe":
        """Features (n, d) and labels; returns itself."""
        x, targets = Features(features, self.device), as_targets(labels, self.kind)
        _require_rows(x, targets, "labels")
        self._targets = targets = targets.to(x.device)
        self._metric = choose_metric(targets.kind, self.metric)
        folds = assign_folds(targets, self.folds, self.seed).to(x.device) if len(self.penalties) > 1 else None
        if targets.kind == "regression":
            self._fit_ridge(x, targets, folds)
        else:
            self._fit_logistic(x, targets, folds)
        return self

    def decision(self, features: Any) -> Tensor:
        """features · coef + intercept: logits (n, k), or predicted numbers. Of two classes there is one logit."""
        x = Features(features, self.device)
        if x.dim != len(self.coef):
            raise UnweaveError(f"`features` has {x.dim} columns, those of the fit have {len(self.coef)}")
        coef, intercept = self.coef.to(x.device), self.intercept.to(x.device)
        return torch.cat([block @ coef + intercept for _, block in x.blocks(torch.float64)])

    def predict(self, features: Any) -> Any:
        """The class of each row, as in the labels; whether each label is present; or numbers."""
        decision = self.decision(features)
        if self._targets.kind == "regression":
            return decision
        if self._targets.kind == "multilabel":
            return decision > 0
        number = decision.argmax(1) if decision.shape[1] > 1 else (decision[:, 0] > 0).long()
        return [self._targets.classes[i] for i in number.tolist()]

    def score(self, features: Any, labels: Any) -> float:
        """The metric; 1 is perfect."""
        decision = self.decision(features)
        targets = as_targets(labels, like=self._targets)
        _require_rows(Features(features), targets, "labels")
        return score_decision(decision, targets, self._metric)

    def _choose(self, scores: Sequence[float]) -> None:
        """The best penalty; the largest of several equal ones."""
        self.cross_validation = dict(zip(self.penalties, scores, strict=True))
        best = max(range(len(scores)), key=lambda i: -np.inf if np.isnan(scores[i]) else scores[i])
        self.penalty = self.penalties[best]

    def _fit_ridge(self, x: Features, targets: Targets, folds: Tensor | None) -> None:
        alone = torch.zeros(len(x), dtype=torch.long, device=x.device)
        found = RidgeSearch(x, targets.values, self.penalties, alone if folds is None else folds)
        if folds is not None:
            self._choose(found.scores.nanmean(1).tolist())
        self.coef, self.intercept = found.solve(self.penalty)
        if self.on_progress:
            self.on_progress(len(self.penalties))

    def _fit_logistic(self, x: Features, targets: Targets, folds: Tensor | None) -> None:
        rotation = rotation_of(x)
        rotated = rotation.apply(x, torch.float32)
        variance = rotation.variance.float()
        classes = len(targets.classes)
        labels = targets.values
        if classes == 2:  # one logit, as in scikit-learn
            labels, classes = labels[:, None].double(), 1
        elif targets.kind == "multilabel":
            classes = 1
        start = None
        if folds is not None:
            scores, starts = [], []
            for held, weights in search(
                rotated, variance, labels, classes, self.penalties, folds,
                tolerance=SEARCH_TOLERANCE, iterations=ITERATIONS,
            ):  # fmt: skip
                scores.append(self._fold_score(held, targets, folds))
                starts.append(weights.cpu())
                if self.on_progress:
                    self.on_progress(len(scores))
            self._choose(scores)
            start = starts[self.penalties.index(self.penalty)].to(x.device)
        weights = _refit(rotated, variance, labels, classes, self.penalty, start)
        self.coef = rotation.basis @ weights[:-1]
        self.intercept = weights[-1] - rotation.mean @ self.coef

    def _fold_score(self, held: Tensor, targets: Targets, folds: Tensor) -> float:
        scores = [
            score_decision(held[rows], targets.take(rows), self._metric)
            for rows in ((folds == fold).nonzero()[:, 0] for fold in range(self.folds))
        ]
        known = [score for score in scores if score == score]
        return sum(known) / len(known) if known else float("nan")


def _refit(x: Tensor, variance: Tensor, labels: Tensor, classes: int, penalty: float, start: Tensor | None) -> Tensor:
    """The weights (r + 1, k) or (r + 1, c) from all rows, in double precision."""
    if classes == 1:
        rows, targets = (~labels.isnan()).to(x.dtype), labels.nan_to_num(0.0).to(x.dtype)
        start = None if start is None else start[:, :, None]
    else:
        rows, targets = x.new_ones(len(x), 1), labels
        start = None if start is None else start[:, None]
    problems = Problems(targets, rows, x.new_full((rows.shape[1],), penalty), classes)
    begin = problems.start(x.shape[1]) if start is None else problems.exclude_absent(start.clone())
    return minimise(x, variance, problems, begin, tolerance=TOLERANCE, iterations=ITERATIONS).double().flatten(1)


def _require_rows(x: Features, targets: Targets, name: str) -> None:
    if len(x) != len(targets):
        raise UnweaveError(
            f"`{x.name}` has {len(x)} rows, `{name}` has {len(targets)}: one label for each row is needed"
        )
