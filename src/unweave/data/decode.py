"""One image, from encoded bytes to a uint8 RGB square.

    bytes, a path or a PIL image ─► upright, 8 bits, RGB ─► central square, resized ─► (size, size, 3) uint8

16-bit, CMYK, palette, transparent, animated and EXIF-rotated images are converted. An image that cannot be read raises
``UnreadableImageError`` with the reason.
"""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch.nn.functional import interpolate

from unweave.data.sources.base import Encoded
from unweave.data.unreadable import UnreadableImageError

SUFFIXES = frozenset((
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm",
    ".jp2", ".avif", ".tga", ".ico",
))  # fmt: skip
"""Suffixes of files that are taken for images."""
MAX_PIXELS = 2**29
"""Larger images are refused before they are decompressed; 20,000 × 20,000 is below."""


def decode(encoded: Encoded, size: int) -> np.ndarray:
    """The central square of an image as (size, size, 3) uint8.

    A JPEG is decoded straight to an eighth, a quarter or a half of its size where that is still at least ``size``.

    Examples:
        >>> decode(Image.new("L", (40, 20), 200), 8).shape
        (8, 8, 3)
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of broken EXIF data and similar
            image = encoded if isinstance(encoded, Image.Image) else _open(encoded)
            if image.width * image.height > MAX_PIXELS:
                raise UnreadableImageError(f"{image.width}×{image.height} pixels are more than {MAX_PIXELS:,}")
            image.draft("RGB", (size, size))
            return _square(_upright(_as_rgb(image), image), size)
    except UnreadableImageError:
        raise
    except FileNotFoundError:
        raise UnreadableImageError("no such file") from None
    # For damaged files Pillow's readers raise nearly any error: struct.error, KeyError, SyntaxError, …
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UnreadableImageError(reason if len(reason) < 160 else reason[:157] + "…") from None


def _open(encoded: bytes | Path) -> Image.Image:
    data = encoded if isinstance(encoded, bytes) else encoded.read_bytes()
    if not data:
        raise UnreadableImageError("the file is empty")
    before = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    try:
        return Image.open(io.BytesIO(data))
    except UnidentifiedImageError:
        raise UnreadableImageError("not an image, or of a format that Pillow does not know") from None
    finally:
        Image.MAX_IMAGE_PIXELS = before


def _as_rgb(image: Image.Image) -> Image.Image:
    """8 bits and three channels; transparent pixels on white; the first frame of an animation."""
    if image.mode == "F" or image.mode.startswith("I"):
        return _from_deep_gray(image)
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    return image.convert("RGB")


def _from_deep_gray(image: Image.Image) -> Image.Image:
    """Gray of 16 or 32 bits, which Pillow's own conversion would clip at 255."""
    values = np.asarray(image).astype(np.float32)
    highest = float(values.max(initial=0))
    if image.mode == "F" and highest <= 1:
        values = values * 255
    elif image.mode.startswith("I;16") or highest > 255:
        values = values * (255 / max(65535, highest))
    return Image.fromarray(values.clip(0, 255).round().astype(np.uint8)).convert("RGB")


def _upright(rgb: Image.Image, original: Image.Image) -> Image.Image:
    """Rotated by the EXIF orientation."""
    orientation: Any = original.getexif().get(0x0112, 1)
    if orientation not in range(2, 9):
        return rgb
    rgb.getexif()[0x0112] = orientation
    return ImageOps.exif_transpose(rgb)


def _square(image: Image.Image, size: int) -> np.ndarray:
    """The central square, resized with an antialiased bicubic filter: torch's equals Pillow's and is faster."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    if image.size == (size, size):
        return np.array(image)
    if side >= 4 * size:  # Pillow reduces by block averages first
        box = (left, top, left + side, top + side)
        return np.array(image.resize((size, size), Image.Resampling.BICUBIC, box=box, reducing_gap=2.0))
    pixels = torch.from_numpy(np.array(image)[top : top + side, left : left + side])
    resized = interpolate(pixels.permute(2, 0, 1)[None], (size, size), mode="bicubic", antialias=True)
    return resized[0].permute(1, 2, 0).numpy()
