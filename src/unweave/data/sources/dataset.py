"""Any map-style data set as a source of images."""

from typing import Any

import numpy as np
from PIL import Image

from unweave.data.batches import image_of
from unweave.data.sources.base import Encoded
from unweave.data.unreadable import UnreadableImageError


class DatasetSource:
    """The images of a map-style ``Dataset``, whose items are images, tuples or dictionaries.

    Labels are those of its attribute ``targets`` or ``labels``, if it has one.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        classes = getattr(dataset, "classes", None)
        self.classes: list[str] | None = [str(name) for name in classes] if classes else None
        self.labels = self._labels()

    def _labels(self) -> list[int] | None:
        for attribute in ("targets", "labels", "_labels"):
            values = getattr(self._dataset, attribute, None)
            if values is not None and len(values) == len(self._dataset):
                try:
                    return [int(value) for value in values]
                except (TypeError, ValueError):
                    return None
        return None

    def __len__(self) -> int:
        return len(self._dataset)

    def read(self, i: int) -> Encoded:
        """Image i of the data set."""
        image = image_of(self._dataset[i])
        if isinstance(image, (Image.Image, np.ndarray, bytes)):
            return image
        if hasattr(image, "detach"):  # a tensor (c, h, w)
            return image.detach().cpu().permute(1, 2, 0).numpy()
        raise UnreadableImageError(f"an item of {type(image).__name__} is not an image")

    def name(self, i: int) -> str:
        """The data set's class and the image's number."""
        return f"{type(self._dataset).__name__}#{i}"

    def check(self) -> None:
        """Nothing to check."""
