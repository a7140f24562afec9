"""Writing an index: images are embedded and appended in parts."""

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unweave.data.decode import Decoder
from unweave.data.resources import default_workers
from unweave.data.sources.base import MISSING, Source, escape_name, unescape_name
from unweave.data.sources.parquet import TableImages
from unweave.data.unreadable import UnreadableImages
from unweave.errors import UnweaveError, printable
from unweave.inference import SpacesModel
from unweave.inference.config import EmbedConfig
from unweave.inference.embed import encode, usable_device
from unweave.search.config import IndexConfig
from unweave.search.decoding import Chunk, decoded_chunks
from unweave.search.files import IndexFiles, Manifest
from unweave.search.geometry import FITTED, Geometry, enough

PART = 2048
"""Images after which rows are written: an interruption loses no more."""
LOCAL = "file://"
"""The address of a file of this machine begins with it, and its path follows: both name the same images."""


def new_manifest(model: SpacesModel, run: str | None, config: IndexConfig) -> Manifest:
    """The manifest of an index without rows."""
    spaces = model.spaces if config.spaces is None else config.spaces
    if unknown := [space for space in spaces if space not in model.outputs]:
        raise UnweaveError(f"`spaces`: the run has no space {unknown[0]!r}, it has {', '.join(model.outputs)}")
    if not spaces:
        raise UnweaveError("`spaces` is empty: the run has no space to index")
    if config.store_url is not None and config.store != "qdrant":
        raise UnweaveError(f"`store_url` is the address of a Qdrant server, and `store` is {config.store}")
    with torch.no_grad():
        features = model(torch.zeros(1, *model.input_shape, device=model.device))
    store: dict[str, Any] = {"name": config.store}
    if config.store == "qdrant":
        store |= {"url": config.store_url, "collection": f"unweave-{secrets.token_hex(8)}"}
    return Manifest(
        run={"identity": model.identity, "path": run},
        spaces={space: features[space].shape[1] for space in spaces},
        store=store,
        whitened=config.whiten,
    )


def require_same_run(files: IndexFiles, manifest: Manifest, model: SpacesModel) -> None:
    """Raises where an index was made with another run."""
    if model.identity != manifest.run["identity"]:
        made = manifest.run["path"] or manifest.run["identity"]
        raise UnweaveError(
            f"the index {files.path} was made with another run ({made}), whose vectors cannot be compared: use that "
            "run, or build an index of this one in another folder"
        )


def require_same_settings(files: IndexFiles, old: Manifest, new: Manifest) -> None:
    """Raises where an index that is built again was begun with other settings."""
    for name, before, now in (
        ("store", old.store["name"], new.store["name"]),
        ("spaces", ", ".join(old.spaces), ", ".join(new.spaces)),
        ("whiten", old.whitened, new.whitened),
    ):
        if old.run["identity"] == new.run["identity"] and before != now:
            raise UnweaveError(
                f"`{name}` of the index {files.path} is {before}, not {now}: it is fixed when an index is built"
            )


def with_address(old: Manifest, new: Manifest) -> Manifest:
    """The old manifest with the address of the new one's store, which is filled again if it is another."""
    if old.store.get("url") == new.store.get("url"):
        return old
    return replace(old, store={**old.store, "url": new.store["url"]}, stored=0)


class IndexWriter:
    """Adds and removes rows of an index that this process holds."""

    def __init__(self, files: IndexFiles, manifest: Manifest, model: SpacesModel, config: EmbedConfig) -> None:
        self._files, self.manifest, self._model, self._config = files, manifest, model, config

    def add(
        self, source: Source, *, whole: bool, on_progress: Callable[[int, int], None] | None = None
    ) -> UnreadableImages:
        """Embeds the images that are not in the index yet.

        Args:
            source: the images.
            whole: raise where the index holds an image that is not of this source.
            on_progress: called with the number of images done, and of all to be done.
        """
        keys = keys_of(source)
        held = self._files.table(self.manifest, self.manifest.rows, ["key", "file"]).to_pydict()
        present = {key.removeprefix(LOCAL): file for key, file in zip(held["key"], held["file"], strict=True)}
        if whole:
            wanted = set(keys)
            self._refuse_others([file for key, file in present.items() if key not in wanted])
        numbers = [i for i, key in enumerate(keys) if key not in present]
        unreadable = UnreadableImages(len(source), self._config.max_bad)
        if numbers:
            labels = _Labels(source, self.manifest.classes)
            root = getattr(source, "root", None)
            roots = {*self.manifest.roots, *([escape_name(os.path.abspath(root))] if root is not None else ())}
            self.manifest = replace(self.manifest, classes=labels.classes, roots=sorted(roots))
            self._embed(source, numbers, keys, labels, unreadable, on_progress)
        if not self.manifest.rows:
            raise UnweaveError("none of the images can be read")
        return unreadable

    def images_to_fit(self, source: Source) -> list[int]:
        """The images by which the geometry of the vectors is to be fitted; none where that is done already."""
        if not self.manifest.whitened or self.manifest.rows or self._files.geometry_file.exists():
            return []
        order = torch.randperm(len(source), generator=torch.Generator().manual_seed(0))
        return sorted(order[:FITTED].tolist())

    def fit_geometry(
        self, source: Source, numbers: Sequence[int], on_progress: Callable[[int], None] | None = None
    ) -> None:
        """Fits the geometry by some images, of which those that cannot be read are left out, and keeps it."""
        self._model.to(usable_device(self._config.device))
        parts: dict[str, list[torch.Tensor]] = {}
        done = 0
        some = any(enough(len(numbers), d) for d in self.manifest.spaces.values())
        for batch in self._decoded(source, numbers if some else []):
            source.check()
            images = np.concatenate([chunk.images for chunk in batch])
            features = self._features(images) if len(images) else {}
            for space in set(features) & set(self.manifest.spaces):
                parts.setdefault(space, []).append(features[space].float().cpu())
            done += sum(map(len, batch))
            if on_progress:
                on_progress(done)
        Geometry.fit({space: torch.cat(found) for space, found in parts.items()}).save(self._files.geometry_file)

    def _refuse_others(self, files: Sequence[str | None]) -> None:
        """Raises for the files of images that the index holds and the source does not."""
        if not files:
            return
        if all(file is not None and not os.path.exists(unescape_name(file)) for file in files):
            raise UnweaveError(
                f"the index {self._files.path} holds images whose files no longer exist ({len(files):,}, such as "
                f"{printable(str(files[0]))}): remove them with `prune`"
            )
        raise UnweaveError(
            f"the index {self._files.path} holds other images: add these with `add`, or choose another `out`"
        )

    def _embed(
        self,
        source: Source,
        numbers: Sequence[int],
        keys: Sequence[str],
        labels: "_Labels",
        unreadable: UnreadableImages,
        on_progress: Callable[[int, int], None] | None,
    ) -> None:
        self._model.to(usable_device(self._config.device))
        done, part = 0, _Part(self.manifest.spaces)
        for batch in self._decoded(source, numbers):
            for i, reason in (bad for chunk in batch for bad in chunk.bad):
                source.check()
                unreadable.add(i, source.name(i), reason)
            for chunk in batch:
                part.add(chunk)
            part.add_vectors(self._vectors(np.concatenate([chunk.images for chunk in batch])))
            done += sum(map(len, batch))
            if len(part) >= PART or done == len(numbers):
                self._write(part, source, keys, labels)
                part = _Part(self.manifest.spaces)
            if on_progress:
                on_progress(done, len(numbers))

    def _write(self, part: "_Part", source: Source, keys: Sequence[str], labels: "_Labels") -> None:
        if len(part):
            about: dict[str, Sequence[Any]] = {
                "path": [escape_name(source.name(i)) for i in part.numbers],
                "label": [labels.number(i) for i in part.numbers],
                "class_name": [labels.name(i) for i in part.numbers],
                "file": [None if file is None else escape_name(file) for file in part.files],
                "key": [keys[i] for i in part.numbers],
            }
            self.manifest = self._files.append(self.manifest, about, part.vectors, part.thumbnails)

    @property
    def _decoder(self) -> Decoder:
        return replace(self._model.decoder, max_pixels=self._config.max_pixels)

    def _decoded(self, source: Source, numbers: Sequence[int]) -> Iterator[list[Chunk]]:
        workers = default_workers() if self._config.workers is None else self._config.workers
        return _batched(decoded_chunks(source, numbers, self._decoder, workers), self._config.batch_size)

    @cached_property
    def _geometry(self) -> Geometry:
        return self._files.geometry(self.manifest)

    def _features(self, images: np.ndarray) -> dict[str, torch.Tensor]:
        """The features of images (n, h, w, c)."""
        return encode(self._model, torch.from_numpy(images).to(self._model.device).permute(0, 3, 1, 2))

    def _vectors(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """The vectors of images (n, h, w, c) in each space."""
        if not len(images):
            return {}
        features = self._features(images)
        return {
            space: self._geometry.vectors(space, features[space]).numpy().astype(np.float16)
            for space in self.manifest.spaces
        }


def keys_of(source: Source) -> list[str]:
    """A text for each image by which it is recognised: its absolute path, or its place in a table."""
    if isinstance(source, TableImages):
        places = (source.place(i) for i in range(len(source)))
        return [
            escape_name(f"{os.path.abspath(file) if isinstance(file, Path) else file}#{row}").removeprefix(LOCAL)
            for file, row in places
        ]
    root = getattr(source, "root", None)
    if hasattr(source, "root"):  # a folder, or a list of files
        start = os.getcwd() if root is None else os.path.abspath(root)
        return [escape_name(os.path.normpath(os.path.join(start, source.name(i)))) for i in range(len(source))]
    return [escape_name(source.name(i)) for i in range(len(source))]


class _Part:
    """Rows that are not written yet."""

    def __init__(self, spaces: Iterable[str]) -> None:
        self.numbers: list[int] = []
        self.files: list[str | None] = []
        self.thumbnails: list[bytes] = []
        self._vectors: dict[str, list[np.ndarray]] = {space: [] for space in spaces}

    def __len__(self) -> int:
        return len(self.numbers)

    def add(self, chunk: Chunk) -> None:
        """The images of a chunk that can be read, without their vectors."""
        self.numbers += chunk.numbers
        self.files += chunk.files
        self.thumbnails += chunk.thumbnails

    def add_vectors(self, vectors: Mapping[str, np.ndarray]) -> None:
        """Their vectors in each space."""
        for space, some in vectors.items():
            self._vectors[space].append(some)

    @property
    def vectors(self) -> dict[str, np.ndarray]:
        """(n, d) of each space."""
        return {space: np.concatenate(parts) for space, parts in self._vectors.items()}


class _Labels:
    """Labels as numbers of the index's classes: another source may number its classes otherwise."""

    def __init__(self, source: Source, classes: Sequence[str]) -> None:
        self._source = source
        self._names = [escape_name(name) for name in source.classes or []]
        self.classes = [*classes, *(name for name in self._names if name not in set(classes))]
        self._numbers = {name: i for i, name in enumerate(self.classes)}

    def _given(self, i: int) -> int | None:
        labels = self._source.labels
        return None if labels is None or labels[i] == MISSING else labels[i]

    def name(self, i: int) -> str | None:
        """The name of the class of image i."""
        label = self._given(i)
        return None if label is None or label >= len(self._names) else self._names[label]

    def number(self, i: int) -> int | None:
        """The number of the class of image i."""
        name = self.name(i)
        return self._given(i) if name is None else self._numbers[name]


def _batched(chunks: Iterator[Chunk], least: int) -> Iterator[list[Chunk]]:
    """Lists of chunks with at least so many images, but for the last."""
    some: list[Chunk] = []
    for chunk in chunks:
        some.append(chunk)
        if sum(map(len, some)) >= least:
            yield some
            some = []
    if some:
        yield some
