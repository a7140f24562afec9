"""Transforms with explicit parameters, and the structured views made of them."""

from unweave.augment._transform import Params, Transform
from unweave.augment.color import ColorJitter, Normalize, RandomGrayscale, RandomSolarize
from unweave.augment.geometry import (
    AffineTransform,
    GaussianBlur,
    RandomHorizontalFlip,
    RandomPadOrCrop,
    RandomResizedCrop,
    RandomRotation,
    RandomTranslation,
    RandomZoom,
)
from unweave.augment.replay import Replay
from unweave.augment.views import Pair, Views, run

__all__ = [
    "AffineTransform",
    "ColorJitter",
    "GaussianBlur",
    "Normalize",
    "Pair",
    "Params",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomPadOrCrop",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSolarize",
    "RandomTranslation",
    "RandomZoom",
    "Replay",
    "Transform",
    "Views",
    "run",
]
