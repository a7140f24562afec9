"""A folder of images, flat or nested."""

import os
from collections import Counter
from pathlib import Path

from unweave.data.images import SUFFIXES
from unweave.data.source import MISSING
from unweave.errors import UnweaveError


class FolderImages:
    """Every image under a folder, in the order of their paths; hidden ones are left out.

    Where images lie in folders of their own, the name of the first folder is an image's class. What is not an image by
    its suffix is not read at all, and is counted in ``others``.
    """

    def __init__(self, root: Path) -> None:
        self.root: Path | None = root
        self.others: Counter[str] = Counter()
        paths = []
        seen = set()  # a link may lead back to a folder above it
        for folder, folders, files in os.walk(root, followlinks=True):
            if (real := os.path.realpath(folder)) in seen:
                folders.clear()
                continue
            seen.add(real)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(files):
                suffix = os.path.splitext(name)[1].lower()
                if suffix in SUFFIXES and not name.startswith("."):
                    paths.append(os.path.relpath(os.path.join(folder, name), root))
                else:
                    self.others[suffix or name] += 1
        self._names = sorted(paths)
        self._label([name.split(os.sep)[0] if os.sep in name else None for name in self._names])

    @classmethod
    def of_files(cls, files: list[Path]) -> "FolderImages":
        """Exactly these files; the folder each lies in is its class, where there are several."""
        source = cls.__new__(cls)
        source.root, source.others = None, Counter()
        source._names = [str(file) for file in files]
        source._label([file.parent.name for file in files])
        return source

    def _label(self, owners: list[str | None]) -> None:
        names = sorted({owner for owner in owners if owner is not None})
        self.classes: list[str] | None = names if len(names) > 1 else None
        self.labels: list[int] | None = None
        if self.classes:
            number = {name: i for i, name in enumerate(names)}
            self.labels = [MISSING if owner is None else number[owner] for owner in owners]

    def or_error(self) -> "FolderImages":
        """Itself, unless it is empty."""
        if not len(self):
            found = ", ".join(f"{count} {suffix}" for suffix, count in self.others.most_common(3))
            raise UnweaveError(
                f"there are no images in {self.root}" + (f", only {found}" if found else ": it is empty")
            )
        return self

    def __len__(self) -> int:
        return len(self._names)

    def read(self, i: int) -> Path:
        """Where image i lies."""
        return Path(self._names[i]) if self.root is None else self.root / self._names[i]

    def name(self, i: int) -> str:
        """The path under the folder."""
        return self._names[i]

    def check(self) -> None:
        """The folder may be removed while a run reads from it."""
        if self.root is not None and not self.root.is_dir():
            raise UnweaveError(f"the folder {self.root} is gone; put it back, and the same command goes on")
