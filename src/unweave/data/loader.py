"""From a source to batches on the device: decoded once and kept, or streamed from worker processes.

    order of images ─► chunks ─► workers decode, into shared memory ─► a batch in pinned memory ─► device

Batches are made ahead of the steps that need them.

An image that cannot be read is listed, and the next readable one of the source stands in its place: the number of
images, and so which of them a step sees, is the same on every process, with any cache, and after a restart.
"""

import math
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from unweave.data.images import UnreadableImageError, decode
from unweave.data.memory import available_memory, default_workers, free_shared_memory
from unweave.data.prefetch import empty_for, prefetch
from unweave.data.skipped import Skipped
from unweave.data.source import Source
from unweave.errors import UnweaveError

Cache = Literal["auto", "gpu", "ram", "none"]
CHUNK = 32
"""Images a worker decodes at a time, at least: several workers share one batch."""
CHUNK_BYTES = 2**21
"""Of small images it takes as many as make this: to hand a chunk over costs the same whatever its size."""
NEIGHBOURS = 100
"""How many images in a row may be unreadable before the whole source is taken to be."""

AHEAD = 4
"""Chunks each worker decodes before they are asked for."""

Bad = list[tuple[int, str]]


@dataclass(frozen=True)
class Decoded:
    """What a worker gives back: how many images are in which slot, or the images themselves; those it could not read;
    whether none was left to stand in for one of them.
    """

    slot: int
    count: int
    images: np.ndarray | None
    bad: Bad
    lost: bool


def load_images(
    source: Source,
    size: int,
    *,
    cache: Cache = "auto",
    workers: int | None = None,
    device: torch.device | str = "cpu",
    skipped: Skipped | None = None,
    watch: Callable[[int], None] | None = None,
) -> "CachedImages | StreamedImages":
    """Images of ``size`` pixels a side, ready to train on.

    Args:
        source: what ``open_source`` gives.
        size: pixels a side: each image's central square is resized to it.
        cache: where decoded images are kept: the GPU's memory, the machine's, nowhere, or wherever they fit.
        workers: processes that decode; by default as many as there are cores.
        device: where batches are wanted.
        skipped: collects what cannot be read; by default nothing may be unreadable.
        watch: is told how many images are decoded, while they are.
    """
    device = torch.device(device)
    workers = default_workers() if workers is None else workers
    skipped = Skipped(len(source), 0.0) if skipped is None else skipped
    streamed = StreamedImages(source, size, workers, skipped)
    kept_on = _place(cache, len(source) * 3 * size**2, device)
    if kept_on is None:
        return streamed
    store = torch.empty(len(source), 3, size, size, dtype=torch.uint8, device=kept_on)
    start = 0
    for chunk in streamed.chunks(torch.arange(len(source)).split(streamed.chunk)):
        store[start : start + len(chunk)].copy_(chunk, non_blocking=True)
        start += len(chunk)
        if watch:
            watch(start)
    return CachedImages(store)


class CachedImages:
    """All images, decoded, in one uint8 tensor (n, 3, size, size) on the GPU or in memory."""

    def __init__(self, images: Tensor) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Tensor) -> Tensor:
        return self.images[index.to(self.images.device)].to(index.device)

    def batches(self, order: Iterable[Tensor], device: torch.device) -> Iterator[Tensor]:
        """The images of each index in turn, on ``device``."""
        here, rows = self.images.device, self.images.shape[1:]
        if here == device or here.type != "cpu":
            return (self.images[index.to(here, non_blocking=True)].to(device) for index in order)
        gathered = (
            torch.index_select(self.images, 0, index, out=empty_for(device, len(index), *rows)) for index in order
        )
        return prefetch(gathered, device)


class StreamedImages:
    """Images decoded anew whenever they are asked for, by worker processes that work ahead."""

    def __init__(self, source: Source, size: int, workers: int, skipped: Skipped) -> None:
        self.source, self.size, self.workers, self.skipped = source, size, workers, skipped
        self.chunk = max(CHUNK, CHUNK_BYTES // (3 * size**2))

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: Tensor) -> Tensor:
        slots = torch.empty(1, len(index), 3, self.size, self.size, dtype=torch.uint8)
        self._check(Decoding(self.source, slots)[0, index.tolist()])
        return slots[0].to(index.device)

    def batches(self, order: Iterable[Tensor], device: torch.device) -> Iterator[Tensor]:
        """The images of each index in turn, on ``device``."""
        lengths: list[int] = []  # of the batches whose chunks are on their way

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
        """The images of each index in turn; each is overwritten when the next is asked for.

        Workers write into slots used in turn: with new memory for every chunk two of them gave a fifth less.
        """
        slots = self._slots()
        loader = DataLoader(
            Decoding(self.source, slots),
            sampler=_Once(order, len(slots)),
            batch_size=None,
            num_workers=self.workers,
            prefetch_factor=AHEAD if self.workers else None,
            worker_init_fn=_behind_the_parent,
        )
        # The workers are forked here, by the calling thread, and not by one that only waits for batches.
        return self._taken(iter(loader), slots)

    def _slots(self) -> Tensor:
        """Shared memory for as many chunks as the workers are ahead, and one that is being read."""
        shape = (self.workers * AHEAD + 1, self.chunk, 3, self.size, self.size)
        if not self.workers:
            return torch.empty(shape, dtype=torch.uint8)
        if math.prod(shape) > 0.8 * free_shared_memory():
            return torch.empty(shape, dtype=torch.uint8, device="meta")
        return torch.empty(shape, dtype=torch.uint8).share_memory_()

    def _taken(self, decoded: Iterator[Decoded], slots: Tensor) -> Iterator[Tensor]:
        try:
            for item in decoded:
                self._check(item)
                yield slots[item.slot, : item.count] if item.images is None else torch.from_numpy(item.images)
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            reason = " ".join(str(error).split())
            raise UnweaveError(
                f"a process that decodes images died ({reason[:120]}); it may want memory: take fewer --workers, or "
                "--workers 0, or a larger /dev/shm"
            ) from None
        finally:
            del decoded  # the last reference: its workers end here, not whenever an error's traceback is forgotten

    def _check(self, decoded: Decoded) -> None:
        """Lists what could not be read; if nothing stood in for it, or it is too much, the run ends here."""
        if decoded.bad:
            self.source.check()
        for i, reason in decoded.bad:
            self.skipped.add(self.source.name(i), reason)
        if decoded.lost:
            i, reason = decoded.bad[-1]
            raise UnweaveError(
                f"{NEIGHBOURS} images in a row cannot be read; the last is {self.source.name(i)}: {reason}"
            )


class Decoding(Dataset[Decoded]):
    """What a worker does: a slot and numbers in; the images of those numbers into the slot.

    Where there is no memory to share (containers often have little), ``slots`` has a shape and no content, and images
    travel through a pipe: slower.
    """

    def __init__(self, source: Source, slots: Tensor) -> None:
        self.source, self.slots = source, slots

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, asked: tuple[int, Sequence[int]]) -> Decoded:
        slot, index = asked
        apart, size = self.slots.is_meta, self.slots.shape[-1]
        images = torch.empty(len(index), *self.slots.shape[2:], dtype=torch.uint8) if apart else self.slots[slot]
        bad: Bad = []
        for row, first in enumerate(index):
            for ahead in range(min(NEIGHBOURS, len(self))):
                i = (int(first) + ahead) % len(self)
                try:
                    images[row] = decode_one(self.source, i, size)
                    break
                except UnreadableImageError as error:
                    bad.append((i, str(error)))
            else:
                return Decoded(slot, row, None, bad, lost=True)
        return Decoded(slot, len(index), images.numpy() if apart else None, bad, lost=False)


def decode_one(source: Source, i: int, size: int) -> Tensor:
    """Image i of a source (3, size, size)."""
    try:
        encoded = source.read(i)
    except UnreadableImageError:
        raise
    except Exception as error:  # a foreign data set's own troubles with one image
        raise UnreadableImageError(" ".join(str(error).split()) or type(error).__name__) from None
    return torch.from_numpy(decode(encoded, size)).permute(2, 0, 1)


class _Once:
    """Lets a DataLoader draw indices from an iterator, as it needs them, each with the next of so many slots."""

    def __init__(self, order: Iterable[Tensor], slots: int) -> None:
        self._order, self._slots = order, slots

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        return ((number % self._slots, index.tolist()) for number, index in enumerate(self._order))


def _behind_the_parent(worker: int) -> None:
    """Where there are fewer cores than processes, the one that feeds the GPU goes first. And signals are left to it:

    Slurm and Ctrl-C signal every process; the run decides, and must still get the batch it waits for. A worker told to
    end does so half a minute later at most, when its parent had time to finish its step.
    """
    if hasattr(os, "nice"):
        os.nice(5)
    signal.signal(signal.SIGTERM, lambda *_: signal.alarm(30))
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _place(cache: Cache, needed: int, device: torch.device) -> torch.device | None:
    """Where decoded images are to be kept; None where they are not."""
    memory = available_memory()
    gpu: Any = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
    if cache == "gpu" and not gpu:
        raise UnweaveError(f"--cache gpu: there is no GPU here, the device is {device}; take ram, none or auto")
    for kind, free in (("gpu", gpu), ("ram", memory)):
        if cache == kind and needed > 0.9 * free:
            raise UnweaveError(
                f"--cache {kind}: the decoded images take {needed / 2**30:.1f} GB, {free / 2**30:.1f} GB are free"
            )
    if cache == "gpu" or (cache == "auto" and needed < 0.4 * gpu):
        return device
    if cache == "ram" or (cache == "auto" and needed < 0.4 * memory):
        return torch.device("cpu")
    return None
