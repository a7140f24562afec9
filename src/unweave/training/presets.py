"""Settings that belong together, each with its command, hardware, hours and the score to expect.

Scores are of others, with their source, unless it is said that we have measured them: they are what a run can be laid
beside. Nothing heavy is imported here.
"""

from dataclasses import dataclass
from typing import Any

from unweave.errors import UnweaveError
from unweave.training.pretrain_config import PretrainConfig


@dataclass(frozen=True)
class Preset:
    """A configuration, and what a user should know before it is started."""

    config: PretrainConfig
    about: str
    command: str
    hardware: str
    hours: str
    score: str

    def describe(self) -> str:
        """All of it, for help and documentation."""
        rows = (
            self.about,
            self.command,
            f"hardware: {self.hardware}",
            f"time: {self.hours}",
            f"to expect: {self.score}",
        )
        return "\n  ".join(rows)


_VICREG_VIEWS: dict[str, Any] = {"blur": (1.0, 0.1), "solarize": (0.0, 0.2)}

PRESETS = {
    "small": Preset(
        PretrainConfig(decode_size=96, graph=True),
        about="64px, ResNet-18: a few hundred to a hundred thousand photographs, or a first try.",
        command="unweave train photos --preset small --epochs 1 --batch-size 64 --out run",
        hardware="any; one GPU for more than a few epochs",
        hours="about 48 photographs a second on one core of a server; on one H200 about 61,000 in "
        "batches of 1024, decoded to 64 pixels: 100 epochs of 100,000 photographs in three minutes",
        score="none published for this setting, and none measured by us yet",
    ),
    "cifar": Preset(
        PretrainConfig(
            size=32,
            decode_size=32,
            small_images=True,
            graph=True,
            batch_size=512,
            epochs=200,
            lr=2e-3,
            weight_decay=1e-4,
            blur=(0.0, 0.0),
            solarize=(0.0, 0.0),
            jitter=(0.4, 0.4, 0.4, 0.1),
            crop_scale=0.2,
        ),
        about="CIFAR-10 or CIFAR-100 at 32px, ResNet-18 with the small stem.",
        command="unweave train CIFAR10 --root data --preset cifar --out run",
        hardware="one GPU",
        hours="not run by us; in a first trial this network alone took 66,903 views a second on one H200, "
        "at which 200 epochs are 5 minutes",
        score="not run by us. CIFAR-10, SimCLR without styles: lightly's table has kNN 84.8 % after 200 epochs, "
        "solo-learn's linear 90.74 % after 1000 (VICReg 92.07, Barlow Twins 92.10)",
    ),
    "imagenet-100": Preset(
        PretrainConfig(
            backbone="resnet18",
            size=224,
            decode_size=256,
            batch_size=512,
            epochs=200,
            optimizer="lars",
            lr=0.5,
            weight_decay=1e-6,
            dim=2048,
            hidden=2048,
            depth=3,
            **_VICREG_VIEWS,
        ),
        about="100 classes of ImageNet at 224px, ResNet-18: the paper's setting in little.",
        command="unweave train imagenet-100/train --preset imagenet-100 --out run",
        hardware="one GPU, 16 cores to decode; none tried by us yet",
        hours="not run by us; 16 cores decode 3,180 images a second, at which 200 epochs are 2.2 hours",
        score="not run by us, and no published figure has this setting",
    ),
    "imagenet": Preset(
        PretrainConfig(
            backbone="resnet50",
            size=224,
            decode_size=256,
            batch_size=2048,
            epochs=100,
            optimizer="lars",
            lr=0.5,
            weight_decay=1e-6,
            dim=8192,
            hidden=8192,
            depth=3,
            compile=True,
            **_VICREG_VIEWS,
        ),
        about="The paper's section 5.3: ResNet-50, 224px, 100 epochs, batch 2048, projectors 8192-8192-8192, LARS, "
        "VICReg's asymmetric views, groups spatial and appearance. Its learning rate is the authors' release's for "
        "SimCLR (0.5; take --lr 0.3 with --method vicreg); the paper does not give η and ε.",
        command="unweave train imagenet/train --preset imagenet --devices 8 --out run",
        hardware="several GPUs, 16 cores for each to decode; on fewer, --micro-batch; none tried by us yet",
        hours="not run by us; a ResNet-50 with smaller projectors (2048-128, batch 256, compiled) trained at 3,021 "
        "images a second from JPEG files on one H200 with 16 cores, at which 100 epochs are 12 GPU-hours",
        score="not run by us. The paper: ImageNet top-1 61.7 from h and 49.0 from z (SimCLR + Ours-Scratch); without "
        "styles 68.1 and 56.5; fine-tuned 67.9 and 57.8. VICReg from scratch with styles was unstable there",
    ),
}


def preset(name: str) -> PretrainConfig:
    """A preset's configuration.

    >>> preset("imagenet").batch_size
    2048
    """
    if name not in PRESETS:
        raise UnweaveError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name].config
