"""Logistic regression for many penalties and folds together, to the optimum that scikit-learn finds, on any device.

The folds share the features, so that one matrix product serves them all. They are minimised by L-BFGS in coordinates
in which the Hessian is close to the identity: features are rotated to their principal axes, and each axis is scaled by
the Hessian's diagonal. Logits are linear in the step, so a line search needs no further matrix product. From one
penalty to the next, the start is extrapolated.

Legend: n rows, r features, b problems, k classes. Weights (r + 1, b, k): the last row is the intercept.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unweave.data.resources import available_memory

MEMORY = 10
"""Pairs of steps and changes of the gradient that L-BFGS keeps."""
TRIALS = 12
"""Of a line search; most end with the first."""
ROWS = 8192
"""Rows that are squared at a time, since features may be larger than memory."""
ABSENT = -1e4
"""The intercept of a class without rows, whose optimum is −∞."""


@dataclass(frozen=True)
class Problems:
    """What distinguishes problems on the same features.

    With k = 1, ``labels`` (n, b) are 0 or 1 and the model is a sigmoid; otherwise they are classes (n,).
    """

    labels: Tensor
    rows: Tensor
    """(n, b), 1 where a row is used, otherwise 0."""
    penalty: Tensor
    """(b,), λ of Σ loss + λ/2 ‖w‖²."""
    classes: int

    def take(self, index: Tensor) -> "Problems":
        """Some of the problems."""
        labels = self.labels[:, index] if self.classes == 1 else self.labels
        return Problems(labels, self.rows[:, index], self.penalty[index], self.classes)

    def probabilities(self, logits: Tensor) -> Tensor:
        """(n, b, k)"""
        return logits.sigmoid() if self.classes == 1 else logits.softmax(2)

    def residual(self, logits: Tensor) -> Tensor:
        """The gradient of the loss with respect to the logits, (n, b, k)."""
        p = self.probabilities(logits)
        if self.classes == 1:
            p -= self.labels[:, :, None]
        else:
            index = self.labels[:, None, None].expand(-1, p.shape[1], 1)
            p.scatter_add_(2, index, p.new_full((), -1.0).expand(index.shape))
        return p.mul_(self.rows[:, :, None])

    def start(self, features: int) -> Tensor:
        """Weights of zero, (r + 1, b, k); classes without rows are excluded."""
        weights = self.rows.new_zeros(features + 1, self.rows.shape[1], self.classes)
        return self.exclude_absent(weights)

    def exclude_absent(self, weights: Tensor) -> Tensor:
        """Sets the intercept of classes without rows, and their weights to zero."""
        if self.classes > 1:
            member = torch.zeros(self.classes, self.rows.shape[1], dtype=self.rows.dtype, device=self.rows.device)
            absent = member.index_add_(0, self.labels, self.rows).T == 0  # (b, k)
            weights[:-1].masked_fill_(absent, 0.0)
            weights[-1] = torch.where(absent, ABSENT, torch.where(weights[-1] <= ABSENT / 2, 0.0, weights[-1]))
        return weights


def forward(x: Tensor, weights: Tensor) -> Tensor:
    """Logits (n, b, k)."""
    return torch.addmm(weights[-1].flatten(), x, weights[:-1].flatten(1)).unflatten(1, weights.shape[1:])


@torch.no_grad()
def minimise(
    x: Tensor, variance: Tensor, problems: Problems, start: Tensor, *, tolerance: float, iterations: int
) -> Tensor:
    """The weights (r + 1, b, k) that minimise the penalised loss of each problem.

    Args:
        x: features (n, r), centred and uncorrelated.
        variance: theirs, (r,).
        problems: labels, rows and penalties.
        start: weights to start from.
        tolerance: of the distance of the mean penalised loss from its minimum, as L-BFGS estimates it.
        iterations: at most.
    """
    found = start.clone()
    number = torch.arange(start.shape[1], device=x.device)
    state = _State(x, variance, problems, start.clone())
    for _ in range(iterations):
        direction, slope = state.direction()
        active = -slope / 2 > tolerance
        left = int(active.sum())
        if left <= 0.7 * len(active):
            found[:, number] = state.weights
            if not left:
                return found
            kept = active.nonzero()[:, 0]
            number, direction, slope, active = number[kept], direction[:, kept], slope[kept], active[kept]
            state.take(kept)
        state.step(direction, slope, active)
    found[:, number] = state.weights
    return found


class _State:
    """L-BFGS of several problems, each with its own line search, in scaled coordinates u = root · w."""

    def __init__(self, x: Tensor, variance: Tensor, problems: Problems, weights: Tensor) -> None:
        self.x, self.problems, self.weights = x, problems, weights
        self.count = problems.rows.sum(0)
        self.ridge = problems.penalty / self.count
        self.logits = forward(x, weights)
        p = problems.probabilities(self.logits)
        p = (p - p.square()).mul_(problems.rows[:, :, None])
        # The diagonal of the Hessian; where a class is certain, its curvature is bounded from below.
        diagonal = torch.zeros_like(weights[:-1])
        for rows, part in zip(x.split(ROWS), p.flatten(1).split(ROWS), strict=True):
            diagonal += torch.mm(rows.square().T, part).unflatten(1, p.shape[1:])
        diagonal /= self.count[:, None]
        least = 1e-3 * variance[:, None, None].to(x.dtype)
        scale = diagonal.clamp_(min=least) + self.ridge[:, None]
        curvature = (p.sum(0, keepdim=True) / self.count[:, None]).clamp(min=1e-3)
        self.root = torch.cat([scale, curvature]).clamp(min=1e-30).sqrt()
        self.gradient = self._gradient(problems.residual(self.logits))
        self.steps: list[tuple[Tensor, Tensor, Tensor]] = []

    def take(self, index: Tensor) -> None:
        """Keeps some of the problems."""
        self.problems, self.count, self.ridge = self.problems.take(index), self.count[index], self.ridge[index]
        for name in ("weights", "logits", "root", "gradient"):
            setattr(self, name, getattr(self, name)[:, index])
        self.steps = [(s[:, index], y[:, index], inverse[index]) for s, y, inverse in self.steps]

    def _gradient(self, residual: Tensor) -> Tensor:
        """Of the mean penalised loss, (r + 1, b, k), with respect to u."""
        flat = residual.flatten(1)
        gradient = torch.empty_like(self.weights)
        torch.mm(self.x.T, flat, out=gradient[:-1].view(-1, flat.shape[1]))
        gradient[-1] = residual.sum(0)
        gradient /= self.count[:, None]
        gradient[:-1].addcmul_(self.weights[:-1], self.ridge[:, None].expand(self.weights.shape[1:]))
        return gradient.div_(self.root)

    def direction(self) -> tuple[Tensor, Tensor]:
        """The direction of descent in u, and the slope along it for each problem."""
        q = self.gradient.clone()
        factors = []
        for s, y, inverse in reversed(self.steps):
            factor = inverse * _dot(s, q)
            q.sub_(factor[:, None] * y)
            factors.append(factor)
        if self.steps:
            s, y, inverse = self.steps[-1]
            gamma = torch.where(inverse > 0, 1 / (inverse * _dot(y, y)).clamp(min=1e-30), 1.0)
            q.mul_(gamma[:, None])
        for (s, y, inverse), factor in zip(self.steps, reversed(factors), strict=True):
            q.add_((factor - inverse * _dot(y, q))[:, None] * s)
        slope = -_dot(self.gradient, q)
        if (uphill := ~(slope < 0) & (_dot(self.gradient, self.gradient) > 0)).any():  # rounding
            q = torch.where(uphill[:, None], self.gradient, q)
            slope = -_dot(self.gradient, q)
        return q.neg_(), slope

    def step(self, direction: Tensor, slope: Tensor, active: Tensor) -> None:
        """Moves along the direction, as far as the slope becomes small, and remembers the step.

        Only ``active`` problems have a line search; where others are at their minimum, rounding decides the slope.
        """
        move = direction / self.root
        along = forward(self.x, move)
        size, residual = self._search(move, along, slope, active)
        self.weights = self.weights + size[:, None] * move
        self.logits.add_(along.mul_(size[:, None]))
        gradient = self._gradient(residual)
        s, y = direction.mul_(size[:, None]), gradient - self.gradient
        curvature = _dot(s, y)
        safe = curvature > 1e-10 * _dot(s, s).sqrt() * _dot(y, y).sqrt()
        inverse = torch.where(safe, 1 / curvature.clamp(min=1e-38), 0.0)
        self.steps = [*self.steps[1 - MEMORY :], (s, y, inverse)]
        self.gradient = gradient

    def _search(self, move: Tensor, along: Tensor, slope: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
        """The size of each problem's step, and the residual there.

        The loss is convex, so that the slope alone decides: a step is accepted where the slope has fallen, and has not
        become steep uphill.
        """
        bilinear = _dot(self.weights[:-1], move[:-1]) * self.ridge
        square = _dot(move[:-1], move[:-1]) * self.ridge
        size = torch.ones_like(slope)
        low, high = torch.zeros_like(slope), torch.full_like(slope, torch.inf)
        for trial in range(TRIALS):
            residual = self.problems.residual(torch.addcmul(self.logits, along, size[:, None]))
            there = (residual * along).sum((0, 2)) / self.count + bilinear + size * square
            over, under = active & (there > -0.5 * slope), active & (there < 0.9 * slope)
            if trial == TRIALS - 1 or not (over | under).any():
                break
            high, low = torch.where(over, size, high), torch.where(under, size, low)
            ideal = size * slope / (slope - there).clamp(max=-1e-30)
            ideal = torch.where(under & ((slope - there) >= 0), torch.inf, ideal)
            margin = 0.1 * (high - low).clamp(max=1e30)
            bounded = torch.where(high.isfinite(), high - margin, 10 * size)
            ideal = torch.minimum(torch.maximum(ideal, low + torch.where(high.isfinite(), margin, size)), bounded)
            size = torch.where(over | under, ideal, size)
        return size, residual


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of each problem, (b,)."""
    return (a * b).sum((0, 2))


def search(
    x: Tensor,
    variance: Tensor,
    labels: Tensor,
    classes: int,
    penalties: Sequence[float],
    folds: Tensor,
    *,
    tolerance: float,
    iterations: int,
) -> Iterator[tuple[Tensor, Tensor]]:
    """For each penalty, the logits of every row by the model that was fitted without its fold, and a start for a refit.

    Args:
        x: features (n, r), centred and uncorrelated.
        variance: theirs, (r,).
        labels: classes (n,); or (n, c) of 1, 0, or NaN where a row is left out, each column a problem of its own.
        classes: k; 1 where ``labels`` has columns.
        penalties: in decreasing order, since each is the start for the next.
        folds: (n,), the fold of each row.
        tolerance: as for ``minimise``.
        iterations: at most, for each penalty.

    Yields:
        logits (n, k) or (n, c), and the mean of the folds' weights, (r + 1, k) or (r + 1, c).
    """
    count = int(folds.max()) + 1
    kept = (folds[:, None] != torch.arange(count, device=x.device)).to(x.dtype)  # (n, f)
    columns = labels.shape[1] if classes == 1 else 1
    width = count * columns  # the problems of one penalty
    if classes == 1:
        rows = (kept[:, :, None] * (~labels.isnan()).to(x.dtype)[:, None]).flatten(1)
        labels = labels.nan_to_num(0.0).to(x.dtype)[:, None].expand(-1, count, -1).flatten(1)
    else:
        rows = kept
    problems = Problems(labels, rows, x.new_zeros(width), classes)
    last = before = problems.start(x.shape[1])
    together = torch.arange(width, device=x.device).split(_problems_together(x, classes))
    for penalty in penalties:
        start = 2 * last - before  # solutions are smooth in the logarithm of the penalty
        problems = replace(problems, penalty=x.new_full((width,), penalty))
        parts = [
            minimise(x, variance, problems.take(some), start[:, some], tolerance=tolerance, iterations=iterations)
            for some in together
        ]
        before, last = last, torch.cat(parts, 1)
        own = last.unflatten(1, (count, columns))  # (r + 1, f, c, k)
        held = x.new_empty(len(x), own.shape[2] * own.shape[3])
        for fold in range(count):
            out = folds == fold
            held[out] = forward(x[out], own[:, fold].contiguous()).flatten(1)
        yield held, own.mean(1).flatten(1)


def _problems_together(x: Tensor, classes: int) -> int:
    """Problems whose logits and steps fit in memory together."""
    each = x.dtype.itemsize * classes * (6 * len(x) + (2 * MEMORY + 8) * (x.shape[1] + 1))
    free: Any = torch.cuda.mem_get_info(x.device)[0] if x.device.type == "cuda" else available_memory()
    return max(1, int(free // 2 // each))
