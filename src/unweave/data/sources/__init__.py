"""What DATA means: a folder of images, Parquet files, a CSV file, a glob, a list of paths, a data set."""

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unweave.data.sources.remote import find_parquet, is_address
from unweave.errors import UnweaveError

if TYPE_CHECKING:
    from unweave.data.sources.base import Source


def check_exists(data: str, root: str | None = None) -> None:
    """Raises where DATA names nothing, before anything slow is imported or read; addresses are not looked up."""
    if is_address(data):
        return
    if root is not None:
        if not Path(root).expanduser().is_dir():
            raise UnweaveError(f"`root` {root}: there is no such folder")
    elif not Path(data).expanduser().exists() and not glob.has_magic(data):
        hint = "; a torchvision data set needs `root`, the folder that holds it" if data.isidentifier() else ""
        raise UnweaveError(f"there is no folder or file named {data!r}{hint}")


def open_source(
    data: Any,
    *,
    root: str | Path | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    channels: int = 3,
    random_access: bool = True,
) -> "Source":
    """Opens images for training or embedding.

    Args:
        data: a folder of images, a data set that Hugging Face's library saved to a folder, Parquet files, a CSV file of
            paths and labels, a glob, a list of paths, a map-style ``Dataset``, a ``DataLoader`` of one, a ``Source``,
            or the address of Parquet files, a folder of them or a pattern on a file system that pyarrow knows
            (s3://bucket/photos, gs://…, hdfs://…, file://…).
        root: folder of a torchvision data set, if ``data`` is its name.
        image_column: the column of images or of their paths, in tables.
        label_column: the column of labels, in tables.
        channels: with other than 1, 3 or 4 channels, numpy arrays (.npy) in a folder are images.
        random_access: read Parquet files now, so that images can be read in any order; otherwise their images can only
            be read in order, as ``embed_images`` does, and need not fit into memory.

    Examples:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Image.new("RGB", (20, 16), "red").save(f"{folder}/a.png")
        ...     source = open_source(folder)
        >>> len(source), source.name(0)
        (1, 'a.png')
    """
    if not isinstance(data, (str, Path)):
        return _open_object(data)
    text = str(data)
    columns = (image_column, label_column)
    if is_address(text):
        from unweave.data.sources.parquet import ParquetImages

        return ParquetImages(find_parquet(text), *columns, random_access=random_access)
    check_exists(text, None if root is None else str(root))
    path = Path(text).expanduser()
    if root is not None:
        from unweave.data.sources.torchvision import TorchvisionImages

        return TorchvisionImages(text, Path(root).expanduser())
    if path.is_dir():
        return _open_folder(path, columns, arrays=channels not in (1, 3, 4), random_access=random_access)
    files = [path] if path.is_file() else sorted(Path(name) for name in glob.glob(str(path), recursive=True))
    if not files:
        raise UnweaveError(f"no file matches {text!r}")
    return _open_files(text, files, columns, random_access=random_access)


def is_files(data: Any) -> bool:
    """Whether ``data`` names files: a path, a list of paths, or a source."""
    if isinstance(data, (str, Path)) or _is_source(data):
        return True
    return isinstance(data, Sequence) and len(data) > 0 and all(isinstance(item, (str, Path)) for item in data)


def _is_source(data: Any) -> bool:
    return all(hasattr(data, name) for name in ("read", "name", "check", "labels"))


def _open_folder(path: Path, columns: tuple[str | None, str | None], *, arrays: bool, random_access: bool) -> "Source":
    if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
        from unweave.data.sources.parquet import SavedDatasetImages

        return SavedDatasetImages(path, *columns)
    from unweave.data.sources.folder import FolderImages

    folder = FolderImages(path, arrays=arrays)
    if len(folder) or not folder.others[".parquet"]:
        return folder.or_error()
    return _open_files(str(path), sorted(path.rglob("*.parquet")), columns, random_access=random_access)


def _open_files(
    text: str, files: list[Path], columns: tuple[str | None, str | None], *, random_access: bool
) -> "Source":
    from unweave.data.decode import ARRAYS, SUFFIXES

    kinds = {file.suffix.lower() for file in files if file.is_file()}
    if kinds == {".parquet"}:
        from unweave.data.sources.parquet import ParquetImages

        return ParquetImages(files, *columns, random_access=random_access)
    if kinds <= {".csv", ".tsv"} and len(files) == 1:
        from unweave.data.sources.parquet import CsvImages

        return CsvImages(files[0], *columns)
    if kinds and kinds <= SUFFIXES | {ARRAYS}:
        from unweave.data.sources.folder import FolderImages

        return FolderImages.of_files(files)
    found = ", ".join(sorted(kinds)) or "folders"
    raise UnweaveError(f"{text!r} names {found}, not a folder, Parquet files, a CSV file or images")


def _open_object(data: Any) -> "Source":
    """A source, a list of paths, a data set, or a data loader's data set."""
    if _is_source(data):
        return data
    if is_files(data):
        from unweave.data.sources.folder import FolderImages

        return FolderImages.of_files([Path(item).expanduser() for item in data])
    dataset = getattr(data, "dataset", data)
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise UnweaveError(f"`data` must be a path, a list of paths or a data set with a length, not {type(data)}")
    if not len(dataset):
        raise UnweaveError("`data` has no images: it is empty")
    from unweave.data.sources.dataset import DatasetSource

    return DatasetSource(dataset)
