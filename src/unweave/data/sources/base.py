"""What a source is: encoded images by number, with their names and labels. Nothing is decoded here."""

import re
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

Encoded = bytes | Path | Image.Image | np.ndarray
"""An image before decoding; an array has the shape (h, w) or (h, w, c)."""
MISSING = -1
"""The label of an image that has none."""
_ESCAPED = re.compile(r"\\x[0-9a-f]{2}")


class Source(Protocol):
    """Encoded images by number.

    Examples:
        >>> class Reds:
        ...     labels, classes = None, None
        ...     def __len__(self):
        ...         return 3
        ...     def read(self, i):
        ...         return Image.new("RGB", (8, 8), "red")
        ...     def name(self, i):
        ...         return f"red-{i}"
        ...     def check(self):
        ...         pass
        >>> from unweave.data import load_images
        >>> len(load_images(Reds(), 8, workers=0))
        3
    """

    labels: list[int] | None
    """The class of each image, ``MISSING`` where it is unknown; None where no image has a label."""
    classes: list[str] | None
    """The names of the classes."""

    def __len__(self) -> int:
        """The number of images."""
        ...

    def read(self, i: int) -> Encoded:
        """Image i: bytes, a path, a PIL image or an array."""
        ...

    def name(self, i: int) -> str:
        """The path or place of image i."""
        ...

    def check(self) -> None:
        """Raises ``UnweaveError`` where the whole source is no longer available."""
        ...


def escape_name(name: str) -> str:
    r"""A name as valid Unicode, from which ``unescape_name`` gives the name again.

    In a name with undecodable bytes these become ``\xNN`` and backslashes are doubled. Backslashes are also doubled
    in a name that contains such a sequence itself. All other names are unchanged.

    Examples:
        >>> escape_name("a.jpg"), escape_name(b"\xff.jpg".decode("utf-8", "surrogateescape"))
        ('a.jpg', '\\xff.jpg')
    """
    try:
        name.encode("utf-8")
        if not _ESCAPED.search(name):
            return name
    except UnicodeEncodeError:
        pass
    doubled = name.replace("\\", "\\\\")
    return doubled.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def unescape_name(name: str) -> str:
    r"""The name of a file from the form in which ``unweave embed`` writes it.

    Examples:
        >>> unescape_name("a.jpg"), unescape_name(r"\xff.jpg").encode("utf-8", "surrogateescape")
        ('a.jpg', b'\xff.jpg')
    """
    if not _ESCAPED.search(name):
        return name
    parts = re.split(r"(\\\\|\\x[0-9a-f]{2})", name)
    data = b"".join(_unescaped(part) if i % 2 else part.encode("utf-8") for i, part in enumerate(parts))
    return data.decode("utf-8", "surrogateescape")


def _unescaped(escape: str) -> bytes:
    return b"\\" if escape == "\\\\" else bytes([int(escape[2:], 16)])


class Subset:
    """Some images of a source, in the order of ``index``.

    Examples:
        >>> import numpy as np, unweave as uw
        >>> source = uw.data.open_source([np.full((4, 4, 3), value, dtype=np.uint8) for value in (10, 20, 30)])
        >>> few = Subset(source, [2, 0])
        >>> len(few), int(few.read(0).max())
        (2, 30)
    """

    def __init__(self, source: Source, index: list[int]) -> None:
        self._source, self.index = source, index
        self.labels = None if source.labels is None else [source.labels[i] for i in index]
        self.classes = source.classes

    def __len__(self) -> int:
        return len(self.index)

    def read(self, i: int) -> Encoded:
        """Image i of the subset."""
        return self._source.read(self.index[i])

    def name(self, i: int) -> str:
        """The name of image i in the whole source."""
        return self._source.name(self.index[i])

    def check(self) -> None:
        """Checks the whole source."""
        self._source.check()
