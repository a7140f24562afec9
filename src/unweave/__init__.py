"""unweave learns, from unlabelled images, one embedding space for content and one for each style you can augment.

Names are imported when they are first used, so that ``import unweave`` is fast.
"""

from typing import TYPE_CHECKING

from unweave._lazy import attach
from unweave._version import __version__
from unweave.errors import UnweaveError

if TYPE_CHECKING:
    from unweave.augment import Pair, Views
    from unweave.data import Sprites
    from unweave.evaluation import LinearProbe, probe, score_spaces, sensitivity
    from unweave.inference import SpacesModel, load
    from unweave.models import Encoder, SmallConvNet
    from unweave.objectives import (
        AdditiveAscent,
        BarlowTwins,
        CollapseGuard,
        DisentangledLoss,
        DualAscent,
        FixedWeights,
        GeometricGrowth,
        Independence,
        SimCLR,
        VICReg,
    )
    from unweave.pretraining import PretrainConfig, pretrain
    from unweave.search import Index
    from unweave.training import LaunchConfig, OptimConfig, TrainConfig, train

__all__ = [
    "AdditiveAscent",
    "BarlowTwins",
    "CollapseGuard",
    "DisentangledLoss",
    "DualAscent",
    "Encoder",
    "FixedWeights",
    "GeometricGrowth",
    "Independence",
    "Index",
    "LaunchConfig",
    "LinearProbe",
    "OptimConfig",
    "Pair",
    "PretrainConfig",
    "SimCLR",
    "SmallConvNet",
    "SpacesModel",
    "Sprites",
    "TrainConfig",
    "UnweaveError",
    "VICReg",
    "Views",
    "__version__",
    "load",
    "pretrain",
    "probe",
    "score_spaces",
    "sensitivity",
    "train",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "augment": ("Pair", "Views"),
        "baselines": (),
        "data": ("Sprites",),
        "evaluation": ("LinearProbe", "probe", "score_spaces", "sensitivity"),
        "inference": ("SpacesModel", "load"),
        "models": ("Encoder", "SmallConvNet"),
        "objectives": (
            "AdditiveAscent",
            "BarlowTwins",
            "CollapseGuard",
            "DisentangledLoss",
            "DualAscent",
            "FixedWeights",
            "GeometricGrowth",
            "Independence",
            "SimCLR",
            "VICReg",
        ),
        "pretraining": ("PretrainConfig", "pretrain"),
        "search": ("Index",),
        "training": ("LaunchConfig", "OptimConfig", "TrainConfig", "train"),
    },
)
