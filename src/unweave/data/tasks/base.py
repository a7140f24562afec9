"""What a task is: images to fit and images to test, with labels that follow an image through its crop.

Legend: n images, k labels or key points.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from unweave.data.sources.base import Encoded, Source
from unweave.data.tasks.geometry import crop_boxes, crop_points, image_size
from unweave.errors import UnweaveError

Content = Literal["classes", "labels", "boxes", "points", "numbers"]
Kind = Literal["classes", "multilabel", "regression"]
Metric = Literal["accuracy", "mean_per_class", "map", "r2"]
KINDS: dict[Content, Kind] = {
    "classes": "classes", "labels": "multilabel", "boxes": "regression", "points": "regression",
    "numbers": "regression",
}  # fmt: skip
METRICS: dict[Content, Metric] = {
    "classes": "accuracy",
    "labels": "map",
    "boxes": "r2",
    "points": "r2",
    "numbers": "r2",
}
"""The metric of data that are not one of the paper's tasks."""


@dataclass(frozen=True)
class TaskPart:
    """Images with labels, one part of a task.

    Examples:
        >>> from PIL import Image
        >>> class One(ListedImages):
        ...     def read(self, i):
        ...         return Image.new("RGB", (40, 20))
        >>> part = TaskPart(One(Path(), ["a.png"]), "boxes", np.array([[15.0, 5.0, 10.0, 10.0]]))
        >>> part.targets(10)  # the central square is 20 pixels wide and begins at x = 10
        array([[2.5, 2.5, 5. , 5. ]])
    """

    source: Source
    content: Content
    labels: np.ndarray
    """classes: (n,); labels: (n, k) of 1, −1 (absent) and 0 (left out); boxes: (n, 4) of x, y, width, height; points:
    (n, 2k) of x, y, NaN where invisible; numbers: (n,) or (n, k). Boxes and points are in pixels of the stored
    image."""

    def targets(self, size: int, rows: Sequence[int] | None = None) -> np.ndarray:
        """Labels for images that are decoded to ``size`` pixels: boxes and points are in pixels of that square."""
        index = range(len(self.source)) if rows is None else rows
        labels = self.labels[np.asarray(index, dtype=np.int64)]
        if self.content in ("classes", "labels", "numbers"):
            return labels
        frames = np.array([image_size(self.source.read(i)) for i in index])
        return (crop_boxes if self.content == "boxes" else crop_points)(labels, frames, size)


@dataclass(frozen=True)
class Task:
    """Images to fit and to test, with the metric that is customary for them.

    Examples:
        >>> part = TaskPart(ListedImages(Path(), ["a.png", "b.png"]), "classes", np.array([0, 1]))
        >>> Task(name="mine", content="classes", metric="accuracy", fit=part, test=part).kind
        'classes'
    """

    name: str
    content: Content
    metric: Metric
    """accuracy, mean_per_class, map or r2."""
    fit: TaskPart
    test: TaskPart | None
    """None where the data have no split: a random part is held out."""
    group: str | None = None
    """Spatial, Appearance or Other, as the paper groups its tasks."""

    @property
    def kind(self) -> Kind:
        """Of the labels: classes, multilabel or regression."""
        return KINDS[self.content]


class ListedImages:
    """Files under a folder, in the order of a list.

    Examples:
        >>> ListedImages(Path("photos"), ["b.jpg", "a.jpg"]).name(0)
        'b.jpg'
    """

    labels: list[int] | None = None
    classes: list[str] | None = None

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.root, self._names = root, list(names)

    def __len__(self) -> int:
        return len(self._names)

    def read(self, i: int) -> Path:
        """The path of image i."""
        return self.root / self._names[i]

    def name(self, i: int) -> str:
        """The path of image i relative to the folder."""
        return self._names[i]

    def check(self) -> None:
        """Raises where the folder was removed."""
        if not self.root.is_dir():
            raise UnweaveError(f"the folder {self.root} was removed")


class JoinedImages:
    """The images of several sources, one after the other."""

    labels: list[int] | None = None
    classes: list[str] | None = None

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources, self._starts = list(sources), np.cumsum([0, *map(len, sources)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def _place(self, i: int) -> tuple[Source, int]:
        number = int(np.searchsorted(self._starts, i, "right")) - 1
        return self._sources[number], i - int(self._starts[number])

    def read(self, i: int) -> Encoded:
        """Image i."""
        source, row = self._place(i)
        return source.read(row)

    def name(self, i: int) -> str:
        """The name of image i in its source."""
        source, row = self._place(i)
        return source.name(row)

    def check(self) -> None:
        """Checks every source."""
        for source in self._sources:
            source.check()
