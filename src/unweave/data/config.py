"""Settings of data sources and of loading."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from unweave.settings import adjustable, require, require_choice

if TYPE_CHECKING:
    from unweave.data.sources.base import Source

Cache = Literal["auto", "gpu", "ram", "none"]
MAX_PIXELS = 178_956_970
"""The largest image by default: half a gigabyte as RGB, and the size from which Pillow suspects an attack."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """How DATA is read.

    Examples:
        >>> DataConfig(max_bad=0.05).max_bad
        0.05
    """

    root: str | None = adjustable(None)
    """Folder of a torchvision data set, if DATA is its name."""
    image_column: str | None = None
    """Parquet column of the images, if there are several."""
    label_column: str | None = None
    """Parquet column of the labels."""
    decode_size: int | None = None
    """Side in pixels of decoded images, from which views are cut; by default 8/7 of the network's input."""
    channels: int = 3
    """Channels of the images: 1 for gray, 3 for RGB, 4 for RGBA; other numbers are read from numpy arrays (.npy)."""
    max_pixels: int = MAX_PIXELS
    """Largest number of pixels of an image; larger ones are unreadable and not decompressed."""
    cache: Cache = adjustable("auto")
    """Where decoded images are kept; auto uses the GPU or main memory if they fit."""
    workers: int | None = adjustable(None)
    """Processes that decode images; one for each core by default."""
    max_bad: float = adjustable(0.01)
    """Fraction of the images that may be unreadable."""

    def __post_init__(self) -> None:
        require(self, ">= 1", "decode_size", "channels", "max_pixels")
        require(self, ">= 0", "workers")
        require(self, "in [0, 1]", "max_bad")
        require_choice(self, "cache")

    def open(self, data: Any) -> "Source":
        """The source that ``data`` is or names."""
        from unweave.data.sources import open_source

        return open_source(
            data,
            root=self.root,
            image_column=self.image_column,
            label_column=self.label_column,
            channels=self.channels,
        )
