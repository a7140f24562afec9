"""A short text that is the same for the same images, by which a resumed run recognises them."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unweave.data.sources.base import Source
from unweave.data.unreadable import UnreadableImageError

SAMPLED = 64
"""Images whose content is compared."""


def identify_source(source: Source) -> str:
    """From the names of all images and the files of some, evenly spaced.

    Images that a data set decodes itself are identified by their names alone, since it may decode them at random.
    """
    digest = hashlib.sha256()
    for i in range(len(source)):
        digest.update(source.name(i).encode("utf-8", "surrogateescape") + b"\n")
    for i in _spaced(len(source)):
        try:
            encoded = source.read(i)
            content = encoded.read_bytes() if isinstance(encoded, Path) else encoded
        except (UnreadableImageError, OSError):
            content = b""
        if isinstance(content, bytes):
            digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


def identify_tensor(images: Tensor) -> str:
    """From the shape and some images, evenly spaced."""
    digest = hashlib.sha256(f"{images.dtype} {tuple(images.shape)}".encode())
    if len(images):
        some = images[torch.tensor(_spaced(len(images)), device=images.device)].detach().cpu().contiguous()
        content: Any = some.reshape(-1).view(torch.uint8).numpy()
        digest.update(content)
    return digest.hexdigest()[:16]


def _spaced(count: int) -> list[int]:
    """At most ``SAMPLED`` numbers from 0 to count − 1."""
    sampled = min(count, SAMPLED)
    return [i * count // sampled for i in range(sampled)]
