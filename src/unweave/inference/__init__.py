"""Trained models: load, embed, export."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.inference.config import EmbedConfig
    from unweave.inference.embed import embed_images
    from unweave.inference.export import export_model
    from unweave.inference.model import SpacesModel, load
    from unweave.inference.preprocessing import describe_preprocessing

__all__ = ["EmbedConfig", "SpacesModel", "describe_preprocessing", "embed_images", "export_model", "load"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "config": ("EmbedConfig",),
        "embed": ("embed_images",),
        "export": ("export_model",),
        "model": ("SpacesModel", "load"),
        "preprocessing": ("describe_preprocessing",),
    },
)
