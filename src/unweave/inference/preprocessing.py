"""How an image file becomes the input of a model: what a user of the ONNX file repeats in another program.

    file ─► upright, 8 bits, channels ─► central square ─► resized ─► / 255 ─► (n, c, h, w) ─► the model: − mean, / std

1. Decode. Of an animation, take the first frame. Rotate by the EXIF orientation.
2. Convert to the model's channels, 8 bits each: RGB in this order for 3 channels (transparent pixels on white), gray
   for 1, RGBA for 4. Other numbers of channels are read from arrays (h, w, c).
3. Crop the largest central square: with side = min(height, width), rows from (height − side) // 2, columns from
   (width − side) // 2.
4. Resize it to the model's size with an antialiased bicubic filter (a = −0.5), to 8 bits: Pillow's
   ``resize((size, size), BICUBIC, reducing_gap=2.0)``. Squares of at least 4 times the size are first reduced by block
   averages, as ``reducing_gap`` says. OpenCV's and torch's filters without antialiasing give other pixels.
5. Divide by 255: float32 in [0, 1], channels before rows: (n, c, h, w).

Normalisation, (x − mean) / std for each channel, is part of the model and of the ONNX file: do not normalise before
them. Code that uses the weights in another network does it after step 5.

``data/decode.py`` implements steps 1 to 4, ``augment`` the rest. ``describe_preprocessing`` states the values for one
model. They are exported with it: the section ``preprocessing`` of model.json and the metadata of model.onnx.
"""

from collections.abc import Sequence
from typing import Any

from unweave.augment import Normalize, Transform
from unweave.data.decode import MODES
from unweave.describe import describe


def describe_preprocessing(input_shape: Sequence[int], preparation: Sequence[Transform]) -> dict[str, Any]:
    """The steps above for a model with this input (c, h, w), as JSON data.

    ``channels`` is Pillow's mode; null where images are arrays. ``crop`` and ``resize`` are null where the input is not
    a square, and images must already have its size. ``normalize`` is null where the model does not begin with a
    normalisation alone; ``inside_model`` describes all that it begins with.

    Examples:
        >>> described = describe_preprocessing((3, 64, 64), [Normalize((0.5,) * 3, (0.25,) * 3)])
        >>> described["channels"], described["resize"]["filter"], described["normalize"]["mean"]
        ('RGB', 'bicubic', [0.5, 0.5, 0.5])
    """
    channels, height, width = input_shape
    mode = MODES.get(channels)
    square = height == width
    return {
        "exif_orientation": "applied",
        "channels": mode,
        "background": "white" if mode == "RGB" else None,
        "crop": "central square" if square else None,
        "resize": {"height": height, "width": width, "filter": "bicubic", "antialias": True, "reducing_gap": 2.0}
        if square
        else None,
        "divide_by": 255,
        "input": {
            "name": "images",
            "shape": ["n", channels, height, width],
            "layout": "NCHW",
            "dtype": "float32",
            "range": [0.0, 1.0],
        },
        "normalize": _normalization(channels, preparation),
        "inside_model": describe(list(preparation)),
    }


def _normalization(channels: int, preparation: Sequence[Transform]) -> dict[str, Any] | None:
    if not preparation:
        return {"mean": [0.0] * channels, "std": [1.0] * channels}
    first = preparation[0]
    if len(preparation) > 1 or not isinstance(first, Normalize):
        return None
    return {"mean": list(first.mean), "std": list(first.std)}
