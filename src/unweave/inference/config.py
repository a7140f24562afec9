"""Settings of ``unweave embed``."""

from dataclasses import dataclass

from unweave.data.config import MAX_PIXELS
from unweave.settings import require


@dataclass(frozen=True, kw_only=True)
class EmbedConfig:
    """How images are embedded.

    Examples:
        >>> EmbedConfig(batch_size=64).batch_size
        64
    """

    batch_size: int = 256
    """Images that pass through the network at a time."""
    device: str = "auto"
    """cpu, cuda, cuda:1, …; auto uses a GPU if there is one."""
    workers: int | None = None
    """Processes that decode images; one for each core by default."""
    max_bad: float = 0.01
    """Fraction of the images that may be unreadable; they have no row."""
    max_pixels: int = MAX_PIXELS
    """Largest number of pixels of an image; larger ones are unreadable and not decompressed."""

    def __post_init__(self) -> None:
        require(self, ">= 1", "batch_size", "max_pixels")
        require(self, ">= 0", "workers")
        require(self, "in [0, 1]", "max_bad")
