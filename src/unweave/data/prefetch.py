"""Prefetching: the next batches are made and copied to the device while the current one is trained on."""

import queue
import threading
from collections.abc import Iterator

import torch
from torch import Tensor

AHEAD = 2
"""Batches kept ready on the device."""


def empty_for(device: torch.device, *shape: int) -> Tensor:
    """An uninitialised uint8 tensor on the host, in pinned memory if ``device`` is a GPU."""
    return torch.empty(shape, dtype=torch.uint8, pin_memory=device.type == "cuda")


def prefetch(batches: Iterator[Tensor], device: torch.device) -> Iterator[Tensor]:
    """The same batches on ``device``, taken from ``batches`` by a thread.

    Batches in pinned memory are copied to a GPU on a separate stream, in parallel with the computation. An error in the
    thread is raised in place of the batch.
    """
    ready: queue.Queue[tuple[Tensor | None, torch.cuda.Event | None] | BaseException] = queue.Queue(AHEAD)
    stop = threading.Event()
    thread = threading.Thread(target=_fill, args=(batches, device, ready, stop), daemon=True, name="unweave-prefetch")
    thread.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            batch, copied = item
            if batch is None:
                return
            if copied is not None:
                torch.cuda.current_stream(device).wait_event(copied)
                batch.record_stream(torch.cuda.current_stream(device))
            yield batch
    finally:
        stop.set()
        thread.join(timeout=10)


def _fill(batches: Iterator[Tensor], device: torch.device, ready: "queue.Queue[object]", stop: threading.Event) -> None:
    def put(item: object) -> None:
        while not stop.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    try:
        stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        for batch in batches:
            if stop.is_set():
                return
            copied = None
            if stream is not None:
                with torch.cuda.stream(stream):
                    batch = batch.to(device, non_blocking=True)
                    copied = stream.record_event()
            put((batch.to(device), copied))
        put((None, None))
    except BaseException as error:  # raised again by the consumer
        put(error)
    finally:
        close = getattr(batches, "close", None)
        if close:
            close()
