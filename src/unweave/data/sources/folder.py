"""A folder of images, flat or nested."""

import os
from collections import Counter
from pathlib import Path

from unweave.data.decode import ARRAYS, SUFFIXES
from unweave.data.sources.base import MISSING
from unweave.errors import UnweaveError


class FolderImages:
    """Every image under a folder, sorted by path; hidden files are ignored.

    Where images are in subfolders, the name of the first folder on its path is an image's class. Files without an image
    suffix are not read; ``others`` counts them by suffix. With ``arrays``, numpy arrays are images too.
    """

    def __init__(self, root: Path, *, arrays: bool = False) -> None:
        suffixes = SUFFIXES | {ARRAYS} if arrays else SUFFIXES
        self.root: Path | None = root
        self.others: Counter[str] = Counter()
        paths = []
        seen = set()  # a link may point to a folder above it
        for folder, folders, files in os.walk(root, followlinks=True):
            if (real := os.path.realpath(folder)) in seen:
                folders.clear()
                continue
            seen.add(real)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(files):
                suffix = os.path.splitext(name)[1].lower()
                if suffix in suffixes and not name.startswith("."):
                    paths.append(os.path.relpath(os.path.join(folder, name), root))
                else:
                    self.others[suffix or name] += 1
        self._names = sorted(paths)
        self._label([name.split(os.sep)[0] if os.sep in name else None for name in self._names])

    @classmethod
    def of_files(cls, files: list[Path]) -> "FolderImages":
        """These files; the folder of each is its class, where there are several."""
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
        """Itself; raises where it is empty."""
        if not len(self):
            found = ", ".join(f"{count} {suffix}" for suffix, count in self.others.most_common(3))
            raise UnweaveError(
                f"there are no images in {self.root}" + (f", only {found}" if found else ": it is empty")
            )
        return self

    def __len__(self) -> int:
        return len(self._names)

    def read(self, i: int) -> Path:
        """The path of image i."""
        return Path(self._names[i]) if self.root is None else self.root / self._names[i]

    def name(self, i: int) -> str:
        """The path of image i relative to the folder."""
        return self._names[i]

    def check(self) -> None:
        """Raises where the folder was removed."""
        if self.root is not None and not self.root.is_dir():
            raise UnweaveError(f"the folder {self.root} was removed; restore it, and the same command resumes")
