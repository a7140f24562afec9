"""Transforms with explicit parameters, and the structured views made of them."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.augment._resample import warp
    from unweave.augment._transform import Params, Transform
    from unweave.augment.color import ColorJitter, Normalize, RandomGrayscale, RandomSolarize
    from unweave.augment.config import ViewsConfig
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
    from unweave.augment.leave_one_out import LeaveOneOut
    from unweave.augment.replay import Replay
    from unweave.augment.views import Asymmetric, Pair, Redraw, Views, pair_kinds

__all__ = [
    "AffineTransform",
    "Asymmetric",
    "ColorJitter",
    "GaussianBlur",
    "LeaveOneOut",
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
    "Redraw",
    "Replay",
    "Transform",
    "Views",
    "ViewsConfig",
    "pair_kinds",
    "warp",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "_resample": ("warp",),
        "_transform": ("Params", "Transform"),
        "color": ("ColorJitter", "Normalize", "RandomGrayscale", "RandomSolarize"),
        "config": ("ViewsConfig",),
        "geometry": (
            "AffineTransform",
            "GaussianBlur",
            "RandomHorizontalFlip",
            "RandomPadOrCrop",
            "RandomResizedCrop",
            "RandomRotation",
            "RandomTranslation",
            "RandomZoom",
        ),
        "leave_one_out": ("LeaveOneOut",),
        "replay": ("Replay",),
        "views": ("Asymmetric", "Pair", "Redraw", "Views", "pair_kinds"),
    },
)
