"""Data sets of torchvision by name."""

import inspect
from pathlib import Path
from typing import Any

from PIL import Image

from unweave.errors import UnweaveError


class TorchvisionImages:
    """The training part of a torchvision data set that is stored under ``root``."""

    def __init__(self, name: str, root: Path) -> None:
        import torchvision.datasets as sets

        kind = getattr(sets, name, None) if name in sets.__all__ else None
        if kind is None:
            close = [n for n in sets.__all__ if n.lower().startswith(name[:4].lower())]
            hint = f"; did you mean {', '.join(close[:3])}?" if close else ""
            raise UnweaveError(f"torchvision has no data set named {name!r}{hint}")
        accepted = inspect.signature(kind).parameters
        settings = {"train": True} if "train" in accepted else {"split": "train"} if "split" in accepted else {}
        try:
            self._set: Any = kind(root, **settings)
        except (RuntimeError, OSError, ValueError, ModuleNotFoundError) as error:
            reason = " ".join(str(error).split()).split(" You can use")[0]
            raise UnweaveError(f"torchvision's {name} cannot be read from {root}: {reason}") from None
        self._name = name
        self.classes: list[str] | None = (
            [str(c) for c in classes] if (classes := getattr(self._set, "classes", None)) else None
        )
        self.labels = self._labels()

    def _labels(self) -> list[int] | None:
        for attribute in ("targets", "labels", "_labels"):
            values = getattr(self._set, attribute, None)
            if values is not None and len(values) == len(self._set):
                try:
                    return [int(value) for value in values]
                except (TypeError, ValueError):
                    return None
        return None

    def __len__(self) -> int:
        return len(self._set)

    def read(self, i: int) -> Image.Image:
        """Image i of the data set."""
        image = self._set[i][0]
        return image

    def name(self, i: int) -> str:
        """The data set's name and the image's number."""
        return f"{self._name}#{i}"

    def check(self) -> None:
        """Nothing to check."""
