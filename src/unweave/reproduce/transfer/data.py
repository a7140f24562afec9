"""The photographs of the transfer study: those of pre-training and the labelled ones of the tasks.

Every data set is a folder below DATA. Images are decoded once for all models of a process, where they fit into memory.

Legend: n images.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unweave import UnweaveError
from unweave.data import Source, Subset, Task, TaskPart, load_images, open_labelled, open_tasks
from unweave.evaluation import as_targets
from unweave.inference import ImageFeatures, SpacesModel

FOLDERS = {
    "aircraft": ("fgvc-aircraft-2013b", "aircraft"),
    "caltech101": ("caltech101", "caltech-101"),
    "cars": ("stanford_cars", "cars"),
    "cifar10": ("cifar10", "cifar-10-batches-py"),
    "cifar100": ("cifar100", "cifar-100-python"),
    "cub": ("CUB_200_2011", "cub200", "cub"),
    "dtd": ("dtd", "dtd10"),
    "flowers": ("flowers-102", "flowers102", "flowers"),
    "pets": ("oxford-iiit-pet", "pets"),
    "sun397": ("SUN397", "sun397"),
    "voc2007": ("VOCdevkit", "VOC2007", "voc2007"),
}
"""The folders below DATA that may hold a task, by its name."""
CLASSES_OF_DTD = 47
BATCH = 512
FEW = 256
"""Below this number of images, starting worker processes takes longer than decoding."""
TUNING_SHARE = 5
"""One in so many validation images of the pre-training data is used to choose settings, the others for the results."""


def find_tasks(data: Path) -> list[Task]:
    """The paper's tasks whose data are below ``data``."""
    found: list[Task] = []
    for name, folders in FOLDERS.items():
        folder = next((data / folder for folder in folders if (data / folder).is_dir()), None)
        if folder is not None:
            found += [_named(task) for task in open_tasks(name, folder)]
    if not found:
        known = ", ".join(folders[0] for folders in FOLDERS.values())
        raise UnweaveError(f"`data` {data} contains no task; it should contain some of the folders {known}")
    return found


def _named(task: Task) -> Task:
    """A part of DTD is not called DTD."""
    classes = len(set(task.fit.labels.tolist())) if task.name == "dtd" else CLASSES_OF_DTD
    return task if classes == CLASSES_OF_DTD else replace(task, name=f"dtd-{classes}")


def pretraining_task(path: Path, fit: int, seed: int = 0) -> Task:
    """The classes of the pre-training data as a task, fitted on at most ``fit`` images, the same number of each class.

    ``path`` has the parts ``train`` and ``val`` (or ``validation``), as folders or as Parquet files.
    """
    task = open_labelled(path, name="pretraining")
    if task.test is None:
        raise UnweaveError(f"{path} has no validation images: it needs the parts train and val")
    labels = as_targets(task.fit.labels).values
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    each = max(1, fit // len(labels.unique()))
    chosen = torch.cat([order[labels[order] == label][:each] for label in labels.unique()]).sort().values.tolist()
    return replace(task, fit=_some(task.fit, chosen))


def pretraining_files(path: Path) -> Any:
    """The training images of the pre-training data, as ``pretrain`` accepts them."""
    folder = path / "train"
    if folder.is_dir():
        return folder
    return str(path / "train*.parquet")


class TaskImages:
    """The images of tasks, decoded when they are first needed, and their features."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self._decoded: dict[tuple[int, int], tuple[Source, Any]] = {}

    def decode(self, source: Source, size: int) -> Any:
        """The images of a source."""
        key = (id(source), size)
        if key not in self._decoded:
            workers = None if len(source) >= FEW else 0
            images = load_images(source, size, device=self.device, workers=workers)
            self._decoded[key] = source, images  # the source is kept, so that its id stays its own
        return self._decoded[key][1]

    def features_of(self, model: SpacesModel) -> Callable[[TaskPart], ImageFeatures]:
        """A function from a part of a task to the features that a model computes for its images."""
        computed: dict[int, ImageFeatures] = {}

        def compute(part: TaskPart) -> ImageFeatures:
            if id(part.source) not in computed:
                computed[id(part.source)] = self._features(model, part.source)
            return computed[id(part.source)]

        return compute

    @torch.inference_mode()
    def _features(self, model: SpacesModel, source: Source) -> ImageFeatures:
        parts: dict[str, list[Tensor]] = {}
        order = torch.arange(len(source)).split(BATCH)
        for images in self.decode(source, model.size).batches(order, self.device):
            for name, z in model(images).items():
                parts.setdefault(name, []).append(z.float())
        return ImageFeatures({name: torch.cat(part) for name, part in parts.items()}, list(range(len(source))))


class TransferData:
    """All data of the study: tasks, the pre-training data as a task, and held-out photographs.

    Args:
        data: the folder of the tasks' data sets.
        pretraining: the folder of the pre-training images.
        device: where features are computed.
        fit: images on which the probe of the classes of pre-training is fitted.
        validation: choose settings: hold out a part of the images to fit, and read no test image.
        few: use some tens of images of each task, for a test.
    """

    def __init__(
        self, data: Path, pretraining: Path, *, device: str, fit: int, validation: bool = False, few: bool = False
    ) -> None:
        if not data.is_dir():
            raise UnweaveError(f"there is no folder {data}; name the folder of the data sets with `data`")
        if not pretraining.is_dir():
            raise UnweaveError(f"there is no folder {pretraining}; name one of images to train on with `pretraining`")
        self.data, self.pretraining, self.device, self.fit = data, pretraining, device, fit
        self.validation, self.few, self.images = validation, few, TaskImages(device)

    @cached_property
    def tasks(self) -> list[Task]:
        """The tasks of the paper that the folder contains."""
        found = find_tasks(self.data)
        if self.few:
            found = [_few(task) for task in found]
        return [replace(task, test=None) for task in found] if self.validation else found

    @cached_property
    def classes(self) -> Task:
        """The pre-training data as a task; settings are tuned with some of its validation images, not the others."""
        task = pretraining_task(self.pretraining, self.fit)
        assert task.test is not None
        count = len(task.test.source)
        order = torch.randperm(count, generator=torch.Generator().manual_seed(7))
        edge = count // TUNING_SHARE
        chosen = (order[:edge] if self.validation else order[edge:]).sort().values.tolist()
        task = replace(task, test=_some(task.test, chosen))
        return _few(task) if self.few else task

    def photographs(self, count: int, size: int) -> Tensor:
        """Photographs that were not used in training, (n, c, size, size) uint8."""
        test = self.classes.test
        assert test is not None
        images = self.images.decode(test.source, size)
        return images[torch.arange(min(count, len(test.source)), device=self.device)]


def _some(part: TaskPart, rows: list[int]) -> TaskPart:
    return TaskPart(Subset(part.source, rows), part.content, part.labels[rows])


def _few(task: Task) -> Task:
    """The task with at most 15 images of its first 4 classes; without classes, with 40 images."""
    classes = sorted(set(task.fit.labels.tolist()))[:4] if task.content == "classes" else None
    return replace(
        task,
        fit=_few_rows(task.fit, classes),
        test=None if task.test is None else _few_rows(task.test, classes),
    )


def _few_rows(part: TaskPart, classes: list[Any] | None) -> TaskPart:
    rows = list(range(min(40, len(part.labels))))
    if classes is not None:
        rows = sorted(i for label in classes for i in np.flatnonzero(part.labels == label)[:15].tolist())
    return _some(part, rows)
