"""A training step that is the same every time, launched as one where there is a GPU."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

WARM_UP = 3
"""Steps before a CUDA graph can be recorded: what is allocated or compiled at first use must exist by then."""


def repeated(step: Callable[[], None], generator: torch.Generator) -> Callable[[], None]:
    """``step`` itself on a CPU; on a GPU, a CUDA graph of it, so that hundreds of small kernels cost one launch.

    The step may use ``generator`` for random numbers and must leave its results in tensors that exist before it,
    never look at a value, and never move data from the CPU. On a GPU this call takes ``WARM_UP`` steps.
    """
    if generator.device.type != "cuda":
        return step
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        step()
    return graph.replay


class CosineAdam:
    """Adam whose learning rate falls along a half cosine to 0, fit for a CUDA graph."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, steps: int, device: torch.device | str) -> None:
        on_gpu = torch.device(device).type == "cuda"
        self._peak, self._steps, self._taken = lr, steps, 0
        self._rate = torch.tensor(lr, device=device)
        self._adam = torch.optim.Adam(parameters, lr=self._rate, capturable=on_gpu, foreach=on_gpu)

    def minimise(self, loss: Tensor) -> None:
        """One step; belongs inside the graph."""
        self._adam.zero_grad()
        loss.backward()
        self._adam.step()

    def advance(self) -> None:
        """Lowers the learning rate; belongs outside."""
        self._taken += 1
        self._rate.fill_(self._peak * (1 + math.cos(math.pi * self._taken / self._steps)) / 2)
