"""Backbones, projectors and pretrained weights."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.models.backbones import SmallConvNet, make_backbone
    from unweave.models.config import EncoderConfig
    from unweave.models.encoder import BothViews, Encoder, Output
    from unweave.models.pretrained import load_weights, read_weights

__all__ = [
    "BothViews",
    "Encoder",
    "EncoderConfig",
    "Output",
    "SmallConvNet",
    "load_weights",
    "make_backbone",
    "read_weights",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "backbones": ("SmallConvNet", "make_backbone"),
        "config": ("EncoderConfig",),
        "encoder": ("BothViews", "Encoder", "Output"),
        "pretrained": ("load_weights", "read_weights"),
    },
)
