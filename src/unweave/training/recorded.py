"""A step's gradients as one launch.

A small network's step is a thousand small kernels, and a processor that launches them one by one keeps a fast GPU
waiting. They are the same at every step, so they are recorded as a CUDA graph, and replayed on the next batch.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from unweave.errors import UnweaveError
from unweave.objectives.disentangled import Terms
from unweave.training.repeated import WARM_UP


class Recorded:
    """``gradients(batch)`` on a GPU, recorded at its fourth call and replayed from then on.

    Args:
        gradients: gives the terms of a batch and adds their gradient to the parameters'. It must never look at a value
            on the GPU nor copy anything to it, and take its random numbers from ``generator``.
        parameters: those whose gradients it makes.
        generator: seeded by the caller before each call.
        phase: what changes when ``gradients`` does something else than before: it is then recorded anew.
    """

    def __init__(
        self,
        gradients: Callable[[Tensor], Terms],
        parameters: Iterable[nn.Parameter],
        generator: torch.Generator,
        phase: Callable[[], Any] = lambda: None,
    ) -> None:
        self._gradients, self._generator, self._phase_now = gradients, generator, phase
        self._parameters = [p for p in parameters if p.requires_grad]
        self._stream: Any = torch.cuda.Stream(generator.device)
        self._phase: Any = None
        self._calls = 0
        self._recording: _Recording | None = None

    def __call__(self, batch: Tensor) -> Terms:
        """The terms of this batch; they, and the gradients, hold until the next call."""
        if self._phase_now() != self._phase:
            self._calls, self._recording, self._phase = 0, None, self._phase_now()
        self._calls += 1
        if self._calls <= WARM_UP:
            return self._apart(batch)
        if self._recording is None:
            self._recording = self._record(batch)
        recording = self._recording
        recording.batch.copy_(batch)
        recording.graph.replay()
        for parameter, gradient in zip(self._parameters, recording.gradients, strict=True):
            parameter.grad = gradient
        return recording.terms

    def _apart(self, batch: Tensor) -> Terms:
        """On a stream of its own, as the recording is made: what belongs to a stream must not be the default one's."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            terms = self._gradients(batch)
        torch.cuda.current_stream().wait_stream(self._stream)
        return terms

    def _record(self, batch: Tensor) -> "_Recording":
        seed, batch = self._generator.initial_seed(), batch.clone()
        for parameter in self._parameters:
            parameter.grad = None  # so that the recorded pass writes gradients, and does not add to them
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        try:
            # Only this thread must keep still meanwhile: the one that fetches the next batches goes on copying them.
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                terms = self._gradients(batch)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise UnweaveError(f"this step cannot be recorded ({reason}); take --no-graph") from error
        self._generator.manual_seed(seed)
        made = [parameter.grad for parameter in self._parameters]
        return _Recording(graph, batch, replace(terms, loss=terms.loss.detach()), made)


@dataclass(frozen=True)
class _Recording:
    """What is replayed, where it reads, and where it writes."""

    graph: torch.cuda.CUDAGraph
    batch: Tensor
    terms: Terms
    gradients: list[Tensor | None]
