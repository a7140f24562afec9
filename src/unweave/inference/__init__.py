"""What a trained run is for: features of images, in every space."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.inference.embed import embed_images
    from unweave.inference.export import export_run
    from unweave.inference.model import SpacesModel, load

__all__ = ["SpacesModel", "embed_images", "export_run", "load"]

__getattr__, __dir__ = attach(
    __name__, {"embed": ("embed_images",), "export": ("export_run",), "model": ("SpacesModel", "load")}
)
