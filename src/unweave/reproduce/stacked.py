"""Many small networks of one shape, trained side by side: their weights are stacked and multiplied in batches.

Legend: r networks, n rows.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unweave.console import ProgressBar
from unweave.objectives import LambdaRule
from unweave.training import CapturedStep


class StackedMLP(nn.Module):
    """r independent multilayer perceptrons: (r, n, sizes[0]) to (r, n, sizes[-1]).

    Initialised as ``nn.Linear``. An optimiser that works element by element, as Adam does, trains them as it would
    train each alone.

    Examples:
        >>> StackedMLP(3, (2, 8, 4))(torch.zeros(3, 5, 2)).shape
        torch.Size([3, 5, 4])
    """

    def __init__(self, runs: int, sizes: Sequence[int], activation: Callable[[Tensor], Tensor] = F.leaky_relu) -> None:
        super().__init__()
        self.activation = activation
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for before, after in pairwise(sizes):
            bound = before**-0.5
            self.weights.append(nn.Parameter(torch.empty(runs, before, after).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(runs, 1, after).uniform_(-bound, bound)))

    def forward(self, x: Tensor) -> Tensor:
        """Network i applied to x[i]."""
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            if layer < last:
                x = self.activation(x)
        return x


class CosineAdam:
    """Adam whose learning rate falls along a half cosine to 0; it can be captured in a CUDA graph."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, steps: int, device: torch.device | str) -> None:
        on_gpu = torch.device(device).type == "cuda"
        self._peak, self._steps, self._taken = lr, steps, 0
        self._rate = torch.tensor(lr, device=device)
        self._adam = torch.optim.Adam(parameters, lr=self._rate, capturable=on_gpu, foreach=on_gpu)

    def minimise(self, loss: Tensor) -> None:
        """One step, inside the graph."""
        self._adam.zero_grad()
        loss.backward()
        self._adam.step()

    def advance(self) -> None:
        """Lowers the learning rate, outside the graph."""
        self._taken += 1
        self._rate.fill_(self._peak * (1 + math.cos(math.pi * self._taken / self._steps)) / 2)


def train_stacked(
    measure: Callable[[], tuple[Tensor, Tensor]],
    networks: nn.Module,
    lambdas: Tensor,
    rule: LambdaRule,
    adapted: Tensor,
    *,
    steps: int,
    lr: float,
    generator: torch.Generator,
    description: str,
) -> None:
    """Trains a stack of networks by Adam and adapts their λ.

    Args:
        measure: gives the sum of the runs' losses and their invariance gaps, of the shape of ``lambdas``, for a new
            batch drawn from ``generator``.
        networks: the stack.
        lambdas: read by ``measure`` and changed in place.
        rule: how λ is adapted; its tolerance is one number.
        adapted: where λ is adapted, of the shape of ``lambdas``; elsewhere it is fixed.
        steps: optimiser steps.
        lr: the first learning rate.
        generator: of everything random.
        description: title of the progress bar.
    """
    assert isinstance(rule.tolerance, float)
    tolerances = torch.full_like(lambdas, rule.tolerance)
    gaps, total = torch.zeros_like(lambdas), torch.zeros((), device=lambdas.device)
    optimizer = CosineAdam(networks.parameters(), lr, steps, lambdas.device)

    def step() -> None:
        loss, measured = measure()
        optimizer.minimise(loss)
        gaps.copy_(measured.detach())
        total.copy_(loss.detach())

    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    captured, every = CapturedStep(step, generator), max(1, steps // 100)
    with ProgressBar(steps, 0, description, show=True) as bar:
        for taken in range(1, steps + 1):
            captured()
            optimizer.advance()
            if rule.changes_at(taken):
                lambdas.copy_(torch.where(adapted, rule.step(lambdas, gaps, tolerances), lambdas))
            if taken % every == 0:
                bar.show(float(total) / len(lambdas))
            bar.advance(taken)
    torch.set_float32_matmul_precision(precision)
