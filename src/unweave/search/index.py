"""``uw.Index``: the images of a run, found by content, by style, or by any mix of them.

score = Σ wᵢ / spreadᵢ · cosᵢ, where cosᵢ is the cosine of whitened embeddings in space i and spreadᵢ its standard
deviation over random pairs, so that a weight of 1 means the same in every space. A negative weight seeks the opposite
in a space, not merely something different.
"""

import math
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unweave.console import ProgressBar
from unweave.data import open_source, unescape_name
from unweave.data.sources.base import escape_name
from unweave.data.unreadable import UnreadableImages
from unweave.errors import UnweaveError, printable
from unweave.files import atomic_write
from unweave.inference import SpacesModel, load
from unweave.inference.embed import usable_device
from unweave.inference.inputs import is_one_image
from unweave.search.config import BuildConfig
from unweave.search.exact import cosines_of, top_rows
from unweave.search.files import IndexFiles, Manifest
from unweave.search.graph import duplicate_groups, nearest_neighbours, outlier_rows
from unweave.search.ready import keep_rows, make_ready, require_store
from unweave.search.rows import IndexRows
from unweave.search.stores import open_store
from unweave.search.writing import (
    IndexWriter,
    new_manifest,
    require_same_run,
    require_same_settings,
    with_address,
)
from unweave.settings import require_number, with_settings

Vectors = dict[str, np.ndarray]
FETCHED = 10_000
"""Where fewer than k of so many rows from a store satisfy the conditions, all rows are searched exactly."""
LEAST_WEIGHT, LARGEST_WEIGHT = 1e-6, 1e6
"""Scores are float32: sizes of weights between which they neither vanish nor overflow."""


@dataclass(frozen=True)
class Hit:
    """An image that a search has found.

    Examples:
        >>> Hit(3, "a.jpg", 0, "cat", 1.5, {"content": 0.9}).scores["content"]
        0.9
    """

    row: int
    path: str
    label: int | None
    class_name: str | None
    score: float
    """Σ wᵢ / spreadᵢ · cosᵢ."""
    scores: dict[str, float]
    """The cosine in each space."""


class Index(IndexRows):
    """The images of a run, with a unit vector in each space, a label and a thumbnail.

    Args:
        path: the folder of the index.
        run: the run it was made with, as a folder or a model; by default the folder that it was made from.

    Examples:
        >>> import tempfile, unweave as uw
        >>> from PIL import Image
        >>> model = uw.SpacesModel(uw.Encoder(uw.SmallConvNet(16), ("content",), dim=4), input_shape=(3, 16, 16))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for color in ("red", "green", "blue"):
        ...         Image.new("RGB", (20, 16), color).save(f"{folder}/{color}.png")
        ...     index = uw.Index.build(model, folder, f"{folder}/index", workers=0, device="cpu", progress=False)
        ...     hits = index.search(f"{folder}/red.png", weights={"content": 1}, k=1)
        >>> len(index), index.spaces, hits[0].path in ("green.png", "blue.png")
        (3, ('content',), True)
    """

    def __init__(self, path: str | Path, *, run: str | Path | SpacesModel | None = None) -> None:
        self._given, self._lock = run, threading.RLock()
        self._model: SpacesModel | None = None
        self.unreadable: UnreadableImages | None = None
        """The images of the last ``build`` or ``add`` that cannot be read."""
        super().__init__(path)

    @classmethod
    def open(cls, path: str | Path, *, run: str | Path | SpacesModel | None = None) -> "Index":
        """The index in a folder; ``run`` is where the run is now, if it was moved. See ``Index``."""
        return cls(path, run=run)

    @classmethod
    def build(
        cls,
        run: str | Path | SpacesModel,
        data: Any,
        out: str | Path,
        *,
        config: BuildConfig | None = None,
        progress: bool = True,
        **settings: Any,
    ) -> "Index":
        """Embeds images and makes an index of them; one that was interrupted is completed.

        Args:
            run: the folder of a run or of an export, or a model.
            data: what ``open_source`` takes.
            out: the folder of the index.
            config: the settings to start from.
            progress: show a progress bar.
            settings: settings to change, by name, as the flags of ``unweave index``: store, spaces, workers, …
        """
        config = _with_settings(config, settings)
        usable_device(config.embedding.device)
        model = run if isinstance(run, SpacesModel) else load(run)
        files, place = IndexFiles(out), None if isinstance(run, SpacesModel) else str(Path(run).absolute())
        with files.writing():
            manifest = new_manifest(model, place, config.index)
            if files.exists():
                old = files.load()
                require_same_run(files, old, model)
                require_same_settings(files, old, manifest)
                manifest = with_address(old, manifest)
            require_store(files, manifest)
            files.save(manifest)
            unreadable = _add(files, model, data, config, whole=True, progress=progress)
        index = cls(out, run=run)
        index.unreadable = unreadable
        return index

    def add(self, data: Any, *, config: BuildConfig | None = None, progress: bool = True, **settings: Any) -> int:
        """Adds the images that the index does not hold yet; returns their number. Arguments are those of ``build``.

        Labels are matched by the names of their classes. Row numbers do not change.
        """
        config, before = _with_settings(config, settings), len(self)
        model = self.model
        self.close()
        with self._files.writing():
            require_store(self._files, self._files.load())
            self.unreadable = _add(self._files, model, data, config, whole=False, progress=progress)
        model.cpu()
        self._load()
        return len(self) - before

    def prune(self, *, removed: Sequence[str | Path] = ()) -> int:
        """Removes images whose files no longer exist; returns their number. The rows behind them move up.

        Images that are not files, such as those of Parquet files, are kept.

        Args:
            removed: folders of images that were removed for good. Where another folder that the index has images of is
                absent, nothing is removed: its disk may not be mounted.
        """
        self.close()
        with self._files.writing():
            manifest = self._files.load()
            stored = self._files.table(manifest, manifest.rows, ["file"])["file"].to_pylist()
            names = [None if name is None else os.path.normpath(unescape_name(name)) for name in stored]
            roots = [unescape_name(root) for root in manifest.roots]
            _require_roots(roots, names, [os.path.abspath(Path(folder).expanduser()) for folder in removed])
            kept = np.flatnonzero([name is None or os.path.exists(name) for name in names])
            if not len(kept):
                raise UnweaveError(f"no image of {self._files.path} exists any more: remove the index instead")
            remaining = [names[row] for row in kept]
            manifest = replace(manifest, roots=[escape_name(root) for root in roots if _count_in(root, remaining)])
            if len(kept) < manifest.rows:
                make_ready(self._files, keep_rows(self._files, manifest, kept))
            else:
                self._files.save(manifest)
        self._load()
        return len(names) - len(kept)

    def _open(self, manifest: Manifest) -> None:
        super()._open(manifest)
        self._graphs: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._geometry = self._files.geometry(manifest)
        self._store = open_store(manifest.store, self._files.path, sum(manifest.spaces.values()))

    def close(self) -> None:
        """Releases the store's connections and locks."""
        if self._store is not None:
            self._store.close()

    @property
    def model(self) -> SpacesModel:
        """The model of the run; raises where it is not the one that the index was made with."""
        with self._lock:
            if self._model is None:
                run = self._given if self._given is not None else self._manifest.run["path"]
                if run is None:
                    raise UnweaveError(
                        "the index was made with a model in memory: open it with Index.open(path, run=…)"
                    )
                model = run if isinstance(run, SpacesModel) else self._loaded(run)
                require_same_run(self._files, self._manifest, model)
                self._model = model
            return self._model

    def _loaded(self, run: str | Path) -> SpacesModel:
        try:
            return load(run)
        except UnweaveError as error:
            if self._given is not None:
                raise
            raise UnweaveError(
                f"the run that the index was made with cannot be opened ({error}): if it was moved, name its folder "
                "with `run`"
            ) from None

    def search(
        self,
        query: Any,
        *,
        weights: Mapping[str, float] | None = None,
        minimum: Mapping[str, float] | None = None,
        where: str | None = None,
        k: int = 20,
    ) -> list[Hit]:
        """The images with the largest scores, best first. An image of the index does not find itself.

        Args:
            query: a row number, the name of an image of the index, a path, a PIL image, the bytes of an image file, an
                array or tensor; or an embedding of the model for each space.
            weights: of each space, of either sign and of size 1e-6 to 1e6, or 0; spaces without one count nothing. By
                default the first space has 1.
            minimum: the smallest cosine in a space.
            where: which images to consider, such as ``label = 'cat'`` (see ``unweave.search.where``).
            k: how many images to return.
        """
        require_number("k", k, ">= 1")
        chosen = self._checked_numbers("weights", {self.spaces[0]: 1.0} if weights is None else weights)
        for space, weight in chosen.items():
            if weight and not LEAST_WEIGHT <= abs(weight) <= LARGEST_WEIGHT:
                raise UnweaveError(
                    f"`weights`: that of {space} must be 0, or {LEAST_WEIGHT:f} to {LARGEST_WEIGHT:,.0f} with either "
                    f"sign, not {weight:g}; only the ratios of weights matter: use numbers around 1"
                )
        floors = self._checked_numbers("minimum", minimum or {})
        for space, floor in floors.items():
            if abs(floor) > 1:
                raise UnweaveError(f"`minimum`: that of {space} must be a cosine between -1 and 1, not {floor:g}")
        if not any(chosen.values()):
            raise UnweaveError(f"`weights` are all zero: give one of {', '.join(self.spaces)} a weight")
        row, vectors = self._query(query, {*chosen, *floors})
        scaled = {space: weight / self._manifest.spread[space] for space, weight in chosen.items()}
        allowed = None if where is None else self.where(where)
        rows = self._nearest(vectors, scaled, floors, allowed, min(len(self), int(k) + (row is not None)))
        return self._hits(vectors, scaled, rows[rows != row][: int(k)])

    def _query(self, query: Any, spaces: set[str]) -> tuple[int | None, Vectors]:
        """The row of a query, if it is of the index, and its unit vectors."""
        row = self.row_of(query)
        if row is not None:
            return row, {space: np.asarray(z[row], np.float32) for space, z in self._vectors.items()}
        if isinstance(query, Mapping):
            return None, self._given_vectors(query, spaces)
        if isinstance(query, (str, Path)) and not Path(query).expanduser().is_file():
            raise UnweaveError(f"{printable(str(query))!r} is neither a file nor an image of the index")
        if not is_one_image(query):
            raise UnweaveError("`query` must be one image: a row, a path, bytes, a PIL image, an array or a tensor")
        features = self.model.embed(query)
        return None, {space: self._geometry.vectors(space, features[space]).numpy() for space in self.spaces}

    def _given_vectors(self, query: Mapping[str, Any], spaces: set[str]) -> Vectors:
        if missing := sorted(spaces - set(query)):
            raise UnweaveError(f"`query` has no vector of {missing[0]}, which has a weight or a minimum")
        found = {}
        for space, vector in query.items():
            dim = self._manifest.spaces[self._checked_space(space)]
            z = torch.as_tensor(np.asarray(vector, np.float32)).reshape(-1)
            if len(z) != dim:
                raise UnweaveError(f"`query`: the vector of {space} has {len(z)} numbers, the space has {dim}")
            found[space] = self._geometry.vectors(space, z).numpy()
        return found

    def _nearest(
        self, query: Vectors, weights: Mapping[str, float], minimum: Mapping[str, float], allowed: Any, k: int
    ) -> np.ndarray:
        """The rows of the answer, best first."""
        conditions = {"minimum": minimum, "allowed": allowed}
        if self._store is None or (allowed is not None and allowed.mean() < k / FETCHED):
            return top_rows(self._vectors, query, weights, k, **conditions)
        parts = [
            weights.get(space, 0.0) * query.get(space, np.zeros(dim)) for space, dim in self._manifest.spaces.items()
        ]
        vector = np.concatenate(parts)
        fetched = min(len(self), k if not minimum and allowed is None else 8 * k)
        while fetched <= max(FETCHED, k):
            with self._lock:
                ids = self._store.query(vector, fetched)
            candidates = np.zeros(len(self), bool)
            place = np.searchsorted(self._ids, ids)
            known = place < len(self)
            known[known] = self._ids[place[known]] == ids[known]
            candidates[place[known]] = True
            if allowed is not None:
                candidates &= allowed
            rows = top_rows(self._vectors, query, weights, k, minimum=minimum, allowed=candidates)
            if len(rows) == k or fetched == len(self):
                return rows
            fetched = min(len(self), 8 * fetched)
        return top_rows(self._vectors, query, weights, k, **conditions)

    def _hits(self, query: Vectors, weights: Mapping[str, float], rows: np.ndarray) -> list[Hit]:
        cosines = {space: cosines_of(self._vectors[space], rows, vector).tolist() for space, vector in query.items()}
        hits = []
        for i, row in enumerate(rows.tolist()):
            scores = {space: cosines[space][i] for space in self.spaces if space in cosines}
            score = math.fsum(weight * scores[space] for space, weight in weights.items())
            hits.append(Hit(row, self.path(row), self.label(row), self.class_name(row), score, scores))
        return hits

    def neighbours(self, space: str, *, device: str = "auto", progress: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """The 20 nearest other rows of each row in a space, and their cosines: (n, 20) each, nearest first.

        They are computed once, by comparing all pairs, and kept in the index.
        """
        space = self._checked_space(space)
        with self._lock:
            if space not in self._graphs:
                self._graphs[space] = self._stored_graph(space) or self._new_graph(space, device, progress)
            return self._graphs[space]

    def _stored_graph(self, space: str) -> tuple[np.ndarray, np.ndarray] | None:
        try:
            with np.load(self._files.neighbours_file(self._manifest, space), allow_pickle=False) as stored:
                rows, cosines = stored["rows"], stored["cosines"]
        except (OSError, ValueError, KeyError, EOFError):
            return None
        return (rows, cosines) if len(rows) == len(self) else None  # images were added since

    def _new_graph(self, space: str, device: str, progress: bool) -> tuple[np.ndarray, np.ndarray]:
        with ProgressBar(len(self), 0, f"neighbours in {space}", show=progress, step="image") as bar:
            rows, cosines = nearest_neighbours(self._vectors[space], usable_device(device), bar.advance)
        try:
            with (
                atomic_write(self._files.neighbours_file(self._manifest, space)) as temporary,
                open(temporary, "wb") as file,
            ):
                np.savez(file, rows=rows, cosines=cosines)
        except OSError:  # an index that cannot be written to, or was pruned meanwhile
            pass
        return rows, cosines

    def duplicates(self, space: str, threshold: float = 0.98) -> list[list[int]]:
        """Groups of rows that are connected by neighbours with at least this cosine, largest group first."""
        if not -1 <= threshold <= 1:
            raise UnweaveError(f"`threshold` must be a cosine between -1 and 1, not {threshold}")
        return duplicate_groups(*self.neighbours(space), threshold)

    def outliers(self, space: str, k: int = 50) -> list[tuple[int, float]]:
        """The k rows with the smallest mean cosine to their 20 nearest neighbours, and that mean."""
        require_number("k", k, ">= 1")
        return outlier_rows(self.neighbours(space)[1], k)

    def _checked_numbers(self, name: str, values: Mapping[str, float]) -> dict[str, float]:
        for space, value in values.items():
            if space not in self._manifest.spaces:
                raise UnweaveError(f"`{name}`: the index has no space {space!r}, it has {', '.join(self.spaces)}")
            if not isinstance(value, (int, float, np.number)) or not abs(value) <= sys.float_info.max:
                raise UnweaveError(f"`{name}`: {space} must have a finite number, not {value!r}")
        return {space: float(value) for space, value in values.items()}


def _require_roots(roots: Sequence[str], names: Sequence[str | None], removed: Sequence[str]) -> None:
    """Raises where a folder of images is absent, other than those that were removed."""
    for folder in removed:
        if folder not in roots:
            has = ", ".join(map(printable, roots)) or "none"
            raise UnweaveError(
                f"`removed` {printable(folder)} is not a folder that was indexed: name one of those ({has})"
            )
    for root in roots:
        if root not in removed and not os.path.isdir(root) and (count := _count_in(root, names)):
            raise UnweaveError(
                f"the folder {printable(root)}, where {count:,} of the images were, is not there: if its disk is not "
                "mounted, mount it; if it was moved, build another index; if it was removed for good, name it with "
                "`removed`"
            )


def _count_in(folder: str, names: Sequence[str | None]) -> int:
    """How many files are in a folder."""
    start = os.path.join(folder, "")
    return sum(name is not None and name.startswith(start) for name in names)


def _with_settings(config: BuildConfig | None, settings: dict[str, Any]) -> BuildConfig:
    if "device" in settings:
        settings["device"] = str(settings["device"])
    return with_settings(config or BuildConfig(), settings)


def _add(
    files: IndexFiles, model: SpacesModel, data: Any, config: BuildConfig, *, whole: bool, progress: bool
) -> UnreadableImages:
    """Embeds new images and makes them searchable; the index is held."""
    manifest = files.load()
    require_same_run(files, manifest, model)
    source = open_source(data, channels=model.input_shape[0])
    writer = IndexWriter(files, manifest, model, config.embedding)
    if numbers := writer.images_to_fit(source):
        with ProgressBar(len(numbers), 0, "fitting the geometry", show=progress, step="image") as bar:
            writer.fit_geometry(source, numbers, bar.advance)
    with ProgressBar(len(source), 0, "indexing", show=progress, step="image") as bar:
        unreadable = writer.add(
            source, whole=whole, on_progress=lambda done, all_: bar.advance(len(source) - all_ + done)
        )
    show = progress and manifest.store["name"] != "exact"
    with ProgressBar(writer.manifest.rows, 0, "filling the store", show=show, step="image") as bar:
        make_ready(files, writer.manifest, lambda done, all_: bar.advance(writer.manifest.rows - all_ + done))
    return unreadable
