"""Backbones and projectors."""

from unweave.models.backbones import SmallConvNet, make_backbone
from unweave.models.encoder import BothViews, Encoder, projector, with_ends

__all__ = ["BothViews", "Encoder", "SmallConvNet", "make_backbone", "projector", "with_ends"]
