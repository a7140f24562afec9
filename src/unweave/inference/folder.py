"""Features in a folder, a table of several Parquet files that any number of processes write together.

_manifest.json             what the features were made from, and the number of images of each file
part-00000.parquet, …      the rows of images 0 to k − 1, k to 2k − 1, …: a file appears when it is complete
_unreadable-00000.jsonl    the images of that part that have no row, where there are any

The images of a file do not depend on who writes it. The processes need not be connected: each takes the files of its
share that do not exist yet, and so does the next run after an interruption, with any number of processes. Programs that
read a folder of Parquet files ignore names that begin with an underscore.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from unweave._version import __version__
from unweave.data.unreadable import UnreadableImages
from unweave.describe import describe, differences
from unweave.distributed import Place, this_process
from unweave.errors import UnweaveError
from unweave.files import locked, make_writable_folder, write_text
from unweave.inference.config import EmbedConfig
from unweave.inference.model import SpacesModel
from unweave.inference.tables import FORMATS
from unweave.settings import identity

MANIFEST = "_manifest.json"
MOST_PER_FILE = 32_768
"""Images of a file by default: what an interruption can cost each process."""


def is_folder(out: str | Path) -> bool:
    """Whether features are written to a folder: it exists, ends with a slash, or there are several processes.

    Examples:
        >>> is_folder("features/"), is_folder("features"), is_folder("features.parquet")
        (True, False, False)
    """
    path, ends = Path(out), (os.sep, "/")
    return str(out).endswith(ends) or path.is_dir() or (this_process().count > 1 and path.suffix.lower() not in FORMATS)


def check_folder(path: Path) -> None:
    """Raises unless ``path`` is new, empty or a folder of features; creates it."""
    if path.exists() and not path.is_dir():
        raise UnweaveError(f"`out` {path} is not a folder: choose another name")
    if path.is_dir():
        others = [entry.name for entry in path.iterdir() if not entry.name.startswith(".")]
        if others and not (path / MANIFEST).is_file():  # in this order: another process may be writing it
            raise UnweaveError(
                f"`out` {path} is a folder with other files: name a new one, or a file that ends with "
                f"{' or '.join(FORMATS)}"
            )
    make_writable_folder(path)


@dataclass(frozen=True)
class EmbeddingFolder:
    """The files of a folder of features."""

    path: Path
    images: int
    images_per_file: int

    @classmethod
    def open(cls, path: Path) -> "EmbeddingFolder":
        """The folder that ``start`` has made."""
        manifest = _read(path / MANIFEST)
        return cls(path, manifest["images"], manifest["images_per_file"])

    @classmethod
    def start(cls, path: Path, made_from: Mapping[str, Any], images: int, config: EmbedConfig) -> "EmbeddingFolder":
        """Makes the folder, or resumes it where its files were made from the same and have the same size.

        Args:
            path: the folder.
            made_from: the identities of model and images, and the settings that matter.
            images: their number.
            config: the size of the files, and whether files of something else are replaced.
        """
        check_folder(path)
        new = {
            "unweave": __version__,
            "images": images,
            "images_per_file": _images_per_file(images, config, this_process()),
            "made_from": made_from,
        }
        with locked(path / ".lock"):  # the first of several processes makes it, the others find it made
            if not (path / MANIFEST).is_file():
                write_text(path / MANIFEST, json.dumps(new, indent=1) + "\n")
            elif changes := _changes(_read(path / MANIFEST)["made_from"], made_from):
                if not config.overwrite:
                    raise UnweaveError(
                        f"`out` {path} has features of {', '.join(changes)}: choose another folder, or set `overwrite`"
                    )
                for pattern in ("part-*.parquet", "_unreadable-*.jsonl"):
                    for file in path.glob(pattern):
                        file.unlink(missing_ok=True)
                write_text(path / MANIFEST, json.dumps(new, indent=1) + "\n")
        return cls.open(path)

    @property
    def count(self) -> int:
        """The number of files when it is complete."""
        return -(-self.images // self.images_per_file)

    @property
    def complete(self) -> bool:
        """Whether all files exist."""
        return len(self.finished()) == self.count

    def numbers(self, part: int) -> range:
        """The numbers of the images of a part."""
        return range(part * self.images_per_file, min(self.images, (part + 1) * self.images_per_file))

    def file(self, part: int) -> Path:
        """The file of a part."""
        return self.path / f"part-{part:05}.parquet"

    def finished(self) -> list[int]:
        """The parts whose files exist."""
        present = set(os.listdir(self.path))  # one request, however many files there are
        return [part for part in range(self.count) if self.file(part).name in present]

    def share(self, place: Place) -> list[int]:
        """The parts of one of several processes whose files do not exist."""
        finished = set(self.finished())
        return [part for part in range(place.rank, self.count, place.count) if part not in finished]

    def images_done(self) -> int:
        """The number of images of the files that exist, unreadable ones included."""
        return sum(len(self.numbers(part)) for part in self.finished())

    def save_unreadable(self, part: int, unreadable: UnreadableImages) -> None:
        """Lists those images of a part that cannot be read; called before its file appears."""
        found = [
            {"index": i, "name": unreadable.found[i][0], "reason": unreadable.found[i][1]}
            for i in self.numbers(part)
            if i in unreadable
        ]
        if found:
            write_text(self._unreadable(part), "".join(json.dumps(entry) + "\n" for entry in found))

    def add_unreadable(self, unreadable: UnreadableImages) -> None:
        """Adds the images of finished parts that cannot be read."""
        present = set(os.listdir(self.path))
        for part in self.finished():
            if (file := self._unreadable(part)).name in present:
                unreadable.found.update(UnreadableImages(0, 1.0, file).found)

    def _unreadable(self, part: int) -> Path:
        return self.path / f"_unreadable-{part:05}.jsonl"


def identify(model: SpacesModel, images: str, config: EmbedConfig) -> dict[str, Any]:
    """What features are made from: the model's weights and preparation, the images' identity, and settings."""
    about = [list(model.input_shape), list(model.outputs), describe(model.preparation)]
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return {"model": digest.hexdigest()[:16], "images": images, "settings": identity(config)}


def _images_per_file(images: int, config: EmbedConfig, place: Place) -> int:
    """Whole batches, so that the batches are those of one process; by default as many files for each process."""
    size = config.images_per_file
    if size is None:
        rounds = math.ceil(images / (MOST_PER_FILE * place.count))
        size = math.ceil(images / (rounds * place.count))
    return -(-size // config.batch_size) * config.batch_size


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """In words, how what is asked for differs from what the folder holds."""
    words = {"model": "another model", "images": "other images"}
    return [
        words.get(place) or f"other settings (`{place.split('.')[-1]}` was {before}, now {now})"
        for place, before, now in differences(old, new)
    ]


def _read(file: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        usable = manifest["images"] >= 1 and manifest["images_per_file"] >= 1 and manifest["made_from"]
    except OSError as error:
        raise UnweaveError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        usable = False
    if not usable:
        raise UnweaveError(f"{file} is damaged: remove the folder {file.parent} and start again")
    return manifest
