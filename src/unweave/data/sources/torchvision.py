"""Data sets of torchvision by name."""

import inspect
from pathlib import Path

from unweave.data.sources.dataset import DatasetSource
from unweave.errors import UnweaveError


class TorchvisionImages(DatasetSource):
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
            super().__init__(kind(root, **settings))
        except (RuntimeError, OSError, ValueError, ModuleNotFoundError) as error:
            reason = " ".join(str(error).split()).split(" You can use")[0]
            raise UnweaveError(f"torchvision's {name} cannot be read from {root}: {reason}") from None
