"""Decoding images for an index: each is read once, for the model and for its thumbnail."""

import io
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from unweave.data.decode import Decoder
from unweave.data.loading import AHEAD, CHUNK, read_one, start_worker, watched_workers
from unweave.data.sources.base import Source
from unweave.data.unreadable import UnreadableImageError

THUMBNAIL = 128
"""Longest side of a thumbnail in pixels."""
QUALITY = 80


@dataclass(frozen=True)
class Chunk:
    """Consecutive images of a source, decoded by a worker."""

    numbers: list[int]
    """The images that can be read."""
    images: np.ndarray
    """(n, size, size, channels) uint8."""
    thumbnails: list[bytes]
    files: list[str | None]
    """The absolute path of each image that is a file."""
    bad: list[tuple[int, str]]
    """The images that cannot be read, with the reason."""

    def __len__(self) -> int:
        return len(self.numbers) + len(self.bad)


def decoded_chunks(source: Source, numbers: Sequence[int], decoder: Decoder, workers: int) -> Iterator[Chunk]:
    """The images with these numbers, in order."""
    chunks = [list(numbers[i : i + CHUNK]) for i in range(0, len(numbers), CHUNK)]
    loader = DataLoader(
        _Decoding(source, decoder, chunks),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=AHEAD if workers else None,
        worker_init_fn=start_worker,
        generator=torch.Generator(),  # without one, the loader would draw from the global generator
    )
    with watched_workers():
        with warnings.catch_warnings():
            # Of the package of a store, which the workers do not use.
            warnings.filterwarnings("ignore", "lancedb fork support", RuntimeWarning)
            decoded = iter(loader)  # starts the workers
        yield from decoded


class _Decoding(Dataset[Chunk]):
    def __init__(self, source: Source, decoder: Decoder, chunks: list[list[int]]) -> None:
        self._source, self._decoder, self._chunks = source, decoder, chunks

    def __len__(self) -> int:
        return len(self._chunks)

    def __getitem__(self, number: int) -> Chunk:
        decoder = self._decoder
        numbers, images, thumbnails, files, bad = [], [], [], [], []
        for i in self._chunks[number]:
            try:
                encoded = read_one(self._source, i)
                pixels = decoder.whole(encoded)
                image, thumbnail = decoder.square(pixels), make_thumbnail(pixels)
            except UnreadableImageError as error:
                bad.append((i, str(error)))
                continue
            numbers.append(i)
            images.append(image)
            thumbnails.append(thumbnail)
            files.append(str(encoded.absolute()) if isinstance(encoded, Path) else None)
        shape = (0, decoder.size, decoder.size, decoder.channels)
        return Chunk(numbers, np.stack(images) if images else np.empty(shape, np.uint8), thumbnails, files, bad)


def make_thumbnail(pixels: np.ndarray) -> bytes:
    """An image (h, w, c) as a JPEG file of at most 128 pixels; of other than 1, 3 or 4 channels, the first as gray.

    Examples:
        >>> Image.open(io.BytesIO(make_thumbnail(np.zeros((300, 600, 3), np.uint8)))).size
        (128, 64)
    """
    channels = pixels.shape[2]
    image = Image.fromarray(np.ascontiguousarray(pixels if channels in (3, 4) else pixels[..., 0]))
    if channels == 4:
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.BICUBIC, reducing_gap=2.0)
    buffer = io.BytesIO()
    image.convert("L" if image.mode == "L" else "RGB").save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()
