"""Trained models: load, embed, export."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.inference.config import EmbedConfig
    from unweave.inference.embed import embed_images
    from unweave.inference.embedding_files import read_embeddings
    from unweave.inference.export import export_model
    from unweave.inference.features import compute_features
    from unweave.inference.model import SpacesModel, load
    from unweave.inference.preprocessing import describe_preprocessing

__all__ = [
    "EmbedConfig",
    "SpacesModel",
    "compute_features",
    "describe_preprocessing",
    "embed_images",
    "export_model",
    "load",
    "read_embeddings",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "config": ("EmbedConfig",),
        "embed": ("embed_images",),
        "embedding_files": ("read_embeddings",),
        "export": ("export_model",),
        "features": ("compute_features",),
        "model": ("SpacesModel", "load"),
        "preprocessing": ("describe_preprocessing",),
    },
)
