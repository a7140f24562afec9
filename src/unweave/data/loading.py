"""Loading images from a source: decoded once and kept, or streamed from worker processes.

    order of images ─► chunks ─► workers decode into shared memory ─► a batch in pinned memory ─► device

Batches are prefetched. An image that cannot be read is listed and replaced by the next readable one, so that the number
of images, and the images of each step, are the same on every process, with any cache, and after a restart.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from unweave.data.batches import TensorImages
from unweave.data.config import MAX_PIXELS, Cache
from unweave.data.decode import Decoder
from unweave.data.identity import identify_source
from unweave.data.prefetch import empty_for, prefetch
from unweave.data.resources import available_memory, default_workers, free_shared_memory
from unweave.data.sources.base import Encoded, Source
from unweave.data.unreadable import UnreadableImageError, UnreadableImages
from unweave.errors import UnweaveError, printable

CHUNK = 32
"""Least number of images a worker decodes at a time: several workers share one batch."""
CHUNK_BYTES = 2**21
"""Chunks of small images are enlarged to this size, since the cost of passing a chunk does not depend on it."""
NEIGHBOURS = 100
"""Consecutive unreadable images after which loading stops."""
AHEAD = 4
"""Chunks that each worker decodes in advance."""
PARENT_CHECK = 0.5
"""Seconds between two checks of a worker whether its parent still runs."""

Bad = list[tuple[int, str]]


@dataclass(frozen=True)
class Decoded:
    """A worker's result."""

    slot: int
    count: int
    """Images written to the slot."""
    images: np.ndarray | None
    """The images themselves, where there is no shared memory."""
    bad: Bad
    """Images that could not be read."""
    lost: bool
    """Whether no readable image was found to replace one of them."""


def load_images(
    source: Source,
    size: int,
    *,
    channels: int = 3,
    reduced: bool = False,
    max_pixels: int = MAX_PIXELS,
    cache: Cache = "auto",
    workers: int | None = None,
    device: torch.device | str = "cpu",
    unreadable: UnreadableImages | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> "TensorImages | StreamedImages":
    """Images of ``size`` × ``size`` pixels for training.

    Args:
        source: the encoded images, from ``open_source``.
        size: each image's central square is resized to this side.
        channels: 1 for gray, 3 for RGB, 4 for RGBA; other numbers are read from numpy arrays.
        reduced: decode JPEG files at a fraction of their size where that suffices: faster, slightly different pixels.
        max_pixels: larger images are unreadable.
        cache: where decoded images are kept: in the GPU's memory, in the machine's, nowhere, or wherever they fit.
        workers: processes that decode; by default one for each core.
        device: the device of the batches.
        unreadable: collects images that cannot be read; by default none may be unreadable.
        on_progress: called with the number of images decoded so far.

    Examples:
        >>> import tempfile, unweave.data
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Image.new("RGB", (20, 16), "red").save(f"{folder}/a.png")
        ...     images = load_images(unweave.data.open_source(folder), 8, workers=0)
        >>> len(images), images.images.shape
        (1, torch.Size([1, 3, 8, 8]))
    """
    device = torch.device(device)
    workers = default_workers() if workers is None else workers
    unreadable = UnreadableImages(len(source), 0.0) if unreadable is None else unreadable
    decoder = Decoder(size=size, channels=channels, reduced=reduced, max_pixels=max_pixels)
    streamed = StreamedImages(source, decoder, workers, unreadable)
    kept_on = _place(cache, len(source) * channels * size**2, device)
    if kept_on is None:
        return streamed
    store = torch.empty(len(source), channels, size, size, dtype=torch.uint8, device=kept_on)
    start = 0
    with unreadable.deferred():
        for chunk in streamed.chunks(torch.arange(len(source)).split(streamed.chunk)):
            store[start : start + len(chunk)].copy_(chunk, non_blocking=True)
            start += len(chunk)
            if on_progress:
                on_progress(start)
    return TensorImages(store, streamed.identity)


class StreamedImages:
    """Images decoded each time they are used, by worker processes that prefetch.

    An image that cannot be read is replaced by the next readable one, without ``substitute`` by zeros.
    """

    def __init__(
        self, source: Source, decoder: Decoder, workers: int, unreadable: UnreadableImages, *, substitute: bool = True
    ) -> None:
        self.source, self.decoder, self.workers, self.unreadable = source, decoder, workers, unreadable
        self.substitute = substitute
        self.shape = (decoder.channels, decoder.size, decoder.size)
        self.chunk = max(CHUNK, CHUNK_BYTES // math.prod(self.shape))

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def identity(self) -> str:
        """By which a resumed run recognises the images."""
        return identify_source(self.source)

    def __getitem__(self, index: Tensor) -> Tensor:
        slots = torch.empty(1, len(index), *self.shape, dtype=torch.uint8)
        self._check(Decoding(self.source, self.decoder, slots, substitute=self.substitute)[0, index.tolist()])
        return slots[0].to(index.device)

    def batches(self, order: Iterable[Tensor], device: torch.device) -> Iterator[Tensor]:
        """The images of each index in turn, on ``device``."""
        lengths: list[int] = []  # of the batches whose chunks were requested

        def chunked() -> Iterator[Tensor]:
            for index in order:
                lengths.append(len(index))
                yield from index.split(self.chunk)

        chunks = self.chunks(chunked())

        def joined() -> Iterator[Tensor]:
            for first in chunks:
                batch, filled = empty_for(device, lengths.pop(0), *first.shape[1:]), 0
                for chunk in chain([first], islice(chunks, -(-len(batch) // self.chunk) - 1)):
                    batch[filled : filled + len(chunk)] = chunk
                    filled += len(chunk)
                yield batch

        return prefetch(joined(), device)

    def chunks(self, order: Iterable[Tensor]) -> Iterator[Tensor]:
        """The images of each index in turn; each chunk is overwritten when the next one is requested.

        Workers write into slots of shared memory that are used in turn: allocating memory for every chunk is slower.
        """
        slots = self._slots()
        loader = DataLoader(
            Decoding(self.source, self.decoder, slots, substitute=self.substitute),
            sampler=_Once(order, len(slots)),
            batch_size=None,
            num_workers=self.workers,
            prefetch_factor=AHEAD if self.workers else None,
            worker_init_fn=start_worker,
            generator=torch.Generator(),  # without one, the loader would draw from the global generator
        )
        # The workers are forked here, by the calling thread, and not by the prefetching one.
        return self._taken(iter(loader), slots)

    def _slots(self) -> Tensor:
        """Shared memory for the chunks decoded in advance, and one that is being read."""
        shape = (self.workers * AHEAD + 1, self.chunk, *self.shape)
        if not self.workers:
            return torch.empty(shape, dtype=torch.uint8)
        if math.prod(shape) > 0.8 * free_shared_memory():
            return torch.empty(shape, dtype=torch.uint8, device="meta")
        return torch.empty(shape, dtype=torch.uint8).share_memory_()

    def _taken(self, decoded: Iterator[Decoded], slots: Tensor) -> Iterator[Tensor]:
        try:
            with watched_workers():
                for item in decoded:
                    self._check(item)
                    yield slots[item.slot, : item.count] if item.images is None else torch.from_numpy(item.images)
        finally:
            del decoded  # the last reference: the workers end here, even if an error's traceback is kept

    def _check(self, decoded: Decoded) -> None:
        """Lists unreadable images; raises where they are too many or could not be replaced."""
        if decoded.bad:
            self.source.check()
        for i, reason in decoded.bad:
            self.unreadable.add(i, self.source.name(i), reason)
        if decoded.lost:
            i, reason = decoded.bad[-1]
            count, name = min(NEIGHBOURS, len(self)), printable(self.source.name(i))
            raise UnweaveError(f"{count} consecutive images cannot be read; the last is {name}: {reason}")


class Decoding(Dataset[Decoded]):
    """What a worker does: decodes the images with the given numbers into a slot.

    Where there is too little shared memory, as in many containers, ``slots`` is on the meta device, and images are
    passed through a pipe, which is slower.
    """

    def __init__(self, source: Source, decoder: Decoder, slots: Tensor, *, substitute: bool = True) -> None:
        self.source, self.decoder, self.slots, self.substitute = source, decoder, slots, substitute

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, asked: tuple[int, Sequence[int]]) -> Decoded:
        slot, index = asked
        piped = self.slots.is_meta
        images = torch.empty(len(index), *self.slots.shape[2:], dtype=torch.uint8) if piped else self.slots[slot]
        bad: Bad = []
        candidates = min(NEIGHBOURS, len(self)) if self.substitute else 1
        for row, first in enumerate(index):
            for ahead in range(candidates):
                i = (int(first) + ahead) % len(self)
                try:
                    images[row] = decode_one(self.source, i, self.decoder)
                    break
                except UnreadableImageError as error:
                    bad.append((i, str(error)))
            else:
                if self.substitute:
                    return Decoded(slot, row, None, bad, lost=True)
                images[row] = 0
        return Decoded(slot, len(index), images.numpy() if piped else None, bad, lost=False)


def decode_one(source: Source, i: int, decoder: Decoder) -> Tensor:
    """Image i of a source, (c, size, size)."""
    return torch.from_numpy(decoder(read_one(source, i))).permute(2, 0, 1)


def read_one(source: Source, i: int) -> Encoded:
    """Image i of a source; every error of the source is one of this image."""
    try:
        return source.read(i)
    except UnreadableImageError:
        raise
    except Exception as error:  # a data set of another library may raise anything
        raise UnreadableImageError(" ".join(str(error).split()) or type(error).__name__) from None


@contextmanager
def watched_workers() -> Iterator[None]:
    """Turns the error of a worker process that ended unexpectedly into one line."""
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        reason = " ".join(str(error).split())
        raise UnweaveError(
            f"a worker process that decodes images ended unexpectedly ({reason[:120]}), perhaps for lack of memory; "
            "use fewer `workers`, or 0, or a larger /dev/shm"
        ) from None


class _Once:
    """A sampler that reads indices from an iterator and assigns each the next slot."""

    def __init__(self, order: Iterable[Tensor], slots: int) -> None:
        self._order, self._slots = order, slots

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        return ((number % self._slots, index.tolist()) for number, index in enumerate(self._order))


def start_worker(worker: int) -> None:
    """Lowers a worker's priority below its parent's, and leaves signals to the parent.

    Slurm and Ctrl-C signal every process. The parent finishes its step first and still needs the batch it waits for, so
    a worker ignores Ctrl-C and ends half a minute after SIGTERM at the latest; and at once where the parent was killed.
    """
    if hasattr(os, "nice"):
        os.nice(5)
    signal.signal(signal.SIGTERM, lambda *_: signal.alarm(30))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True, name="unweave-parent").start()


def _end_with_parent() -> None:
    """Ends this worker once its parent has ended, even if killed.

    A worker inherits the lock on the folder. It cannot end by itself: it first passes on the images that it has
    decoded, and the other workers keep open the pipe that nobody reads.
    """
    parent = os.getppid()  # under "forkserver" that server, which ends with the process that it serves
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK)
    os._exit(1)


def _place(cache: Cache, needed: int, device: torch.device) -> torch.device | None:
    """The device on which decoded images are kept; None if they are not kept."""
    memory = available_memory()
    gpu: Any = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
    if cache == "gpu" and not gpu:
        raise UnweaveError(f"`cache` gpu: there is no GPU, the device is {device}; use ram, none or auto")
    for kind, free in (("gpu", gpu), ("ram", memory)):
        if cache == kind and needed > 0.9 * free:
            raise UnweaveError(
                f"`cache` {kind}: the decoded images need {needed / 2**30:.1f} GB, {free / 2**30:.1f} GB are free"
            )
    if cache == "gpu" or (cache == "auto" and needed < 0.4 * gpu):
        return device
    if cache == "ram" or (cache == "auto" and needed < 0.4 * memory):
        return torch.device("cpu")
    return None
