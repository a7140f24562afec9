"""Linear probes in closed form, on any device.

Both are fitted for all penalties from one eigenvalue decomposition. The penalty is chosen on a part of the data that is
held out of the fit, never on test data. Penalties are relative to the features' variance, so that scores do not depend
on their scale. ``LinearProbe`` is slower and follows the paper: fixed penalties and cross-validation.

Legend: n rows, d features, k outputs or classes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from unweave.errors import UnweaveError
from unweave.evaluation.metrics import r2
from unweave.evaluation.ridge import Moments, RidgePath

PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
ROUNDING = 1e-12
"""Below this fraction a variation is taken for rounding."""


class _Probe:
    """Chooses the penalty on held-out rows, then fits all rows with it."""

    def __init__(self, penalties: Sequence[float] = PENALTIES, *, held_out: float = 0.2) -> None:
        if not penalties or min(penalties) < 0:
            raise UnweaveError(f"`penalties` must be non-negative numbers, not {penalties!r}")
        self.penalties = tuple(penalties)
        self.held_out = held_out
        self.penalty = self.penalties[0]
        self.coef, self.intercept = torch.empty(0), torch.empty(0)

    def fit(self, x: Tensor, y: Tensor) -> "_Probe":
        """Features (n, d) and targets; returns itself."""
        if x.ndim != 2 or len(x) != len(y) or len(x) < 10:
            raise UnweaveError(
                f"a probe needs at least 10 rows of features and as many targets, not {tuple(x.shape)} and {len(y)}"
            )
        if not torch.isfinite(x).all():
            raise UnweaveError("the features contain NaN or infinity")
        x, y = x.double(), self._targets(y)
        if len(self.penalties) > 1:
            order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(x.device)
            held, kept = order.split([round(len(x) * self.held_out), len(x) - round(len(x) * self.held_out)])
            scores = []
            for coef, intercept in self._solve(x[kept], y[kept], self.penalties):
                self.coef, self.intercept = coef, intercept
                scores.append(self.score(x[held], y[held]))
            self.penalty = self.penalties[max(range(len(scores)), key=scores.__getitem__)]
        self.coef, self.intercept = self._solve(x, y, (self.penalty,))[0]
        return self

    def decision(self, x: Tensor) -> Tensor:
        """x · coef + intercept, (n, k)."""
        return x.double() @ self.coef + self.intercept

    def _targets(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def _solve(self, x: Tensor, y: Tensor, penalties: Sequence[float]) -> list[tuple[Tensor, Tensor]]:
        raise NotImplementedError

    def score(self, x: Tensor, y: Tensor) -> float:
        """The score; 1 is perfect."""
        raise NotImplementedError


class RidgeProbe(_Probe):
    """Ridge regression to one or several numbers; scored by r², the mean over outputs.

    Examples:
        >>> x = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
        >>> round(RidgeProbe().fit(x[:100], x[:100, 0] + 1).score(x[100:], x[100:, 0] + 1), 3)
        1.0
    """

    def _targets(self, y: Tensor) -> Tensor:
        return y.double().view(len(y), -1)

    def _solve(self, x: Tensor, y: Tensor, penalties: Sequence[float]) -> list[tuple[Tensor, Tensor]]:
        mean_x, mean_y = x.mean(0), y.mean(0)
        moments = Moments.zeros(x.shape[1], y.shape[1], x.device)
        moments.add(x - mean_x, y - mean_y)
        strength = x.new_tensor(list(penalties)) * moments.xx.diagonal().mean()
        return [(coef, mean_y - mean_x @ coef) for coef in RidgePath(moments).coefficients(strength)]

    def score(self, x: Tensor, y: Tensor) -> float:
        """r², the mean over outputs."""
        return float(r2(self.decision(x), self._targets(y)).mean())


class ClassProbe(_Probe):
    """Linear discriminant analysis, a linear classifier with a closed form; scored by accuracy.

    The classes share one covariance, which the penalty shrinks towards a multiple of the identity.

    Examples:
        >>> x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
        >>> y = torch.arange(300) % 3
        >>> ClassProbe().fit(x + 9 * y[:, None], y).score(x + 9 * y[:, None], y)
        1.0
    """

    classes = torch.empty(0)

    def _targets(self, y: Tensor) -> Tensor:
        self.classes = y.unique()
        return y

    def _solve(self, x: Tensor, y: Tensor, penalties: Sequence[float]) -> list[tuple[Tensor, Tensor]]:
        centre = x.mean(0)
        x = x - centre
        total = x.square().mean()
        if total.sqrt() <= ROUNDING * centre.abs().max():  # constant features: what is left is rounding
            x, total = torch.zeros_like(x), torch.ones_like(total)
        member = (y[:, None] == self.classes).double()
        counts = member.sum(0).clamp(min=1e-9)
        means = (member.T @ x) / counts[:, None]
        within = x - member @ means
        values, vectors = torch.linalg.eigh(within.T @ within / len(x))
        values = values.clamp(min=0)
        rotated = means @ vectors
        solutions = []
        for penalty in penalties:
            # A code may have no scatter within classes at all: a small part of the total variance is added.
            shrunk = (1 - penalty) * values + penalty * values.mean() + ROUNDING * total
            coef = vectors @ (rotated / shrunk).T
            intercept = -0.5 * (rotated.square() / shrunk).sum(1) + (counts / len(x)).log()
            solutions.append((coef, intercept - centre @ coef))
        return solutions

    def predict(self, x: Tensor) -> Tensor:
        """The class of each row."""
        return self.classes[self.decision(x).argmax(1)]

    def score(self, x: Tensor, y: Tensor) -> float:
        """Accuracy."""
        return float((self.predict(x) == y).double().mean())
