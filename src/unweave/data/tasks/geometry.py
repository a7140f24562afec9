"""Boxes and key points in the square that the decoder cuts from an image: the central one, resized.

Legend: n images, k points; ``frames`` are widths and heights (n, 2) of the stored images.
"""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from unweave.data.sources.base import Encoded
from unweave.data.unreadable import UnreadableImageError


def image_size(encoded: Encoded) -> tuple[int, int]:
    """Width and height; of a file, only its header is read.

    Examples:
        >>> image_size(Image.new("RGB", (40, 20)))
        (40, 20)
    """
    if isinstance(encoded, Image.Image):
        return encoded.size
    if isinstance(encoded, np.ndarray):
        return encoded.shape[1], encoded.shape[0]
    try:
        with Image.open(encoded if isinstance(encoded, Path) else io.BytesIO(encoded)) as image:
            return image.size
    except (OSError, SyntaxError, ValueError) as error:
        raise UnreadableImageError(" ".join(str(error).split())) from None


def crop_points(points: np.ndarray, frames: np.ndarray, size: int) -> np.ndarray:
    """Points (n, 2k) of x, y in pixels of the stored images, in pixels of the decoded squares.

    Examples:
        >>> crop_points(np.array([[10.0, 0.0, 30.0, 20.0]]), np.array([[40, 20]]), 10)
        array([[ 0.,  0., 10., 10.]])
    """
    side = frames.min(1, keepdims=True)
    corner = (frames - side) // 2
    moved = points.reshape(len(points), -1, 2) - corner[:, None]
    return (moved * (size / side)[:, :, None]).reshape(points.shape)


def crop_boxes(boxes: np.ndarray, frames: np.ndarray, size: int) -> np.ndarray:
    """Boxes (n, 4) of x, y, width and height; they may extend beyond the square.

    Examples:
        >>> crop_boxes(np.array([[10.0, 5.0, 20.0, 10.0]]), np.array([[40, 20]]), 10)
        array([[ 0. ,  2.5, 10. ,  5. ]])
    """
    scale = size / frames.min(1, keepdims=True)
    return np.concatenate([crop_points(boxes[:, :2], frames, size), boxes[:, 2:] * scale], 1)
