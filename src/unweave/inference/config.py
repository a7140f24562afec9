"""Settings of ``unweave embed``."""

from dataclasses import dataclass
from typing import Literal

from unweave.data.config import MAX_PIXELS
from unweave.settings import adjustable, require, require_choice


@dataclass(frozen=True, kw_only=True)
class EmbedConfig:
    """How images are embedded.

    Examples:
        >>> EmbedConfig(batch_size=64).batch_size
        64
    """

    batch_size: int = adjustable(256)
    """Images that pass through the network at a time."""
    device: str = adjustable("auto")
    """cpu, cuda, cuda:1, …; auto uses a GPU if there is one, and several processes one each."""
    workers: int | None = adjustable(None)
    """Processes that decode images; one for each core by default."""
    max_bad: float = adjustable(0.01)
    """Fraction of the images that may be unreadable; they have no row."""
    max_pixels: int = MAX_PIXELS
    """Largest number of pixels of an image; larger ones are unreadable and not decompressed."""
    dtype: Literal["float32", "float16"] = "float32"
    """Numbers of the features; float16 takes half the space and has 3 significant digits."""
    images_per_file: int | None = adjustable(None)
    """Images of each file of a new folder, rounded up to whole batches; by default at most 32,768, and as many files
    for each process."""
    overwrite: bool = adjustable(False)
    """Replace the files of a folder that were made with another model, other images or other settings."""

    def __post_init__(self) -> None:
        require(self, ">= 1", "batch_size", "max_pixels", "images_per_file")
        require(self, ">= 0", "workers")
        require(self, "in [0, 1]", "max_bad")
        require_choice(self, "dtype")
