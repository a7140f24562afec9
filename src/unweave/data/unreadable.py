"""Images that cannot be read: counted, listed in a file, and limited in number."""

from pathlib import Path

import torch

from unweave.distributed import world_size
from unweave.errors import UnweaveError


class UnreadableImageError(Exception):
    """An image that cannot be read; the message is the reason."""


class UnreadableImages:
    """Collects images that cannot be read, and appends them to a file of ``name<tab>reason`` lines.

    Args:
        total: the number of images.
        max_bad: the fraction of them that may be unreadable.
        path: the file; what it lists already is kept. None writes no file.

    Examples:
        >>> unreadable = UnreadableImages(total=100, max_bad=0.05)
        >>> unreadable.add("a.jpg", "the file is empty")
        >>> len(unreadable)
        1
    """

    def __init__(self, total: int, max_bad: float, path: Path | None = None) -> None:
        self.total, self.max_bad, self.path = total, max_bad, path
        self.reasons: dict[str, str] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
                name, _, reason = line.partition("\t")
                self.reasons[name] = reason

    def __len__(self) -> int:
        return len(self.reasons)

    def add(self, name: str, reason: str) -> None:
        """Adds an image; raises where they are too many."""
        name = name.replace("\n", " ").replace("\t", " ")
        if self._list(name, reason) and len(self) > self.max_bad * self.total:
            listed = f"all are listed in {self.path}; " if self.path else ""
            raise UnweaveError(
                f"{len(self)} of {self.total} images cannot be read, more than `max_bad` {self.max_bad:g} allows; "
                f"{listed}the last is {name}: {reason}"
            )

    def _list(self, name: str, reason: str) -> bool:
        """Whether the image was not listed before."""
        if name in self.reasons:
            return False
        self.reasons[name] = reason
        if self.path is not None:
            with open(self.path, "a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{name}\t{reason}\n")
        return True

    def gather(self) -> None:
        """Merges the lists of all processes; the first one writes them."""
        if world_size() == 1:
            return
        found: list[dict[str, str]] = [{} for _ in range(world_size())]
        torch.distributed.all_gather_object(found, self.reasons)
        for reasons in found:
            for name, reason in reasons.items():
                self._list(name, reason)
