"""The page as plain files for any web server, without uploads: the browser computes the scores itself.

index.html, …            the page
data/index.json          spaces, classes, and path and class of every row
data/points-0.f32        the map of space 0, float32 (n, 2)
data/vectors-0.i16       its vectors, int16 (n, d): 32,767 is 1
data/lists-0.json        its near-duplicates and outliers
data/thumbnails/0.jpg    one for each row
"""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unweave.console import ProgressBar
from unweave.errors import UnweaveError
from unweave.explore.answers import Answers
from unweave.explore.base import SearchIndex
from unweave.explore.config import PAGE, ExploreConfig
from unweave.explore.maps import Maps
from unweave.files import make_writable_folder

MOST_ROWS = 5000
"""A browser downloads all vectors."""
DUPLICATES = 0.98


def write_static_page(index: SearchIndex, maps: Maps, out: Path, *, progress: bool = True) -> None:
    """Writes the page of an index of at most 5,000 images to a folder. Paths are relative to their common folder.

    Args:
        index: the index.
        maps: its maps, with a point for every row.
        out: an empty or new folder, or one that this function wrote.
        progress: show a progress bar.

    Examples:
        >>> write_static_page(index, maps, Path("site/explore"))  # doctest: +SKIP
    """
    require_static_page(len(index), len(maps.rows), out)
    data = out / "data"
    shutil.rmtree(data, ignore_errors=True)
    (data / "thumbnails").mkdir(parents=True)
    for file in PAGE.iterdir():
        shutil.copy(file, out / file.name)
    page = (PAGE / "index.html").read_text(encoding="utf-8").replace('data-backend="server"', 'data-backend="static"')
    (out / "index.html").write_text(page, encoding="utf-8")
    answers = Answers(index, maps, ExploreConfig())
    about = answers.about()
    about["paths"] = _relative([index.path(row) for row in range(len(index))])
    about["class_of"] = answers.class_names
    about["dims"] = [index.vectors(space).shape[1] for space in index.spaces]
    for i, space in enumerate(index.spaces):
        (data / f"points-{i}.f32").write_bytes(answers.points(space))
        vectors = np.asarray(index.vectors(space), np.float32)
        (data / f"vectors-{i}.i16").write_bytes(np.round(vectors.clip(-1, 1) * 32767).astype("<i2").tobytes())
        lists = {
            "groups": [[int(row) for row in group] for group in index.duplicates(space, threshold=DUPLICATES)],
            "outliers": [[int(row), round(float(cosine), 4)] for row, cosine in index.outliers(space, k=50)],
        }
        (data / f"lists-{i}.json").write_text(json.dumps(lists))
    with ProgressBar(len(index), 0, "thumbnails", show=progress, step="image") as bar:
        for row in range(len(index)):
            (data / "thumbnails" / f"{row}.jpg").write_bytes(index.thumbnail(row))
            bar.advance(row + 1)
    (data / "index.json").write_text(json.dumps(about), encoding="utf-8")


def require_static_page(rows: int, map_rows: int, out: Path) -> None:
    """Raises unless a page of plain files can be written to ``out``, which is created.

    Args:
        rows: number of images of the index.
        map_rows: largest number of points of a map.
        out: the folder of the page.

    Examples:
        >>> require_static_page(rows=6, map_rows=5, out=Path("site"))
        Traceback (most recent call last):
        unweave.errors.UnweaveError: `map_rows` must be at least the number of images, 6, not 5
    """
    if rows > MOST_ROWS:
        raise UnweaveError(
            f"a page of plain files shows at most {MOST_ROWS:,} images, and this index has {rows:,}: "
            "make an index of a part of them, or serve it"
        )
    if map_rows < rows:
        raise UnweaveError(f"`map_rows` must be at least the number of images, {rows}, not {map_rows}")
    if out.exists() and not (out / "data" / "index.json").is_file() and (not out.is_dir() or any(out.iterdir())):
        raise UnweaveError(f"`static` {out} is not empty: name a new folder")
    make_writable_folder(out)


def _relative(paths: Sequence[str]) -> list[str]:
    """Paths without the folder that all of them are in.

    Examples:
        >>> _relative(["/home/me/cats/1.jpg", "/home/me/dogs/2.jpg"])
        ['cats/1.jpg', 'dogs/2.jpg']
        >>> _relative(["part.parquet#0", "part.parquet#1"])
        ['part.parquet#0', 'part.parquet#1']
    """
    folders = {os.path.dirname(path) for path in paths}
    if not folders or "" in folders or len({os.path.isabs(folder) for folder in folders}) > 1:
        return [os.path.basename(path) if os.path.isabs(path) else path for path in paths]
    common = os.path.commonpath(folders)
    return [os.path.relpath(path, common) for path in paths]
