"""The files of an index.

    index.json                 the manifest: run, spaces, how many rows are complete, which files hold them
    geometry.safetensors       how embeddings become vectors, where they are whitened
    vectors-0/                 generation 0; pruning writes the next one
      content.f16, …           one file for each space: vectors of unit length, float16, appended
      thumbnails.bin           JPEG files, one after the other
      rows-0.parquet, …        id, path, label, class_name, file, key, and the place of the thumbnail
      neighbours-content.npz   the graph of nearest neighbours, once it was computed
    lance/, qdrant/            files of the store, if it has any

Rows are appended and flushed to the disk first, then the manifest is replaced: it never counts a row that is not
complete. What lies behind the last counted row is overwritten by the next writer. Readers see the rows counted as
``ready``: those for which the spread of the cosines and the store are complete too.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unweave._version import __version__
from unweave.errors import UnweaveError
from unweave.files import atomic_write, locked, make_writable_folder, remove_partial_writes, write_text
from unweave.search.geometry import Geometry

FORMAT = 1
"""Increased whenever an older unweave cannot read new files."""
LOCK_TIMEOUT = 12.0
BLOCK = 65_536
"""Rows copied at a time."""
ROWS = pa.schema(
    [
        ("id", pa.int64()),
        ("path", pa.string()),
        ("label", pa.int64()),
        ("class_name", pa.string()),
        ("file", pa.string()),
        ("key", pa.string()),
        ("thumbnail", pa.int64()),
        ("thumbnail_bytes", pa.int64()),
    ]
)
"""``id`` is never used again, and increases with the row; ``file`` is absolute, and null where an image is not a file;
``key`` identifies an image when others are added."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What ``index.json`` says."""

    run: dict[str, Any]
    spaces: dict[str, int]
    """Dimension of each space."""
    store: dict[str, Any]
    whitened: bool = False
    """Whether embeddings become vectors by ``geometry.safetensors``; otherwise by their length alone."""
    classes: list[str] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    """Folders that images were read from."""
    generation: int = 0
    parts: list[str] = field(default_factory=list)
    """Files of rows, in order."""
    rows: int = 0
    """Rows that are complete."""
    thumbnail_bytes: int = 0
    next_id: int = 0
    ready: int = 0
    """Rows that can be searched."""
    stored: int = 0
    """Rows with an id below this number are in the store."""
    spread: dict[str, float] = field(default_factory=dict)
    """Standard deviation of the cosines of random pairs."""
    alike: dict[str, float] = field(default_factory=dict)
    """The cosine that one random pair in twenty exceeds."""


class IndexFiles:
    """The folder of an index and its manifest."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.file = self.path / "index.json"

    def exists(self) -> bool:
        """Whether there is a manifest."""
        return self.file.is_file()

    def load(self) -> Manifest:
        """The manifest; raises where it is absent, damaged or of a newer unweave."""
        try:
            values = json.loads(self.file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            hint = ": there is no such folder" if not self.path.exists() else ""
            raise UnweaveError(f"{self.path} is not an index{hint}; `unweave index` makes one") from None
        except OSError as error:
            raise UnweaveError(f"{self.file} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise UnweaveError(f"{self.file} is damaged ({error}): build the index again") from None
        try:
            found = values.pop("format")
            values.pop("unweave")
            if found > FORMAT:
                raise UnweaveError(
                    f"{self.path} has index format {found}, this unweave reads up to {FORMAT}: update it"
                )
            return Manifest(**values)
        except (KeyError, TypeError, AttributeError) as error:
            raise UnweaveError(f"{self.file} is damaged ({error}): build the index again") from None

    def save(self, manifest: Manifest) -> None:
        """Replaces the manifest."""
        values = {"format": FORMAT, "unweave": __version__, **asdict(manifest)}
        write_text(self.file, json.dumps(values, indent=1, ensure_ascii=False) + "\n")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the index for one writer; creates its folder."""
        make_writable_folder(self.path)
        with locked(self.path, LOCK_TIMEOUT) as held:
            if not held:
                raise UnweaveError(f"another process is writing to the index {self.path}: wait for it or stop it")
            remove_partial_writes(self.file)
            yield

    @property
    def geometry_file(self) -> Path:
        """How embeddings become vectors."""
        return self.path / "geometry.safetensors"

    def geometry(self, manifest: Manifest) -> Geometry:
        """How embeddings become vectors."""
        return Geometry.load(self.geometry_file) if manifest.whitened else Geometry()

    def folder(self, manifest: Manifest) -> Path:
        """The folder of the manifest's generation."""
        return self.path / f"vectors-{manifest.generation}"

    def vectors_file(self, manifest: Manifest, space: str) -> Path:
        """The vectors of a space."""
        return self.folder(manifest) / f"{quote(space, safe='')}.f16"

    def thumbnails_file(self, manifest: Manifest) -> Path:
        """The thumbnails."""
        return self.folder(manifest) / "thumbnails.bin"

    def neighbours_file(self, manifest: Manifest, space: str) -> Path:
        """The graph of nearest neighbours in a space."""
        return self.folder(manifest) / f"neighbours-{quote(space, safe='')}.npz"

    def vectors(self, manifest: Manifest, space: str, rows: int) -> np.ndarray:
        """The first rows of a space, memory-mapped; writing to the array does not change the file."""
        shape = (rows, manifest.spaces[space])
        try:
            return np.memmap(self.vectors_file(manifest, space), np.float16, "c", shape=shape)
        except (OSError, ValueError) as error:
            raise UnweaveError(f"{self.path} is damaged ({error}): build the index again") from None

    def table(self, manifest: Manifest, rows: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The first rows of the table."""
        folder = self.folder(manifest)
        try:
            parts = [pq.read_table(folder / part, columns=columns) for part in manifest.parts]
        except (OSError, pa.ArrowException) as error:
            reason = " ".join(str(error).split())[:160]
            raise UnweaveError(f"{self.path} is damaged ({reason}): build the index again") from None
        empty = ROWS.empty_table() if columns is None else ROWS.empty_table().select(columns)
        return pa.concat_tables([empty, *parts]).slice(0, rows).combine_chunks()

    def append(
        self,
        manifest: Manifest,
        about: Mapping[str, Sequence[Any]],
        vectors: Mapping[str, np.ndarray],
        thumbnails: Sequence[bytes],
    ) -> Manifest:
        """Writes rows behind the last one and counts them. ``about`` has path, label, class_name, file and key."""
        count, folder = len(thumbnails), self.folder(manifest)
        folder.mkdir(exist_ok=True)
        for space, dim in manifest.spaces.items():
            content = np.ascontiguousarray(vectors[space], np.float16)
            _append(self.vectors_file(manifest, space), manifest.rows * dim * 2, content.tobytes())
        _append(self.thumbnails_file(manifest), manifest.thumbnail_bytes, b"".join(thumbnails))
        sizes = np.array([len(thumbnail) for thumbnail in thumbnails], np.int64)
        columns = {
            "id": np.arange(manifest.next_id, manifest.next_id + count),
            **about,
            "thumbnail": manifest.thumbnail_bytes + np.cumsum(sizes) - sizes,
            "thumbnail_bytes": sizes,
        }
        part = f"rows-{manifest.next_id}.parquet"
        _write_table(folder / part, pa.table(columns, schema=ROWS))
        manifest = replace(
            manifest,
            rows=manifest.rows + count,
            thumbnail_bytes=manifest.thumbnail_bytes + int(sizes.sum()),
            next_id=manifest.next_id + count,
            parts=[*manifest.parts, part],
        )
        self.save(manifest)
        return manifest

    def merge_parts(self, manifest: Manifest) -> Manifest:
        """One file of rows in place of many."""
        if len(manifest.parts) > 1:
            folder, old = self.folder(manifest), manifest.parts
            merged = f"rows-{manifest.next_id}-merged.parquet"
            _write_table(folder / merged, self.table(manifest, manifest.rows))
            manifest = replace(manifest, parts=[merged])
            self.save(manifest)
            for part in old:
                (folder / part).unlink(missing_ok=True)
        return manifest

    def keep(self, manifest: Manifest, kept: np.ndarray) -> Manifest:
        """The index with these rows alone: written as the next generation, then the old one is removed."""
        new = replace(
            manifest,
            generation=manifest.generation + 1,
            rows=len(kept),
            ready=int((kept < manifest.ready).sum()),
            parts=["rows-0.parquet"],
        )
        shutil.rmtree(self.folder(new), ignore_errors=True)  # of an earlier attempt
        self.folder(new).mkdir()
        for space in manifest.spaces:
            old = self.vectors(manifest, space, manifest.rows)
            _copy(self.vectors_file(new, space), (old[kept[i : i + BLOCK]] for i in range(0, len(kept), BLOCK)))
        table = self.table(manifest, manifest.rows).take(pa.array(kept))
        starts, sizes = table["thumbnail"].to_numpy(), table["thumbnail_bytes"].to_numpy()
        stored_bytes = np.memmap(self.thumbnails_file(manifest), np.uint8, "r")
        _copy(self.thumbnails_file(new), (stored_bytes[a : a + n] for a, n in zip(starts, sizes, strict=True)))
        place = ROWS.get_field_index("thumbnail")
        table = table.set_column(place, "thumbnail", pa.array(np.cumsum(sizes) - sizes))
        _write_table(self.folder(new) / new.parts[0], table)
        new = replace(new, thumbnail_bytes=int(sizes.sum()))
        self.save(new)
        shutil.rmtree(self.folder(manifest), ignore_errors=True)
        return new


def _append(path: Path, start: int, content: bytes) -> None:
    """Writes at ``start``, over whatever an interrupted writer has left there, and flushes to the disk."""
    with open(path, "r+b" if path.exists() else "w+b") as file:
        file.truncate(start)
        file.seek(start)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _copy(path: Path, blocks: Iterator[np.ndarray]) -> None:
    with open(path, "wb") as file:
        for block in blocks:
            file.write(block.tobytes())
        file.flush()
        os.fsync(file.fileno())


def _write_table(path: Path, table: pa.Table) -> None:
    with atomic_write(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
