"""Kernel ridge regression with a Gaussian kernel: what can be predicted from an embedding, linearly or not.

The exact solution costs n³. With m landmarks (Nyström) the kernel is an inner product of m features, exact where every
row is a landmark, and the cost is n·m². Many regressions of one shape are solved together: all but the last two
dimensions of features and targets are a batch.

Legend: … a batch of regressions, n rows, m landmarks, d features, k outputs.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

ALPHAS = (1.0, 0.1, 0.01, 0.001)
GAMMAS = tuple(10.0 ** (-2 + 4 * i / 3) for i in range(4))
JITTER = 1e-9
"""Times m, added to the diagonal of the landmarks' kernel so that it can be factorised; far below any α."""


def standardise(fit: Tensor, *others: Tensor) -> list[Tensor]:
    """All tensors standardised by the mean and standard deviation of the first; constant columns become 0."""
    mean, std = fit.mean(-2, keepdim=True), fit.std(-2, correction=0, keepdim=True).clamp(min=1e-12)
    return [(x - mean) / std for x in (fit, *others)]


class KernelRidge:
    """min ‖y − f(x)‖² + α‖f‖² with k(x, x′) = exp(−γ‖x − x′‖²); α and γ by cross-validation, for each output.

    The protocol of von Kügelgen et al. (2021): inputs and targets standardised, the grids ``alphas`` and ``gammas``.

    Examples:
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

    def fit(self, x: Tensor, y: Tensor) -> "KernelRidge":
        """Features (…, n, d), targets (…, n, k); returns itself."""
        order = torch.randperm(x.shape[-2], generator=torch.Generator().manual_seed(0)).to(x.device)
        x, y = x.double()[..., order, :], y.double()[..., order, :]
        self._x_fit, self._y_fit = x, y
        (x,), (y,) = standardise(x), standardise(y)
        self._landmarks = x[..., : self.landmarks, :]
        scores, coefs = [], []
        for gamma in self.gammas:
            held, coef = self._search(self._features(x, gamma), y)
            scores.append(held)
            coefs.append(coef)
        best = torch.stack(scores).flatten(0, 1).argmax(0)  # (…, k), over γ and α
        chosen = torch.stack(coefs).flatten(0, 1)  # (γα, …, m, k)
        kept = best == torch.arange(len(chosen), device=x.device).view(-1, *[1] * best.ndim)
        self._coefs = (chosen * kept.unsqueeze(-2)).unflatten(0, (len(self.gammas), -1)).sum(1)
        return self

    def predict(self, x: Tensor) -> Tensor:
        """(…, n, k)"""
        _, x = standardise(self._x_fit, x.double())
        mean = self._y_fit.mean(-2, keepdim=True)
        std = self._y_fit.std(-2, correction=0, keepdim=True)
        parts = [self._features(x, gamma) @ coef for gamma, coef in zip(self.gammas, self._coefs, strict=True)]
        return torch.stack(parts).sum(0) * std + mean

    def scores(self, x: Tensor, y: Tensor) -> Tensor:
        """r² of each output, (…, k)."""
        return _r2(self.predict(x), y.double())

    def score(self, x: Tensor, y: Tensor) -> float:
        """r², the mean over outputs (and over the batch)."""
        return float(self.scores(x, y).mean())

    def _features(self, x: Tensor, gamma: float) -> Tensor:
        """(…, n, m), whose inner products approximate the kernel."""
        kernel = gaussian(self._landmarks, self._landmarks, gamma)
        kernel.diagonal(dim1=-2, dim2=-1).add_(JITTER * kernel.shape[-1])
        factor = torch.linalg.cholesky(kernel)
        across = gaussian(self._landmarks, x, gamma)
        return torch.linalg.solve_triangular(factor, across, upper=False).mT

    def _search(self, features: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """For each α: r² on held-out folds, (α, …, k), and the coefficients from all rows, (α, …, m, k)."""
        parts = list(zip(features.chunk(self.folds, -2), y.chunk(self.folds, -2), strict=True))
        grams = [f.mT @ f for f, _ in parts]
        targets = [f.mT @ t for f, t in parts]
        gram, target = torch.stack(grams).sum(0), torch.stack(targets).sum(0)
        scores, coefs = [], []
        for alpha in self.alphas:
            held = [
                _r2(f @ _solve(gram - g, target - b, alpha), t)
                for (f, t), g, b in zip(parts, grams, targets, strict=True)
            ]
            scores.append(torch.stack(held).mean(0))
            coefs.append(_solve(gram, target, alpha))
        return torch.stack(scores), torch.stack(coefs)


def _solve(gram: Tensor, target: Tensor, alpha: float) -> Tensor:
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    return torch.cholesky_solve(target, torch.linalg.cholesky(gram + alpha * eye))


def _r2(predicted: Tensor, y: Tensor) -> Tensor:
    """1 − residual over total sum of squares, (…, k)."""
    total = (y - y.mean(-2, keepdim=True)).square().sum(-2)
    return 1 - (y - predicted).square().sum(-2) / total.clamp(min=torch.finfo(y.dtype).tiny)


def gaussian(x: Tensor, y: Tensor, gamma: float) -> Tensor:
    """exp(−γ‖x − y‖²), (…, n, m)."""
    return torch.exp(-gamma * torch.cdist(x, y).square())
