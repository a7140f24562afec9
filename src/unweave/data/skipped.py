"""Images that could not be read: counted, listed, and after too many of them the run is stopped."""

from pathlib import Path

import torch

from unweave.errors import UnweaveError
from unweave.processes import world_size


class Skipped:
    """Collects what could not be read, and writes it to a file of ``name<tab>reason`` lines.

    Args:
        total: images in all.
        max_bad: the share of them that may be unreadable.
        path: the file; a run that goes on adds to what is listed there. None keeps no list.
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
        """Lists one more; raises when they are too many."""
        name = name.replace("\n", " ").replace("\t", " ")
        if self._list(name, reason) and len(self) > self.max_bad * self.total:
            listed = f"all are listed in {self.path}; " if self.path else ""
            raise UnweaveError(
                f"{len(self)} of {self.total} images cannot be read, more than --max-bad {self.max_bad:g} allows; "
                f"{listed}the last is {name}: {reason}"
            )

    def _list(self, name: str, reason: str) -> bool:
        """Whether it is new."""
        if name in self.reasons:
            return False
        self.reasons[name] = reason
        if self.path is not None:
            with open(self.path, "a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{name}\t{reason}\n")
        return True

    def gather(self) -> None:
        """Under several processes, each of which has met its own: the first one lists all of them."""
        if world_size() == 1:
            return
        found: list[dict[str, str]] = [{} for _ in range(world_size())]
        torch.distributed.all_gather_object(found, self.reasons)
        for reasons in found:
            for name, reason in reasons.items():
                self._list(name, reason)
