"""What ``model.embed`` takes, as batches of images.

    one image    a path, bytes, a PIL image, an array (h, w) or (h, w, c), a tensor (c, h, w)
    several      a list of these, which may be mixed; an array (n, h, w, c), a tensor (n, c, h, w)
    a source     what ``open_source`` takes: a folder, Parquet and CSV files, a glob, a list of paths, a data set

A tensor of the model's own input shape is used as it is. All other images are preprocessed alike (preprocessing.py), so
an image has one embedding, whatever it is passed as.
"""

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unweave.augment._transform import as_float, check_images
from unweave.data.batches import image_of
from unweave.data.decode import Decoder
from unweave.data.loading import StreamedImages
from unweave.data.resources import default_workers
from unweave.data.sources import is_files, open_source
from unweave.data.sources.base import Source
from unweave.data.sources.remote import is_address
from unweave.data.unreadable import UnreadableImageError, UnreadableImages
from unweave.errors import UnweaveError, printable

TABLES = (".parquet", ".csv", ".tsv")
"""Suffixes of files that hold or list many images."""
FEW = 256
"""Below this number of images, starting worker processes takes longer than decoding."""


def is_one_image(images: Any) -> bool:
    """Whether ``images`` is a single image."""
    if isinstance(images, (str, Path)):
        path = Path(images).expanduser()
        if is_address(str(images)):
            return False
        many = path.is_dir() or path.suffix.lower() in TABLES or (glob.has_magic(str(images)) and not path.exists())
        return not many
    if isinstance(images, (np.ndarray, Tensor)):
        return images.ndim < 4
    return isinstance(images, (bytes, Image.Image))


@dataclass(frozen=True)
class Inputs:
    """Images of any kind as batches for a model whose input is (c, h, w)."""

    shape: tuple[int, ...]
    device: torch.device
    batch_size: int
    workers: int | None
    max_pixels: int

    def batches(self, images: Any) -> Iterator[Tensor]:
        """Batches (n, c, h, w) on the device, uint8 or float in [0, 1]."""
        if hasattr(images, "__next__"):
            images = list(images)
        if is_one_image(images):
            return self._listed([images])
        if isinstance(images, (list, tuple, np.ndarray, Tensor)) and not is_files(images):
            if not len(images):
                raise UnweaveError("`images` is empty: there is nothing to embed")
            return self._listed(images)
        return self._streamed(open_source(images, channels=self.shape[0]))

    @property
    def decoder(self) -> Decoder:
        """How image files become the model's input."""
        return decoder_for(self.shape, self.max_pixels)

    def _streamed(self, source: Source) -> Iterator[Tensor]:
        workers = (default_workers() if len(source) >= FEW else 0) if self.workers is None else self.workers
        stream = StreamedImages(source, self.decoder, workers, _NoneUnreadable(len(source), 0.0))
        return stream.batches(torch.arange(len(source)).split(self.batch_size), self.device)

    def _listed(self, images: Any) -> Iterator[Tensor]:
        for start in range(0, len(images), self.batch_size):
            some = images[start : start + self.batch_size]
            yield torch.stack([self._one(item, start + i) for i, item in enumerate(some)])

    def _one(self, item: Any, number: int) -> Tensor:
        """An image (c, h, w), float in [0, 1]."""
        image = image_of(item)
        if isinstance(image, Tensor) and tuple(image.shape) == self.shape:
            check_images(image[None])
            return as_float(image.detach().to(self.device)).contiguous()
        try:
            pixels = torch.from_numpy(self.decoder(_encoded(image, self.shape[0])))
        except UnreadableImageError as error:
            named = f" ({printable(str(image))})" if isinstance(image, (str, Path)) else ""
            raise UnweaveError(f"image {number}{named} cannot be read: {error}") from None
        return as_float(pixels.permute(2, 0, 1).contiguous().to(self.device))


def decoder_for(shape: Sequence[int], max_pixels: int) -> Decoder:
    """The decoder of images for a model whose input is (c, h, w); raises where that is not a square."""
    channels, height, width = shape
    if height != width:
        raise UnweaveError(
            f"the model's input has {height}×{width} pixels, and image files are only made square: embed tensors (n, "
            f"{channels}, {height}, {width})"
        )
    return Decoder(size=width, channels=channels, max_pixels=max_pixels)


def _encoded(image: Any, channels: int) -> bytes | Path | Image.Image | np.ndarray:
    """An image as the decoder takes it."""
    if isinstance(image, str):
        return Path(image).expanduser()
    if isinstance(image, Tensor):
        image = image.detach().cpu()
        image = (image.float() if image.is_floating_point() else image).numpy()
        image = np.moveaxis(image, 0, 2) if image.ndim == 3 else image
    if isinstance(image, np.ndarray):
        _check_range(image)
        image = image if image.flags.writeable else image.copy()  # torch warns of arrays that it must not write to
        return np.repeat(image[..., None], channels, 2) if image.ndim == 2 and channels == 3 else image
    if isinstance(image, (bytes, Path, Image.Image)):
        return image
    raise UnweaveError(f"`images` must hold paths, bytes, PIL images, arrays or tensors, not {type(image).__name__}")


def _check_range(image: np.ndarray) -> None:
    if image.dtype.kind == "f" and image.size and not (image.min() >= -1e-3 and image.max() <= 1 + 1e-3):
        low, high = float(image.min()), float(image.max())
        raise UnweaveError(f"float images must lie in [0, 1], not [{low:.3g}, {high:.3g}]; divide by 255")


class _NoneUnreadable(UnreadableImages):
    """Raises for the first image that cannot be read."""

    def add(self, index: int, name: str, reason: str) -> None:
        raise UnweaveError(f"image {index} ({printable(name)}) cannot be read: {reason}")
