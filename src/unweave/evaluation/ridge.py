"""Ridge regression for all penalties and folds, from one decomposition for each fold.

One pass over the features collects the moments of each fold. The fit without a fold and its error on that fold follow
from moments alone, so features may be larger than memory.

Legend: n rows, d features, k outputs, p penalties.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unweave.evaluation.features import Features, rotation_of

CHOLESKY = 2**28
"""Numbers in the matrices that are factorised together."""


@dataclass
class Moments:
    """Sums over rows: their number, x, y, x·xᵀ, x·yᵀ and y²."""

    count: float
    x: Tensor
    y: Tensor
    xx: Tensor
    xy: Tensor
    yy: Tensor

    @classmethod
    def zeros(cls, features: int, outputs: int, device: torch.device) -> "Moments":
        """Of no rows."""
        shapes = ((features,), (outputs,), (features, features), (features, outputs), (outputs,))
        return cls(0, *(torch.zeros(shape, dtype=torch.float64, device=device) for shape in shapes))

    def add(self, x: Tensor, y: Tensor) -> None:
        """Adds rows (n, d) and (n, k)."""
        self.count += len(x)
        self.x += x.sum(0)
        self.y += y.sum(0)
        self.xx.addmm_(x.T, x)
        self.xy.addmm_(x.T, y)
        self.yy += y.square().sum(0)

    def _combined(self, other: "Moments", sign: int) -> "Moments":
        mine, theirs = vars(self), vars(other)
        return Moments(**{name: mine[name] + sign * theirs[name] for name in mine})

    def __add__(self, other: "Moments") -> "Moments":
        return self._combined(other, 1)

    def __sub__(self, other: "Moments") -> "Moments":
        return self._combined(other, -1)

    def about(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x·xᵀ, x·yᵀ and y² about other origins."""
        xx = self.xx - torch.outer(self.x, x) - torch.outer(x, self.x) + self.count * torch.outer(x, x)
        xy = self.xy - torch.outer(self.x, y) - torch.outer(x, self.y) + self.count * torch.outer(x, y)
        return xx, xy, self.yy - 2 * y * self.y + self.count * y.square()


class RidgePath:
    """Solutions for every penalty.

    On a CPU they follow from one eigenvalue decomposition. A GPU factorises the matrices of all penalties together,
    which is faster there; where rounding makes one of them indefinite, it decomposes too.
    """

    def __init__(self, moments: Moments) -> None:
        self.mean_x, self.mean_y = moments.x / moments.count, moments.y / moments.count
        self.xx, self.xy, _ = moments.about(self.mean_x, self.mean_y)

    def coefficients(self, penalties: Tensor) -> Tensor:
        """(p, d, k)"""
        solved = _factorised(self.xx, self.xy, penalties) if self.xx.is_cuda else None
        return self._decomposed(penalties) if solved is None else solved

    def _decomposed(self, penalties: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(self.xx)
        target = vectors.T @ self.xy
        # A direction without variance has no weight, however small the penalty.
        target[values <= values[-1] * len(values) * torch.finfo(values.dtype).eps] = 0
        shrunk = values.clamp(min=0)[:, None] + penalties + torch.finfo(torch.float64).tiny  # (d, p)
        return _times(vectors, (target[:, None] / shrunk[:, :, None]).transpose(0, 1))

    def errors(self, held: Moments, penalties: Tensor) -> Tensor:
        """Sums of squared errors (p, k) of other rows."""
        xx, xy, yy = held.about(self.mean_x, self.mean_y)
        coef = self.coefficients(penalties)
        return yy + (coef * (_times(xx, coef) - 2 * xy)).sum(1)


def _times(matrix: Tensor, coef: Tensor) -> Tensor:
    """A matrix (d, d) times coefficients (p, d, k), as one product."""
    flat = coef.transpose(0, 1).flatten(1)
    return (matrix @ flat).unflatten(1, (coef.shape[0], coef.shape[2])).transpose(0, 1)


def _factorised(xx: Tensor, xy: Tensor, penalties: Tensor) -> Tensor | None:
    """The solutions (p, d, k) by Cholesky; None where a matrix is not positive definite."""
    parts = []
    eye = torch.eye(len(xx), dtype=xx.dtype, device=xx.device)
    for some in penalties.split(max(1, CHOLESKY // xx.numel())):
        factor, failed = torch.linalg.cholesky_ex(xx + some[:, None, None] * eye)
        if failed.any():
            return None
        parts.append(torch.cholesky_solve(xy.expand(len(some), -1, -1), factor))
    return torch.cat(parts)


class RidgeSearch:
    """Cross-validated r² for each penalty, and the solution for a chosen one.

    Targets (n, k) may be NaN where they are unknown. Outputs that are known for the same rows are solved together.

    Examples:
        >>> x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> found = RidgeSearch(Features(x), x[:, :1].double(), [1.0, 1e-3], torch.arange(100) % 5)
        >>> found.scores.shape, bool(found.scores[1] > 0.999)
        (torch.Size([2, 1]), True)
    """

    def __init__(self, x: Features, y: Tensor, penalties: Sequence[float], folds: Tensor) -> None:
        self._device, self._outputs = x.device, y.shape[1]
        strength = torch.tensor(list(penalties), dtype=torch.float64, device=x.device)
        self.scores = torch.full((len(strength), y.shape[1]), torch.nan, dtype=torch.float64, device=x.device)
        """(p, k), the mean over the folds."""
        self._solutions: list[tuple[list[int], RidgePath, Tensor, Tensor]] = []
        self._basis: Tensor | None = None
        if x.dim > len(x):
            rotation = rotation_of(x)
            self._basis, self._centre = rotation.basis, rotation.mean
            x = Features(rotation.apply(x, torch.float64))
        y, folds = y.to(x.device), folds.to(x.device)
        for columns in _same_rows(y):
            rows = (~y[:, columns[0]].isnan()).nonzero()[:, 0]
            if len(rows) >= 2:
                self._search(x, y[rows][:, columns], rows, folds[rows], columns, strength)

    def _search(
        self, x: Features, y: Tensor, rows: Tensor, folds: Tensor, columns: list[int], strength: Tensor
    ) -> None:
        chosen = None if len(rows) == len(x) else rows
        shift_x, shift_y = x.mean(chosen), y.mean(0)
        y = y - shift_y
        parts = {int(fold): Moments.zeros(x.dim, y.shape[1], x.device) for fold in folds.unique()}
        for place, block in x.blocks(torch.float64, chosen):
            block = block - shift_x
            for fold, moments in parts.items():
                own = folds[place] == fold
                moments.add(block[own], y[place][own])
        total = sum(parts.values(), Moments.zeros(x.dim, y.shape[1], x.device))
        found = []
        for held in parts.values():
            spread = held.yy - held.y.square() / held.count
            if total.count - held.count < 2 or len(strength) == 1:
                continue
            errors = RidgePath(total - held).errors(held, strength)
            varies = spread > 1e-12 * total.yy
            found.append(torch.where(varies, 1 - errors / spread.clamp(min=1e-300), torch.nan))
        if found:
            self.scores[:, columns] = torch.stack(found).nanmean(0)
        self._solutions.append((columns, RidgePath(total), shift_x, shift_y))

    def solve(self, penalty: float) -> tuple[Tensor, Tensor]:
        """Coefficients (d, k) and intercepts (k,) from all rows."""
        coef, intercept = None, torch.zeros(self._outputs, dtype=torch.float64, device=self._device)
        for columns, path, shift_x, shift_y in self._solutions:
            own = path.coefficients(torch.tensor([penalty], dtype=torch.float64, device=self._device))[0]
            centre = path.mean_x + shift_x
            offset = path.mean_y + shift_y - centre @ own
            if self._basis is not None:
                own = self._basis @ own
                offset = offset - self._centre @ own
            if coef is None:
                coef = own.new_zeros(len(own), self._outputs)
            coef[:, columns], intercept[columns] = own, offset
        assert coef is not None
        return coef, intercept


def _same_rows(y: Tensor) -> list[list[int]]:
    """The columns that are known for the same rows, together."""
    groups: dict[bytes, list[int]] = {}
    for i, known in enumerate((~y.isnan()).T.cpu().numpy()):
        groups.setdefault(known.tobytes(), []).append(i)
    return list(groups.values())
