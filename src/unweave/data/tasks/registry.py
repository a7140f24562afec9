"""The paper's 13 tasks by name, and any other labelled data as a task."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unweave.data.sources import open_source
from unweave.data.sources.base import Source
from unweave.data.tasks import layouts
from unweave.data.tasks.base import METRICS, Content, Metric, Task, TaskPart
from unweave.data.tasks.tables import find_splits, joined, list_column, read_lists, read_parts, with_classes
from unweave.errors import UnweaveError


@dataclass(frozen=True)
class _Known:
    """A task of the paper."""

    content: Content
    metric: Metric
    group: str
    layout: Callable[[Path], layouts.Parts]


TASKS: dict[str, _Known] = {
    "aircraft": _Known("classes", "mean_per_class", "Other", layouts.aircraft),
    "caltech101": _Known("classes", "mean_per_class", "Other", layouts.caltech101),
    "cars": _Known("classes", "accuracy", "Other", layouts.cars),
    "cifar10": _Known("classes", "accuracy", "Other", layouts.cifar10),
    "cifar100": _Known("classes", "accuracy", "Other", layouts.cifar100),
    "cub-class": _Known("classes", "accuracy", "Other", layouts.cub),
    "cub-box": _Known("boxes", "r2", "Spatial", layouts.cub),
    "cub-keypoints": _Known("points", "r2", "Spatial", layouts.cub),
    "dtd": _Known("classes", "accuracy", "Appearance", layouts.dtd),
    "flowers": _Known("classes", "mean_per_class", "Appearance", layouts.flowers),
    "pets": _Known("classes", "mean_per_class", "Appearance", layouts.pets),
    "sun397": _Known("classes", "accuracy", "Other", layouts.sun397),
    "voc2007": _Known("labels", "map", "Other", layouts.voc2007),
}
"""The 13 tasks of the paper's section 5.3, with the metric and the group of each."""
FAMILIES = {"cub": ("cub-class", "cub-box", "cub-keypoints")}
"""Names of several tasks on the same images."""


def open_tasks(name: str, path: str | Path) -> list[Task]:
    """The tasks of a name: one of ``TASKS``, or ``cub`` for all three on its images.

    Args:
        name: such as "dtd".
        path: the data set's own folder, a folder above it, or a folder with Parquet files for each split
            (``train.parquet``, ``test.parquet``, …).

    Nothing is downloaded.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     labels = Path(folder, "labels")
        ...     labels.mkdir()
        ...     for split in ("train", "val", "test"):
        ...         _ = (labels / f"{split}1.txt").write_text(f"banded/{split}.jpg")
        ...     task = open_tasks("dtd", folder)[0]
        >>> task.metric, [task.fit.source.name(i) for i in range(2)], task.test.labels
        ('accuracy', ['banded/train.jpg', 'banded/val.jpg'], array(['banded'], dtype='<U6'))
    """
    names = FAMILIES.get(name, (name,))
    if any(one not in TASKS for one in names):
        raise UnweaveError(f"there is no task named {name!r}; there are {', '.join([*TASKS, *FAMILIES])}")
    path = Path(path).expanduser()
    if not path.is_dir():
        raise UnweaveError(f"{name}: there is no folder {path}")
    known = [TASKS[one] for one in names]
    if find_splits(path):
        fit, test = read_parts(path, tuple(task.content for task in known))
    else:
        fit, test = known[0].layout(path)
    return [
        Task(
            name=one,
            content=task.content,
            metric=task.metric,
            group=task.group,
            fit=TaskPart(fit[0], task.content, fit[1][task.content]),
            test=TaskPart(test[0], task.content, test[1][task.content]),
        )
        for one, task in zip(names, known, strict=True)
    ]


def open_labelled(data: Any, *, name: str | None = None, **columns: Any) -> Task:
    """Any labelled images as a task.

    A folder with the subfolders ``train`` and ``test`` (or ``val``), or with Parquet files of these names, has a split;
    other data have none. Labels with fractions are numbers, others are classes. In Parquet files, a ``label_column`` of
    lists holds boxes (``bbox``: x, y, width, height), key points (``keypoints``: x, y, …, perhaps with ``visible``),
    several labels (1 and 0, or 1, −1 and 0), or numbers. ``columns`` are arguments of ``open_source``.

    Examples:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for label in ("cat", "dog"):
        ...         Path(folder, label).mkdir()
        ...         Image.new("RGB", (8, 8)).save(Path(folder, label, "a.png"))
        ...     task = open_labelled(folder)
        >>> task.fit.labels.tolist(), task.test
        (['cat', 'dog'], None)
    """
    path = Path(data).expanduser() if isinstance(data, (str, Path)) else None
    title = name or ((path.stem if path.is_file() else path.name) if path else type(data).__name__)
    parts = _parts(data if path is None else path, columns)
    fit, *test = (TaskPart(source, content, labels) for source, labels, content in parts)
    if test and test[0].content != fit.content:
        raise UnweaveError(f"{title}: the labels to fit are {fit.content}, those to test {test[0].content}")
    return Task(
        name=title, content=fit.content, metric=METRICS[fit.content], fit=fit, test=test[0] if test else None
    )  # fmt: skip


def _parts(data: Any, columns: dict[str, Any]) -> list[tuple[Source, np.ndarray, Content]]:
    """Images, labels and what these are: to fit and, where there is a split, to test."""
    label = columns.get("label_column")
    splits = find_splits(data) if isinstance(data, Path) and data.is_dir() and not columns.get("root") else {}
    if len(splits) > 1 and "train" in splits:
        tested = splits.pop("test", None) or splits.pop("validation")
        groups: list[Any] = [[file for files in splits.values() for file in files], tested]
    elif isinstance(data, Path) and data.is_dir() and not columns.get("root"):
        groups = list(_split_folders(data)) or [data]
    else:
        groups = [data]
    found = []
    for group in groups:
        files = group if isinstance(group, list) else [group]
        content = (
            list_column(files, label) if label and all(isinstance(f, Path) and f.is_file() for f in files) else None
        )
        if label and content:
            source, labels = read_lists(files, content, label, columns.get("image_column"))
            found.append((source, labels, content))
            continue
        opened = [with_classes(open_source(file, **columns), file) for file in files]
        values = np.concatenate([labels for _, labels, _ in opened])
        kind: Content = "numbers" if values.dtype.kind == "f" else "classes"
        found.append((joined([source for source, _, _ in opened]), values, kind))
    return found


def _split_folders(path: Path) -> list[Path]:
    train = path / "train"
    test = next((path / name for name in ("test", "val", "validation") if (path / name).is_dir()), None)
    if not train.is_dir() and test is None:
        return []
    others = {f.name for f in path.iterdir() if f.is_dir()} - {"train", "test", "val", "validation"}
    if others:  # classes that happen to have these names
        return []
    if test is None or not train.is_dir():
        missing = "test" if test is None else "train"
        raise UnweaveError(f"{path} has no {missing} split: it needs the folders train and test, or neither")
    return [train, test]
