"""What the server answers, without HTTP: plain data for each request of the page."""

import base64
import hashlib
import io
import reprlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from PIL import Image

from unweave.data.decode import Decoder
from unweave.data.unreadable import UnreadableImageError
from unweave.errors import UnweaveError
from unweave.explore.base import SearchHit, SearchIndex
from unweave.explore.config import ExploreConfig
from unweave.explore.maps import Maps

MOST_HITS = 200
"""Largest number of images in one answer."""
FEW = 60
"""Largest number of images of a group of duplicates in an answer."""
KEPT_UPLOADS = 64
LARGEST_WEIGHT = 1e6
"""Scores are 32-bit: they overflow with much larger weights."""
PREVIEW = 256
"""Side of the preview of an uploaded image."""


class Answers:
    """The answers to the page's requests about one index.

    Every method takes plain data and returns plain data or bytes. A mistake in a request raises ``UnweaveError``.
    """

    def __init__(self, index: SearchIndex, maps: Maps, config: ExploreConfig) -> None:
        self.index, self.maps, self.config = index, maps, config
        self._uploads: OrderedDict[str, Mapping[str, np.ndarray]] = OrderedDict()
        self._uploading = threading.Lock()

    def about(self) -> dict[str, Any]:
        """What the page needs to know first."""
        return {
            "rows": len(self.index),
            "points": len(self.maps.rows),
            "spaces": list(self.index.spaces),
            "spread": {space: float(self.index.spread[space]) for space in self.index.spaces},
            "classes": self.classes,
            "map": self.maps.method,
            "version": self.maps.version,
            "max_upload_mb": self.config.max_upload_mb,
            "max_pixels": self.config.max_pixels,
        }

    @cached_property
    def classes(self) -> list[dict[str, Any]]:
        """Each class with its number of images, by name."""
        counts = Counter(self.class_names)
        return [{"name": name, "count": counts[name]} for name in sorted(counts) if name]

    @cached_property
    def class_names(self) -> list[str]:
        """The class of every row: its name, or its number where it has none, or an empty text."""
        return [class_of(self.index, row) for row in range(len(self.index))]

    def point_rows(self) -> bytes:
        """The row of every point, uint32."""
        return self.maps.rows.astype("<u4").tobytes()

    def point_classes(self) -> bytes:
        """The class of every point as its place in ``classes``, int32; -1 without one."""
        place = {known["name"]: i for i, known in enumerate(self.classes)}
        return np.array([place.get(self.class_names[row], -1) for row in self.maps.rows], "<i4").tobytes()

    def points(self, space: str) -> bytes:
        """The map of a space, float32 (m, 2)."""
        return np.ascontiguousarray(self.maps.points[self._space(space)], "<f4").tobytes()

    def row(self, row: int) -> dict[str, Any]:
        """What is known of an image."""
        row = self._row(row)
        return {"row": row, "path": self.index.path(row), "class": self.class_names[row]}

    def thumbnail(self, row: int) -> bytes:
        """A small JPEG."""
        return self.index.thumbnail(self._row(row))

    def image(self, row: int) -> bytes:
        """A JPEG of up to 1,024 pixels, without the file's metadata; the thumbnail where no file can be read."""
        file = self.index.image_file(self._row(row))
        try:
            if file is not None:
                return preview(file.read_bytes(), 1024, self.config.max_pixels)
        except (OSError, UnweaveError):  # it was removed, changed or is too large
            pass
        return self.index.thumbnail(row)

    def filtered(self, class_name: str, name: str) -> bytes:
        """The rows of a class whose paths contain a text, uint32."""
        where = self._where({"class": class_name, "name": name})
        chosen = np.arange(len(self.index)) if where is None else np.flatnonzero(self.index.where(where))
        return chosen.astype("<u4").tobytes()

    def search(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The images with the largest weighted score."""
        weights = self._numbers(request, "weights")
        minimum = self._numbers(request, "minimum")
        return {"hits": self._hits(request, weights, minimum)}

    def columns(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The nearest images in each space."""
        return {"columns": {space: self._hits(request, {space: 1.0}, {}) for space in self.index.spaces}}

    def upload(self, data: bytes) -> dict[str, Any]:
        """Embeds an image, for queries that name its ``upload``."""
        shown = preview(data, PREVIEW, self.config.max_pixels)
        name = hashlib.sha256(data).hexdigest()[:16]
        with self._uploading:
            if name not in self._uploads:
                features = self.index.model.embed(data)
                self._uploads[name] = {space: np.asarray(features[space]) for space in self.index.spaces}
            self._uploads.move_to_end(name)
            while len(self._uploads) > KEPT_UPLOADS:
                self._uploads.popitem(last=False)
        return {"upload": name, "preview": "data:image/jpeg;base64," + base64.b64encode(shown).decode()}

    def duplicates(self, space: str, threshold: float) -> dict[str, Any]:
        """Groups of nearly equal images."""
        if not 0 < threshold <= 1:
            raise UnweaveError(f"`threshold` must be between 0 and 1, not {threshold}")
        groups = self.index.duplicates(self._space(space), threshold=threshold)
        shown = groups[:MOST_HITS]
        return {
            "groups": [[self.row(row) for row in group[:FEW]] for group in shown],
            "sizes": [len(group) for group in shown],
            "found": len(groups),
        }

    def outliers(self, space: str) -> dict[str, Any]:
        """Images far from their neighbours, the farthest first."""
        found = self.index.outliers(self._space(space), k=50)
        return {"outliers": [{**self.row(row), "cosine": float(cosine)} for row, cosine in found]}

    def paths(self, rows: Any) -> dict[str, Any]:
        """The paths of the rows."""
        if not isinstance(rows, list):
            raise UnweaveError("`rows` must be a list of row numbers")
        return {"paths": [self.index.path(self._row(row)) for row in rows]}

    def _hits(
        self, request: Mapping[str, Any], weights: Mapping[str, float], minimum: Mapping[str, float]
    ) -> list[dict[str, Any]]:
        query, k = self._query(request.get("query")), request.get("k", 20)
        if type(k) is not int or not 1 <= k <= MOST_HITS:
            raise UnweaveError(f"`k` must be a whole number from 1 to {MOST_HITS}, not {reprlib.repr(k)}")
        found = self.index.search(query, weights=weights, minimum=minimum, where=self._where(request), k=k)
        return [self._hit(hit) for hit in found]

    def _hit(self, hit: SearchHit) -> dict[str, Any]:
        scores = {space: round(float(hit.scores[space]), 4) for space in self.index.spaces}
        return {**self.row(hit.row), "score": round(float(hit.score), 4), "scores": scores}

    def _where(self, request: Mapping[str, Any]) -> str | None:
        return where_clause(_text(request, "class"), _text(request, "name"), named=self._named)

    @cached_property
    def _named(self) -> bool:
        """Whether classes have names; otherwise they are numbers."""
        return any(self.index.class_name(row) is not None for row in range(len(self.index)))

    def _query(self, query: Any) -> Any:
        if isinstance(query, dict) and "row" in query:
            return self._row(query["row"])
        if isinstance(query, dict) and "upload" in query:
            found = self._uploads.get(query["upload"]) if isinstance(query["upload"], str) else None
            if found is None:
                raise UnweaveError("the uploaded picture is no longer here: upload it again")
            return found
        raise UnweaveError('`query` must be {"row": …} or {"upload": …}')

    def _row(self, row: Any) -> int:
        if type(row) is not int or not 0 <= row < len(self.index):
            raise UnweaveError(f"there is no row {reprlib.repr(row)}: the index has rows 0 to {len(self.index) - 1}")
        return row

    def _space(self, space: Any) -> str:
        if space not in self.index.spaces:
            raise UnweaveError(f"there is no space {reprlib.repr(space)}: the index has {', '.join(self.index.spaces)}")
        return str(space)

    def _numbers(self, request: Mapping[str, Any], name: str) -> dict[str, float]:
        """A number for some spaces, such as the weights."""
        given = request.get(name) or {}
        if not isinstance(given, dict):
            raise UnweaveError(f"`{name}` must be numbers by space, not {reprlib.repr(given)}")
        for space, number in given.items():
            self._space(space)
            numeric = isinstance(number, (int, float)) and not isinstance(number, bool)
            if not (numeric and -LARGEST_WEIGHT <= number <= LARGEST_WEIGHT):
                raise UnweaveError(
                    f"`{name}` of {space} must be a number from {-LARGEST_WEIGHT:,.0f} to {LARGEST_WEIGHT:,.0f}, "
                    f"not {reprlib.repr(number)}"
                )
        return {space: float(number) for space, number in given.items()}


def class_of(index: SearchIndex, row: int) -> str:
    """The name of an image's class, its number where it has no name, and an empty text without a class."""
    name = index.class_name(row)
    if name is not None:
        return name
    label = index.label(row)
    return "" if label is None else str(label)


def where_clause(class_name: str, name: str, *, named: bool = True) -> str | None:
    """The condition of a search for images of a class whose paths contain a text.

    Examples:
        >>> where_clause("cat", "")
        "label = 'cat'"
        >>> where_clause("3", "holiday/", named=False)
        "label = 3 and path like '%holiday/%'"
    """
    clauses = []
    if class_name:
        clauses.append(f"label = {_quoted(class_name) if named else _whole(class_name)}")
    if name:
        clauses.append(f"path like {_quoted(f'%{name}%')}")
    return " and ".join(clauses) or None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UnweaveError(f"there is no class {text!r}: the classes are numbers") from None


def preview(data: bytes, side: int, max_pixels: int) -> bytes:
    """An image file as a JPEG of at most ``side`` pixels, without metadata."""
    try:
        pixels = Decoder(size=side, reduced=True, max_pixels=max_pixels).whole(data)
    except UnreadableImageError as error:
        raise UnweaveError(f"the picture cannot be read: {error}") from None
    buffer, image = io.BytesIO(), Image.fromarray(pixels)
    image.thumbnail((side, side), reducing_gap=2.0)
    image.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def _text(request: Mapping[str, Any], name: str) -> str:
    text = request.get(name) or ""
    if not isinstance(text, str) or len(text) > 1000:
        raise UnweaveError(f"`{name}` must be a text of at most 1,000 characters")
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can name half of a surrogate pair
        raise UnweaveError(f"`{name}` must be valid Unicode, not {reprlib.repr(text)}") from None
    return text
