"""Trained models: load, embed, export."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.inference.config import EmbedConfig
    from unweave.inference.embed import embed_images
    from unweave.inference.embedding_files import read_embeddings
    from unweave.inference.export import export_model
    from unweave.inference.features import ImageFeatures, compute_features
    from unweave.inference.model import SpacesModel, load
    from unweave.inference.preprocessing import describe_preprocessing
    from unweave.inference.probing import probe_task

__all__ = [
    "EmbedConfig",
    "ImageFeatures",
    "SpacesModel",
    "compute_features",
    "describe_preprocessing",
    "embed_images",
    "export_model",
    "load",
    "probe_task",
    "read_embeddings",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "config": ("EmbedConfig",),
        "embed": ("embed_images",),
        "embedding_files": ("read_embeddings",),
        "export": ("export_model",),
        "features": ("ImageFeatures", "compute_features"),
        "model": ("SpacesModel", "load"),
        "preprocessing": ("describe_preprocessing",),
        "probing": ("probe_task",),
    },
)
