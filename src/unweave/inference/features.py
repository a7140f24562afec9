"""The features of every image of a source in memory, kept in a file that another model or other images do not match."""

import hashlib
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unweave.data.loading import StreamedImages
from unweave.data.resources import default_workers
from unweave.data.sources.base import Source
from unweave.data.unreadable import UnreadableImageError, UnreadableImages
from unweave.describe import describe
from unweave.errors import UnweaveError, UnweaveWarning
from unweave.files import make_writable_folder
from unweave.inference.model import SpacesModel
from unweave.settings import require_number
from unweave.tensor_files import open_tensors, save_tensors

ROWS = "unweave.rows"
"""The tensor of a cached file that holds the numbers of the images."""


@dataclass(frozen=True)
class ImageFeatures:
    """Features (n, d) by name, and the numbers of the images they belong to: those that could be read.

    Examples:
        >>> ImageFeatures({"h": torch.zeros(2, 8)}, rows=[0, 3]).features["h"].shape
        torch.Size([2, 8])
    """

    features: dict[str, Tensor]
    rows: list[int]


def compute_features(
    model: SpacesModel,
    source: Source,
    *,
    cache: str | Path | None = None,
    batch_size: int = 256,
    device: torch.device | str = "cpu",
    workers: int | None = None,
    max_bad: float = 0.01,
    on_progress: Callable[[int], None] | None = None,
) -> ImageFeatures:
    """h and the embedding in every space of every image.

    Args:
        model: from ``uw.load``.
        source: from ``open_source``, or the images of a task.
        cache: a folder for the features; they are read from there where the model's weights and the images are the
            same. Image files are compared by name, size and time of change, other images by their content.
        batch_size: images that pass through the network at a time.
        device: of the network.
        workers: processes that decode images; one for each core by default.
        max_bad: fraction of the images that may be unreadable.
        on_progress: called with the number of images done.

    Examples:
        >>> import tempfile, unweave as uw
        >>> model = SpacesModel(uw.Encoder(uw.SmallConvNet(16), ("content",), dim=4), input_shape=(3, 16, 16))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Image.new("RGB", (20, 16), "red").save(f"{folder}/a.png")
        ...     found = compute_features(model, uw.data.open_source(folder), workers=0)
        >>> found.features["content"].shape, found.rows
        (torch.Size([1, 4]), [0])
    """
    require_number("batch_size", batch_size, ">= 1")
    file = None if cache is None else Path(cache) / f"{_key(model, source)}.safetensors"
    if file is not None and (stored := _read(file)) is not None:
        if on_progress:
            on_progress(len(source))
        return stored
    unreadable = UnreadableImages(len(source), max_bad)
    stream = StreamedImages(source, model.decoder, default_workers() if workers is None else workers, unreadable)
    device = torch.device(device)
    model.to(device)
    parts: dict[str, list[Tensor]] = {}
    order = torch.arange(len(source)).split(batch_size)
    done = 0
    for images in stream.batches(order, device):
        with torch.inference_mode():
            for name, z in model(images).items():
                parts.setdefault(name, []).append(z.float().cpu())
        done += len(images)
        if on_progress:
            on_progress(done)
    kept = [i for i in range(len(source)) if i not in unreadable]
    if not kept:
        raise UnweaveError("none of the images can be read")
    whole = {name: torch.cat(part).clone() for name, part in parts.items()}
    found = ImageFeatures({name: z if len(kept) == len(z) else z[kept] for name, z in whole.items()}, kept)
    if file is not None:
        _write(file, found)
    return found


def _key(model: SpacesModel, source: Source) -> str:
    digest = hashlib.sha256()
    about = [describe(model.encoder), describe(model.preparation), list(model.input_shape)]
    digest.update(json.dumps(about).encode())
    for name, tensor in model.encoder.state_dict().items():
        content: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        digest.update(name.encode() + content.tobytes())
    for i in range(len(source)):
        digest.update(source.name(i).encode("utf-8", "surrogateescape") + _content(source, i))
    return digest.hexdigest()[:32]


def _content(source: Source, i: int) -> bytes:
    """What changes where image i changes."""
    try:
        encoded = source.read(i)
        if isinstance(encoded, Path):
            about = encoded.stat()
            return f"{about.st_size} {about.st_mtime_ns}".encode()
    except (UnreadableImageError, OSError):
        return b"unreadable"
    if isinstance(encoded, Image.Image):
        return f"{encoded.mode} {encoded.size}".encode() + hashlib.sha256(encoded.tobytes()).digest()
    if isinstance(encoded, np.ndarray):
        return f"{encoded.dtype} {encoded.shape}".encode() + hashlib.sha256(encoded.tobytes()).digest()
    return hashlib.sha256(encoded).digest()


def _read(file: Path) -> ImageFeatures | None:
    if not file.is_file():
        return None
    try:
        with open_tensors(file) as stored:
            features = {name: stored.get(name) for name in json.loads(stored.metadata["names"])}
            return ImageFeatures(features, stored.get(ROWS).tolist())
    except UnweaveError:  # a damaged file: the features are computed again
        return None


def _write(file: Path, found: ImageFeatures) -> None:
    try:
        make_writable_folder(file.parent)
        names = json.dumps(list(found.features))  # safetensors sorts tensors by name
        save_tensors(file, {**found.features, ROWS: torch.tensor(found.rows)}, {"names": names})
    except (UnweaveError, OSError) as error:
        warnings.warn(f"features are not kept: {error}", UnweaveWarning, stacklevel=3)
