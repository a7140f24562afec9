"""Backbones, projectors and pretrained weights."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.models.backbones import SmallConvNet, make_backbone
    from unweave.models.config import EncoderConfig
    from unweave.models.encoder import BothViews, Encoder
    from unweave.models.pretrained import load_weights, read_weights

__all__ = ["BothViews", "Encoder", "EncoderConfig", "SmallConvNet", "load_weights", "make_backbone", "read_weights"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "backbones": ("SmallConvNet", "make_backbone"),
        "config": ("EncoderConfig",),
        "encoder": ("BothViews", "Encoder"),
        "pretrained": ("load_weights", "read_weights"),
    },
)
