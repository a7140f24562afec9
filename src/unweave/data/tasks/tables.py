"""Tasks in Parquet files: one or more files for each split, in the Hugging Face convention."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unweave.data.sources.base import MISSING, Source, Subset
from unweave.data.sources.columns import reading
from unweave.data.sources.parquet import ParquetImages
from unweave.data.tasks.base import Content, JoinedImages
from unweave.errors import UnweaveError

SPLIT = re.compile(r"(train|val|validation|test)(-\d+-of-\d+)?\.parquet")
COLUMNS: dict[Content, tuple[str, ...]] = {
    "labels": ("labels",),
    "boxes": ("bbox",),
    "points": ("keypoints", "visible"),
}
"""The columns that hold each kind of label; classes are in ``label``."""
NAMES: dict[str, Content] = {"bbox": "boxes", "box": "boxes", "keypoints": "points", "points": "points"}
"""Columns of lists that follow an image through its crop, by name."""


def find_splits(path: Path) -> dict[str, list[Path]]:
    """The Parquet files of each split in a folder or in its subfolder ``data``: train, validation, test."""
    found: dict[str, list[Path]] = {}
    for folder in (path, path / "data"):
        for file in sorted(folder.glob("*.parquet")):
            if match := SPLIT.fullmatch(file.name):
                found.setdefault("validation" if match[1] == "val" else match[1], []).append(file)
        if found:
            return found
    return {}


def read_parts(
    path: Path, contents: tuple[Content, ...]
) -> tuple[tuple[Source, dict[str, np.ndarray]], tuple[Source, dict[str, np.ndarray]]]:
    """Images and labels to fit (train and, where there is one, validation) and to test."""
    splits = find_splits(path)
    if missing := {"train", "test"} - set(splits):
        raise UnweaveError(f"{path} has no {missing.pop()} split; its splits are {', '.join(sorted(splits)) or 'none'}")
    fit = read_files([*splits["train"], *splits.get("validation", [])], contents)
    return fit, read_files(splits["test"], contents)


def read_files(files: list[Path], contents: tuple[Content, ...]) -> tuple[Source, dict[str, np.ndarray]]:
    """Images and labels of these files; images without a class are left out where classes are asked for."""
    sources: list[Source] = []
    labels: dict[str, list[np.ndarray]] = {content: [] for content in contents}
    for file in files:
        source: Source = ParquetImages([file])
        kept = list(range(len(source)))
        if "classes" in contents:
            source, classes, kept = with_classes(source, file)
            labels["classes"].append(classes)
        for content in contents:
            if content != "classes":
                labels[content].append(_read(file, content, *COLUMNS[content])[kept])
        sources.append(source)
    return joined(sources), {content: np.concatenate(parts) for content, parts in labels.items()}


def joined(sources: Sequence[Source]) -> Source:
    """One source of the images of all."""
    return sources[0] if len(sources) == 1 else JoinedImages(sources)


def with_classes(source: Source, where: Any) -> tuple[Source, np.ndarray, list[int]]:
    """The images that have a class, their classes, by name where names are known, and their numbers.

    Fractions, which ``open_source`` takes for the names of classes, are numbers again.
    """
    if source.labels is None:
        raise UnweaveError(f"{where} has no labels: a probe needs folders of classes, or a column of labels")
    kept = [i for i, label in enumerate(source.labels) if label != MISSING]
    values = np.array(source.labels)[kept]
    if source.classes is not None:
        values = np.array(_numbers(source.classes) or source.classes)[values]
    return source if len(kept) == len(source) else Subset(source, kept), values, kept


def _numbers(classes: Sequence[str]) -> list[float] | None:
    """The names of classes as numbers, where they are numbers with fractions."""
    try:
        values = [float(name) for name in classes]
    except ValueError:
        return None
    return values if any(value != round(value) for value in values) else None


def list_column(files: Sequence[Path], column: str) -> Content | None:
    """What a column of lists holds; None where it is not one."""
    file = files[0]
    if file.suffix.lower() != ".parquet":
        return None
    with reading(file):
        schema = pq.read_schema(file)
    if column not in schema.names:
        return None
    kind = schema.field(column).type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return None
    if column in NAMES:
        return NAMES[column]
    return "labels" if np.isin(_read(file, "labels", column), (-1, 0, 1)).all() else "numbers"


def read_lists(
    files: Sequence[Path], content: Content, column: str, image_column: str | None
) -> tuple[Source, np.ndarray]:
    """Images of these files, and a column of lists; key points may have a column ``visible``."""
    source = ParquetImages(files, image_column)
    values = []
    for file in files:
        with reading(file):
            visible = ("visible",) if content == "points" and "visible" in pq.read_schema(file).names else ()
        values.append(_read(file, content, column, *visible))
    return source, np.concatenate(values)


def _read(file: Path, content: Content, *columns: str) -> np.ndarray:
    with reading(file):
        names = pq.read_schema(file).names
    if absent := [name for name in columns if name not in names]:
        raise UnweaveError(f"{file} has no column {absent[0]!r}; its columns are {', '.join(names)}")
    with reading(file):
        table = pq.read_table(file, columns=list(columns), partitioning=None)
    try:
        values = np.array(table[columns[0]].to_pylist(), dtype=np.float64)
    except (TypeError, ValueError):
        raise UnweaveError(f"{file}: the lists in column {columns[0]!r} are of different lengths or missing") from None
    if len(columns) > 1:
        visible = np.array(table[columns[1]].to_pylist(), dtype=bool)
        values[~np.repeat(visible, 2, axis=1)] = np.nan
    return values
