"""One image, from encoded bytes to a uint8 square.

    bytes, a path or a PIL image ─► upright, 8 bits, its channels ─► central square, resized ─► (size, size, c) uint8

16-bit, CMYK, palette, transparent, animated and EXIF-rotated images are converted. An image that cannot be read raises
``UnreadableImageError`` with the reason.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch.nn.functional import interpolate

from unweave.data.config import MAX_PIXELS
from unweave.data.sources.base import Encoded
from unweave.data.unreadable import UnreadableImageError

SUFFIXES = frozenset((
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm",
    ".jp2", ".avif", ".tga", ".ico",
))  # fmt: skip
"""Suffixes of files that are taken for images."""
ARRAYS = ".npy"
"""Suffix of numpy arrays (h, w) or (h, w, c), which may have any number of channels."""
NUMPY_MAGIC = b"\x93NUMPY"
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's mode for each number of channels; other numbers need arrays."""


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """How images are decoded: the central square, resized with an antialiased bicubic filter, as uint8."""

    size: int
    """Side in pixels."""
    channels: int = 3
    """1 is gray, 3 RGB (transparent pixels on white), 4 RGBA; other numbers are read from numpy arrays."""
    reduced: bool = False
    """Decode a JPEG at an eighth, a quarter or a half of its size where that is at least ``size``: faster, and slightly
    different from decoding the whole."""
    max_pixels: int = MAX_PIXELS
    """Larger images are unreadable; they are not decompressed."""

    def __call__(self, encoded: Encoded) -> np.ndarray:
        """(size, size, channels) uint8."""
        return self.square(self.whole(encoded))

    def whole(self, encoded: Encoded) -> np.ndarray:
        """The whole image, upright: (h, w, channels) uint8."""
        with _readable():
            return self._decode(encoded)

    def square(self, pixels: np.ndarray) -> np.ndarray:
        """The central square of a whole image, resized."""
        with _readable():
            return _square(pixels, self.size)

    def _decode(self, encoded: Encoded) -> np.ndarray:
        if isinstance(encoded, np.ndarray):
            return self._pixels(encoded)
        if isinstance(encoded, Image.Image):
            image = encoded
        else:
            data = encoded if isinstance(encoded, bytes) else encoded.read_bytes()
            if not data:
                raise UnreadableImageError("the file is empty")
            if data.startswith(NUMPY_MAGIC):
                return self._load_array(data)
            image = _open(data, self.max_pixels)
        self._check(image.width, image.height)
        if self.channels not in MODES:
            raise UnreadableImageError(f"an image file does not have {self.channels} channels: use numpy arrays (.npy)")
        if self.reduced and image is not encoded:  # never the caller's own image, which it would change
            image.draft("RGB", (self.size, self.size))
        converted = _as_rgb(image) if self.channels == 3 else _as_mode(image, MODES[self.channels])
        pixels = np.array(_upright(converted, image))
        return pixels if pixels.ndim == 3 else pixels[..., None]

    def _load_array(self, data: bytes) -> np.ndarray:
        """The array of a .npy file; its header is checked before it is read."""
        version = np.lib.format.read_magic(stream := io.BytesIO(data))
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, _ = read(stream)
        if len(shape) in (2, 3):
            self._check(shape[1], shape[0])
        return self._pixels(np.load(io.BytesIO(data), allow_pickle=False))

    def _pixels(self, pixels: np.ndarray) -> np.ndarray:
        """An array (h, w) or (h, w, c) as uint8; floats are in [0, 1], 16-bit numbers are scaled."""
        dtype = pixels.dtype
        if pixels.ndim not in (2, 3):
            raise UnreadableImageError(
                f"an array of the shape {pixels.shape} is not an image (h, w) or (h, w, channels)"
            )
        self._check(pixels.shape[1], pixels.shape[0])
        pixels = pixels if pixels.ndim == 3 else pixels[..., None]
        if pixels.shape[2] != self.channels:
            raise UnreadableImageError(f"the array has {pixels.shape[2]} channels, not {self.channels}")
        if dtype == np.uint8:
            return pixels
        if dtype == np.uint16:
            return (pixels / 257).round().astype(np.uint8)
        if dtype.kind == "f":
            return (np.nan_to_num(pixels) * 255).clip(0, 255).round().astype(np.uint8)
        raise UnreadableImageError(f"an array of {dtype} is not an image: use uint8, uint16 or float")

    def _check(self, width: int, height: int) -> None:
        if width * height > self.max_pixels:
            raise UnreadableImageError(f"{width}×{height} pixels are more than {self.max_pixels:,} (see `max_pixels`)")
        if width * height == 0:
            raise UnreadableImageError("the image has no pixels")


def decode(encoded: Encoded, size: int, **options: Any) -> np.ndarray:
    """The central square of an image as (size, size, channels) uint8; ``options`` are those of ``Decoder``.

    Examples:
        >>> decode(Image.new("L", (40, 20), 200), 8).shape
        (8, 8, 3)
    """
    return Decoder(size=size, **options)(encoded)


@contextmanager
def _readable() -> Iterator[None]:
    """Makes every error of an image an ``UnreadableImageError``, and hides Pillow's warnings of broken EXIF data."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except UnreadableImageError:
        raise
    except FileNotFoundError:
        raise UnreadableImageError("no such file") from None
    except OSError as error:
        raise UnreadableImageError(_one_line(error.strerror or str(error))) from None
    # For damaged files Pillow's readers raise nearly any error: struct.error, KeyError, SyntaxError, …
    except Exception as error:
        raise UnreadableImageError(_one_line(str(error) or type(error).__name__)) from None


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) < 160 else text[:157] + "…"


def _open(data: bytes, max_pixels: int) -> Image.Image:
    before = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = max_pixels
    try:
        return Image.open(io.BytesIO(data))
    except UnidentifiedImageError:
        raise UnreadableImageError("not an image, or of a format that Pillow does not know") from None
    except Image.DecompressionBombError:
        raise UnreadableImageError(f"the image has more than {max_pixels:,} pixels (see `max_pixels`)") from None
    finally:
        Image.MAX_IMAGE_PIXELS = before


def _as_mode(image: Image.Image, mode: str) -> Image.Image:
    """Gray or RGBA of 8 bits."""
    if image.mode == "F" or image.mode.startswith("I"):
        image = _from_deep_gray(image)
    return image.convert(mode)


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


def _square(pixels: np.ndarray, size: int) -> np.ndarray:
    """The central square of an array (h, w, c), resized: torch's filter equals Pillow's and is faster."""
    height, width, channels = pixels.shape
    side = min(height, width)
    left, top = (width - side) // 2, (height - side) // 2
    square = np.ascontiguousarray(pixels[top : top + side, left : left + side])
    if side == size:
        return square
    if side >= 4 * size and channels in (1, 3, 4):  # Pillow reduces by block averages first
        image = Image.fromarray(square if channels > 1 else square[..., 0])
        resized = np.array(image.resize((size, size), Image.Resampling.BICUBIC, reducing_gap=2.0))
        return resized if resized.ndim == 3 else resized[..., None]
    batch = torch.from_numpy(square).permute(2, 0, 1)[None]
    return interpolate(batch, (size, size), mode="bicubic", antialias=True)[0].permute(1, 2, 0).numpy()
