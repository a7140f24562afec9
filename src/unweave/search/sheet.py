"""A contact sheet: thumbnails with their scores on one HTML page."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from unweave.errors import printable
from unweave.files import write_text

if TYPE_CHECKING:
    from unweave.search.index import Index


@dataclass(frozen=True)
class Picture:
    """An image on a sheet: a JPEG file, a caption and further lines below it."""

    jpeg: bytes
    caption: str
    lines: Sequence[str] = field(default_factory=tuple)
    query: bool = False


def query_picture(index: "Index", query: str | int, caption: str) -> Picture:
    """A query, which is an image file, or the name or the row of an image of the index."""
    row = index.row_of(query)
    if row is not None:
        return Picture(index.thumbnail(row), caption, ["query"], query=True)
    from unweave.search.decoding import make_thumbnail

    pixels = index.model.decoder.whole(Path(str(query)).expanduser())
    return Picture(make_thumbnail(pixels), caption, ["query"], query=True)


def write_sheet(out: str | Path, title: str, sections: Sequence[tuple[str, Sequence[Picture]]]) -> None:
    """Writes a page that needs no other file; each section has a title and pictures.

    Examples:
        >>> import tempfile, unweave.search
        >>> from unweave.search.sheet import Picture
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     out = Path(folder) / "sheet.html"
        ...     unweave.search.write_sheet(out, "Cats", [("all", [Picture(b"a JPEG file", "a.jpg")])])
        ...     "a.jpg" in out.read_text()
        True
    """
    from unweave.report.templates import render

    content = [
        {
            "title": printable(name),
            "images": [
                {
                    "jpeg": base64.b64encode(picture.jpeg).decode(),
                    "caption": printable(picture.caption),
                    "lines": picture.lines,
                    "query": picture.query,
                }
                for picture in pictures
            ],
        }
        for name, pictures in sections
    ]
    write_text(Path(out), render(Path(__file__).with_name("sheet.html"), title=title, sections=content))
