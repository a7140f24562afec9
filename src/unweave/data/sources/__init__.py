"""What DATA on the command line means: a folder of images, Parquet files, a glob, or a torchvision data set."""

import glob
from pathlib import Path
from typing import TYPE_CHECKING

from unweave.errors import UnweaveError

if TYPE_CHECKING:
    from unweave.data.sources.base import Source


def check_exists(data: str, root: str | None = None) -> None:
    """Raises where DATA names nothing, before anything slow is imported or read."""
    if root is not None:
        if not Path(root).expanduser().is_dir():
            raise UnweaveError(f"`root` {root}: there is no such folder")
    elif not Path(data).expanduser().exists() and not glob.has_magic(data):
        hint = "; a torchvision data set needs `root`, the folder that holds it" if data.isidentifier() else ""
        raise UnweaveError(f"there is no folder or file named {data!r}{hint}")


def open_source(
    data: str | Path,
    *,
    root: str | Path | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    channels: int = 3,
) -> "Source":
    """Opens a folder, Parquet files, a glob of either, or, with ``root``, a torchvision data set by name.

    With other than 1, 3 or 4 ``channels``, numpy arrays (.npy) in a folder are images.

    Examples:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Image.new("RGB", (20, 16), "red").save(f"{folder}/a.png")
        ...     source = open_source(folder)
        >>> len(source), source.name(0)
        (1, 'a.png')
    """
    text = str(data)
    check_exists(text, None if root is None else str(root))
    path = Path(text).expanduser()
    if root is not None:
        from unweave.data.sources.torchvision import TorchvisionImages

        return TorchvisionImages(text, Path(root).expanduser())
    if path.is_dir():
        from unweave.data.sources.folder import FolderImages

        folder = FolderImages(path, arrays=channels not in (1, 3, 4))
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


def _open_files(text: str, files: list[Path], image_column: str | None, label_column: str | None) -> "Source":
    from unweave.data.decode import ARRAYS, SUFFIXES

    kinds = {file.suffix.lower() for file in files if file.is_file()}
    if kinds == {".parquet"}:
        from unweave.data.sources.parquet import ParquetImages

        return ParquetImages(files, image_column, label_column)
    if kinds and kinds <= SUFFIXES | {ARRAYS}:
        from unweave.data.sources.folder import FolderImages

        return FolderImages.of_files(files)
    found = ", ".join(sorted(kinds)) or "folders"
    raise UnweaveError(f"{text!r} names {found}, not a folder, Parquet files or images")
