"""Images that are decoded when training begins: after everything was checked, and not for a run that is finished."""

from collections.abc import Iterable, Iterator
from functools import cached_property

import torch
from torch import Tensor

from unweave.console import ProgressBar
from unweave.data.batches import TensorImages
from unweave.data.config import DataConfig
from unweave.data.identity import identify_source
from unweave.data.loading import StreamedImages, load_images
from unweave.data.sources.base import Source
from unweave.data.unreadable import UnreadableImages


class DeferredImages:
    """The images of a source as a ``BatchSource``.

    Args:
        source: the encoded images.
        size: each image's central square is resized to this side.
        config: how they are decoded and kept.
        unreadable: collects images that cannot be read.
        progress: show a progress bar while they are decoded.
    """

    def __init__(
        self, source: Source, size: int, config: DataConfig, unreadable: UnreadableImages, *, progress: bool
    ) -> None:
        self._source, self._size, self._config = source, size, config
        self._unreadable, self._progress = unreadable, progress
        self._images: TensorImages | StreamedImages | None = None

    @cached_property
    def identity(self) -> str:
        """By which a resumed run recognises the images."""
        return identify_source(self._source)

    def __len__(self) -> int:
        return len(self._source)

    def prepare(self, device: torch.device) -> None:
        """Decodes the images, once."""
        if self._images is not None:
            return
        with ProgressBar(len(self), 0, "decoding", show=self._progress, step="image") as bar:
            self._images = load_images(
                self._source,
                self._size,
                channels=self._config.channels,
                reduced=True,
                max_pixels=self._config.max_pixels,
                cache=self._config.cache,
                workers=self._config.workers,
                device=device,
                unreadable=self._unreadable,
                on_progress=bar.advance,
            )

    def batches(self, order: Iterable[Tensor], device: torch.device) -> Iterator[Tensor]:
        """The images of each index in turn, on ``device``."""
        self.prepare(device)
        assert self._images is not None
        return self._images.batches(order, device)
