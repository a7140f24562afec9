"""Kernel ridge regression with a Gaussian kernel: what an embedding tells, linearly or not.

The exact solution costs n³. Landmarks (Nyström) give the kernel as an inner product of m features, exact where every
row is a landmark, and cost n·m².

Legend: n rows, m landmarks, d features, k outputs.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from unweave.evaluation.probes import r2

ALPHAS = (1.0, 0.1, 0.01, 0.001)
GAMMAS = tuple(10.0 ** (-2 + 4 * i / 3) for i in range(4))


def standardise(fit: Tensor, *others: Tensor) -> list[Tensor]:
    """All by the mean and standard deviation of the first."""
    mean, std = fit.mean(0), fit.std(0, correction=0).clamp(min=1e-12)
    return [(x - mean) / std for x in (fit, *others)]


class KernelRidge:
    """min ‖y − f(x)‖² + α‖f‖² with k(x, x′) = exp(−γ‖x − x′‖²); α and γ by 3-fold cross-validation.

    The protocol of von Kügelgen et al. (2021): inputs and targets standardised, the grids ``alphas`` and ``gammas``.

    >>> x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    >>> KernelRidge().fit(x[:200], x[:200].square()).score(x[200:], x[200:].square()) > 0.95
    True
    """

    def __init__(
        self,
        *,
        alphas: Sequence[float] = ALPHAS,
        gammas: Sequence[float] = GAMMAS,
        landmarks: int = 1024,
        folds: int = 3,
    ) -> None:
        self.alphas, self.gammas, self.landmarks, self.folds = tuple(alphas), tuple(gammas), landmarks, folds
        self.alpha, self.gamma = self.alphas[0], self.gammas[0]

    def fit(self, x: Tensor, y: Tensor) -> "KernelRidge":
        """Features (n, d), targets (n, k); returns itself."""
        x, y = x.double(), y.double().view(len(y), -1)
        self._x_fit, self._y_fit = x, y
        (x,), (y,) = standardise(x), standardise(y)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(x.device)
        self._landmarks = x[order[: self.landmarks]]
        if len(self.alphas) * len(self.gammas) > 1:
            scores = {}
            for gamma in self.gammas:
                features = self._features(x, gamma)
                parts = [torch.zeros(len(self.alphas), dtype=torch.float64)]
                for held in order.chunk(self.folds):
                    kept = torch.ones(len(x), dtype=torch.bool, device=x.device)
                    kept[held] = False
                    coefs = self._solve(features[kept], y[kept], self.alphas)
                    parts.append(torch.stack([r2(features[held] @ c, y[held]).mean().cpu() for c in coefs]))
                for alpha, score in zip(self.alphas, torch.stack(parts).sum(0).tolist(), strict=True):
                    scores[alpha, gamma] = score
            self.alpha, self.gamma = max(scores, key=scores.__getitem__)
        self._coef = self._solve(self._features(x, self.gamma), y, (self.alpha,))[0]
        return self

    def predict(self, x: Tensor) -> Tensor:
        """(n, k)"""
        _, x = standardise(self._x_fit, x.double())
        mean, std = self._y_fit.mean(0), self._y_fit.std(0, correction=0)
        return self._features(x, self.gamma) @ self._coef * std + mean

    def score(self, x: Tensor, y: Tensor) -> float:
        """r², the mean over outputs."""
        return float(r2(self.predict(x), y.double().view(len(y), -1)).mean())

    def _features(self, x: Tensor, gamma: float) -> Tensor:
        """(n, m) whose inner products are the kernel, as the landmarks see it."""
        values, vectors = torch.linalg.eigh(gaussian(self._landmarks, self._landmarks, gamma))
        keep = values > 1e-10 * values[-1]
        return gaussian(x, self._landmarks, gamma) @ (vectors[:, keep] / values[keep].sqrt())

    @staticmethod
    def _solve(features: Tensor, y: Tensor, alphas: Sequence[float]) -> list[Tensor]:
        values, vectors = torch.linalg.eigh(features.T @ features)
        target = vectors.T @ (features.T @ y)
        return [vectors @ (target / (values.clamp(min=0) + alpha)[:, None]) for alpha in alphas]


def gaussian(x: Tensor, y: Tensor, gamma: float) -> Tensor:
    """exp(−γ‖x − y‖²), (n, m)."""
    return torch.exp(-gamma * torch.cdist(x, y).square())
