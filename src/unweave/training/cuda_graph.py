"""CUDA graphs of training steps.

A step of a small network consists of a thousand small kernels. Launched one by one, they leave a fast GPU idle. They
are the same at every step, so they are captured once as a CUDA graph and replayed.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from unweave.errors import UnweaveError
from unweave.objectives import LossTerms

WARM_UP = 3
"""Calls before a capture: what is allocated or compiled at first use must exist by then."""


class CapturedStep:
    """A step without arguments, captured on a GPU after ``WARM_UP`` calls; on a CPU the step itself.

    The step may draw from ``generator``. It must leave its results in tensors that exist before it, never read a value,
    and never copy data from the host.

    Examples:
        >>> total = torch.zeros(())
        >>> step = CapturedStep(lambda: total.add_(1), torch.Generator())
        >>> for _ in range(5):
        ...     step()
        >>> total
        tensor(5.)
    """

    def __init__(self, step: Callable[[], Any], generator: torch.Generator) -> None:
        self._step, self._generator = step, generator
        on_gpu = generator.device.type == "cuda"
        self._stream: Any = torch.cuda.Stream(generator.device) if on_gpu else None
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Runs the step."""
        if self._stream is None:
            self._step()
            return
        self._calls += 1
        if self._calls <= WARM_UP:
            self._run_on_stream()
            return
        if self._graph is None:
            self._graph = capture(self._step, self._generator, self._stream)
        self._graph.replay()

    def _run_on_stream(self) -> None:
        """On the stream of the capture: what belongs to a stream must not belong to the default one."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._step()
        torch.cuda.current_stream().wait_stream(self._stream)


def capture(step: Callable[[], Any], generator: torch.Generator, stream: Any) -> torch.cuda.CUDAGraph:
    """The CUDA graph of a step that draws from ``generator``; the step is recorded, not run."""
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    # Only this thread is watched during the capture: the one that prefetches batches continues to copy them.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        step()
    return graph


class CapturedGradients:
    """``gradients(batch)`` on a GPU, captured after ``WARM_UP`` calls.

    Args:
        gradients: computes the terms of a batch and adds their gradient to the parameters'. It must never read a value
            on the GPU nor copy anything to it, and draw from ``generator`` alone.
        parameters: those whose gradients are computed.
        generator: seeded by the caller before each call.
        stage: a value that changes when ``gradients`` begins to compute something else; it is then captured again.
    """

    def __init__(
        self,
        gradients: Callable[[Tensor], LossTerms],
        parameters: Iterable[nn.Parameter],
        generator: torch.Generator,
        stage: Callable[[], Hashable] = lambda: None,
    ) -> None:
        self._gradients, self._generator, self._current_stage = gradients, generator, stage
        self._parameters = [p for p in parameters if p.requires_grad]
        self._stage: Hashable = object()
        self._capture: _Capture | None = None
        self._calls = 0
        self._stream: Any = torch.cuda.Stream(generator.device)

    def __call__(self, batch: Tensor) -> LossTerms:
        """The terms of this batch. They and the gradients are valid until the next call."""
        if self._current_stage() != self._stage:
            self._calls, self._capture, self._stage = 0, None, self._current_stage()
        self._calls += 1
        if self._calls <= WARM_UP:
            return self.uncaptured(batch)
        if self._capture is None:
            self._capture = self._make_capture(batch)
        captured = self._capture
        captured.batch.copy_(batch)
        captured.graph.replay()
        for parameter, gradient in zip(self._parameters, captured.gradients, strict=True):
            parameter.grad = gradient
        return captured.terms

    def uncaptured(self, batch: Tensor) -> LossTerms:
        """The same without a graph, on the stream of the capture."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            terms = self._gradients(batch)
        torch.cuda.current_stream().wait_stream(self._stream)
        return terms

    def _make_capture(self, batch: Tensor) -> "_Capture":
        seed, batch = self._generator.initial_seed(), batch.clone()
        for parameter in self._parameters:
            parameter.grad = None  # the captured pass then writes gradients instead of adding to them
        made: list[LossTerms] = []
        try:
            graph = capture(lambda: made.append(self._gradients(batch)), self._generator, self._stream)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise UnweaveError(f"this step cannot be captured as a CUDA graph ({reason}); disable `graph`") from error
        self._generator.manual_seed(seed)
        gradients = [parameter.grad for parameter in self._parameters]
        return _Capture(graph, batch, replace(made[0], loss=made[0].loss.detach()), gradients)


@dataclass(frozen=True)
class _Capture:
    """A graph, the tensor it reads and the tensors it writes."""

    graph: torch.cuda.CUDAGraph
    batch: Tensor
    terms: LossTerms
    gradients: list[Tensor | None]
