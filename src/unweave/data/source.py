"""What DATA on the command line means: a folder of images, Parquet files, a glob of either, or a torchvision data set.

Nothing is decoded here: a source knows how many images there are, where each one's bytes are, its name and its label.
"""

import glob
from pathlib import Path
from typing import Protocol

from unweave.data.images import SUFFIXES, Encoded
from unweave.errors import UnweaveError

MISSING = -1
"""The label of an image that has none."""


class Source(Protocol):
    """Images by number, still encoded."""

    labels: list[int] | None
    """The class of each image, ``MISSING`` where it is not known; None where no image has one."""
    classes: list[str] | None
    """The names of the classes."""

    def __len__(self) -> int: ...
    def read(self, i: int) -> Encoded:
        """Image i: bytes, a path, or a PIL image."""
        ...

    def name(self, i: int) -> str:
        """Image i's path or place, as it is written to files."""
        ...

    def check(self) -> None:
        """Raises ``UnweaveError`` where the whole source is gone."""
        ...


class Subset:
    """Some images of a source, in the order of ``index``."""

    def __init__(self, source: Source, index: list[int]) -> None:
        self._source, self.index = source, index
        self.labels = None if source.labels is None else [source.labels[i] for i in index]
        self.classes = source.classes

    def __len__(self) -> int:
        return len(self.index)

    def read(self, i: int) -> Encoded:
        """Image i of these."""
        return self._source.read(self.index[i])

    def name(self, i: int) -> str:
        """Its name in the whole."""
        return self._source.name(self.index[i])

    def check(self) -> None:
        """Of the whole."""
        self._source.check()


def check_exists(data: str, root: str | None = None) -> None:
    """Raises where DATA names nothing at all: at once, before anything heavy is imported or read."""
    if root is not None:
        if not Path(root).expanduser().is_dir():
            raise UnweaveError(f"--root {root}: there is no such folder")
    elif not Path(data).expanduser().exists() and not glob.has_magic(data):
        hint = "; a torchvision data set needs --root, the folder it lies in" if data.isidentifier() else ""
        raise UnweaveError(f"there is no folder or file named {data!r}{hint}")


def open_source(
    data: str | Path,
    *,
    root: str | Path | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
) -> Source:
    """Finds out what ``data`` names and opens it; ``root`` is where a torchvision data set lies."""
    text = str(data)
    check_exists(text, None if root is None else str(root))
    path = Path(text).expanduser()
    if root is not None:
        from unweave.data.vision import VisionImages

        return VisionImages(text, Path(root).expanduser())
    if path.is_dir():
        from unweave.data.folder import FolderImages

        folder = FolderImages(path)
        if len(folder) or not folder.others[".parquet"]:
            return folder.or_error()
        files = sorted(path.rglob("*.parquet"))
    elif path.is_file():
        files = [path]
    else:
        files = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
        if not files:
            raise UnweaveError(f"no file matches {text!r}")
    return _open_files(text, files, image_column, label_column)


def _open_files(text: str, files: list[Path], image_column: str | None, label_column: str | None) -> Source:
    kinds = {file.suffix.lower() for file in files if file.is_file()}
    if kinds == {".parquet"}:
        from unweave.data.parquet import ParquetImages

        return ParquetImages(files, image_column, label_column)
    if kinds and kinds <= SUFFIXES:
        from unweave.data.folder import FolderImages

        return FolderImages.of_files(files)
    raise UnweaveError(
        f"{text!r} is neither a folder, nor Parquet files, nor images: it names {', '.join(sorted(kinds)) or 'folders'}"
    )
