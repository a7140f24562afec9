"""Many small networks of one shape, trained side by side: their weights are stacked and multiply in batches.

Legend: r networks, n rows.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class StackedMLP(nn.Module):
    """r multilayer perceptrons that share nothing: (r, n, sizes[0]) to (r, n, sizes[-1]).

    Initialised as torch initialises ``nn.Linear``. An optimiser that works element by element, as Adam does, trains
    them as it would one by one.

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
        """Network i on x[i]."""
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            if layer < last:
                x = self.activation(x)
        return x
