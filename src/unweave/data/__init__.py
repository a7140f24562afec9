"""Where images come from."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.data.loader import CachedImages, StreamedImages, load_images
    from unweave.data.source import Source, open_source
    from unweave.data.sprites import Sprites

__all__ = ["CachedImages", "Source", "Sprites", "StreamedImages", "load_images", "open_source"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "loader": ("CachedImages", "StreamedImages", "load_images"),
        "source": ("Source", "open_source"),
        "sprites": ("Sprites",),
    },
)
