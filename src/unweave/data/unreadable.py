"""Images that cannot be read: counted, listed in a file, and limited in number."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from unweave.distributed import world_size
from unweave.errors import UnweaveError, printable

SHOWN = 3
"""Images that an error message names."""


class UnreadableImageError(Exception):
    """An image that cannot be read; the message is the reason."""


class UnreadableImages:
    """Collects images that cannot be read, by their number, and appends them to a file of JSON lines.

    Args:
        total: the number of images.
        max_bad: the fraction of them that may be unreadable.
        path: the file; what it lists already is kept. None writes no file.

    Examples:
        >>> unreadable = UnreadableImages(total=100, max_bad=0.05)
        >>> unreadable.add(7, "a.jpg", "the file is empty")
        >>> 7 in unreadable, len(unreadable)
        (True, 1)
    """

    def __init__(self, total: int, max_bad: float, path: Path | None = None) -> None:
        self.total, self.max_bad, self.path = total, max_bad, path
        self.found: dict[int, tuple[str, str]] = {}
        """Name and reason by number."""
        self._deferred = False
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = json.loads(line)
                self.found[int(entry["index"])] = (str(entry["name"]), str(entry["reason"]))
            except (ValueError, KeyError, TypeError):
                continue  # an incomplete line of a run that was killed

    def __len__(self) -> int:
        return len(self.found)

    def __contains__(self, index: int) -> bool:
        return index in self.found

    def add(self, index: int, name: str, reason: str) -> None:
        """Adds an image; raises where they are too many."""
        if self._list(index, name, reason) and not self._deferred:
            self.require_few()

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Lists all unreadable images before raising that they are too many."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False
        self.require_few()

    def require_few(self) -> None:
        """Raises where more images are unreadable than ``max_bad`` allows."""
        if len(self) <= self.max_bad * self.total:
            return
        shown = "; ".join(f"{printable(name)}: {reason}" for name, reason in list(self.found.values())[-SHOWN:])
        listed = f"all are listed in {self.path}; " if self.path else ""
        raise UnweaveError(
            f"{len(self)} of {self.total} images cannot be read, more than `max_bad` {self.max_bad:g} allows; "
            f"{listed}the last are {shown}"
        )

    def _list(self, index: int, name: str, reason: str) -> bool:
        """Whether the image was not listed before."""
        if index in self.found:
            return False
        self.found[index] = (name, reason)
        if self.path is not None:
            # JSON escapes whatever a name may contain, undecodable bytes included.
            line = json.dumps({"index": index, "name": name, "reason": reason})
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(line + "\n")
        return True

    def gather(self) -> None:
        """Merges the lists of all processes; the first one writes them."""
        if world_size() == 1:
            return
        lists: list[dict[int, tuple[str, str]]] = [{} for _ in range(world_size())]
        torch.distributed.all_gather_object(lists, self.found)
        for found in lists:
            for index, (name, reason) in found.items():
                self._list(index, name, reason)
