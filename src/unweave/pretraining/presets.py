"""Presets: settings that belong together, each with its command, hardware, time and expected score.

Scores are published ones with their source, unless they are marked as measured.
"""

from dataclasses import dataclass, replace

from unweave.augment.config import ViewsConfig
from unweave.data.config import DataConfig
from unweave.errors import UnweaveError
from unweave.models.config import EncoderConfig
from unweave.objectives.config import PAPER
from unweave.pretraining.config import PretrainConfig
from unweave.training.config import OptimConfig, TrainConfig


@dataclass(frozen=True)
class Preset:
    """A configuration and what to know before starting it.

    Examples:
        >>> PRESETS["cifar"].config.views.size
        32
    """

    config: PretrainConfig
    about: str
    command: str
    hardware: str
    time: str
    score: str

    def describe(self) -> str:
        """All of it, for help and documentation."""
        lines = (self.about, self.command, f"hardware: {self.hardware}", f"time: {self.time}", f"score: {self.score}")
        return "\n  ".join(lines)


PAPER_VIEWS = ViewsConfig(size=224, crop_scale=0.08, jitter=(0.4, 0.4, 0.2, 0.1), blur=(1.0, 0.1), solarize=(0.0, 0.2))
"""VICReg's asymmetric views, which the paper uses."""
PAPER_SPACES = EncoderConfig(dim=2048, style_gradient=1.0, style_layers=(), style_grid=1)
"""Every projector reads h."""
SMALL_OPTIM = OptimConfig(lr=2e-3, lr_batch=1024, weight_decay=0.1)

PRESETS = {
    "small": Preset(
        PretrainConfig(
            data=DataConfig(decode_size=96),
            training=TrainConfig(batch_size=0, graph=True, optim=SMALL_OPTIM),
        ),
        about="64px, ResNet-18: a few hundred to a hundred thousand photographs, or a first try.",
        command="unweave train photos --preset small --out run",
        hardware="any; one GPU for more than a few epochs",
        time="about 48 photographs a second on one core of a server; about 61,000 on one H200 in batches of 1024, "
        "decoded to 64 pixels: 100 epochs of 100,000 photographs in three minutes",
        score="the same network, views and objective, trained by `unweave reproduce transfer` on 60,000 photographs of "
        "Tiny-ImageNet decoded at 64 pixels, 50 epochs, means of 3 seeds: "
        "CIFAR-10 71.9 % and Caltech-101 55.6 % by linear probes of z; sensitivity to spatial and appearance: "
        "content 0.15 and 0.05, spatial 0.83 and 0.05, appearance 0.04 and 0.89. "
        "The preset as it is, on held-out photographs of pets, flowers and cars: "
        "content 0.14 and 0.05, spatial 0.85 and 0.05, appearance 0.07 and 0.87; of birds: "
        "content 0.15 and 0.06, spatial 0.78 and 0.04, appearance 0.08 and 0.82",
    ),
    "cifar": Preset(
        PretrainConfig(
            data=DataConfig(decode_size=32),
            views=ViewsConfig(size=32, blur=(0.0, 0.0), solarize=(0.0, 0.0)),
            encoder=EncoderConfig(small_images=True),
            training=TrainConfig(
                epochs=200, batch_size=512, graph=True, optim=OptimConfig(lr=2e-3, warmup=0.05, weight_decay=0.1)
            ),
        ),
        about="CIFAR-10 or CIFAR-100 at 32px, ResNet-18 with the stem for small images.",
        command="unweave train CIFAR10 --root data --preset cifar --out run",
        hardware="one GPU",
        time="not measured yet; this network alone processes 66,903 views a second on one H200, at which 200 epochs "
        "take 5 minutes",
        score="not measured yet. Published for SimCLR without styles on CIFAR-10: kNN 84.8 % after 200 epochs "
        "(lightly), linear 90.74 % after 1000 (solo-learn; VICReg 92.07, Barlow Twins 92.10)",
    ),
    "imagenet-100": Preset(
        PretrainConfig(
            data=DataConfig(decode_size=256),
            views=PAPER_VIEWS,
            encoder=PAPER_SPACES,
            objective=PAPER,
            training=TrainConfig(
                epochs=200,
                batch_size=512,
                optim=OptimConfig(optimizer="lars", lr=0.5, lr_batch=256, weight_decay=1e-6, warmup=0.05),
            ),
        ),
        about="100 classes of ImageNet at 224px, ResNet-18: the paper's setting at a smaller scale.",
        command="unweave train imagenet-100/train --preset imagenet-100 --out run",
        hardware="one GPU, 16 cores to decode",
        time="not measured yet; 16 cores decode 3,180 images a second, at which 200 epochs take 2.2 hours",
        score="not measured yet, and none is published for this setting",
    ),
    "imagenet": Preset(
        PretrainConfig(
            data=DataConfig(decode_size=256),
            views=PAPER_VIEWS,
            encoder=replace(PAPER_SPACES, backbone="resnet50", dim=8192, hidden=8192),
            objective=PAPER,
            training=TrainConfig(
                epochs=100,
                batch_size=2048,
                compile=True,
                optim=OptimConfig(optimizer="lars", lr=0.5, lr_batch=256, weight_decay=1e-6),
            ),
        ),
        about="The paper's section 5.3: ResNet-50, 224px, 100 epochs, batch 2048, projectors 8192-8192-8192, LARS, "
        "VICReg's asymmetric views, groups spatial and appearance. The learning rate is that of the authors' release "
        "for SimCLR (0.5; use --lr 0.3 with --method vicreg); the paper does not give η and ε.",
        command="unweave train imagenet/train --preset imagenet --devices 8 --out run",
        hardware="several GPUs with 16 cores each to decode; with fewer, use --micro-batch",
        time="not measured yet; a ResNet-50 with smaller projectors (2048-128, batch 256, compiled) trains at 3,021 "
        "images a second from JPEG files on one H200 with 16 cores, at which 100 epochs take 12 GPU-hours",
        score="not measured yet. Published in the paper: ImageNet top-1 61.7 from h and 49.0 from z (SimCLR + "
        "Ours-Scratch); without styles 68.1 and 56.5; fine-tuned 67.9 and 57.8. VICReg from scratch with styles was "
        "unstable there",
    ),
}


def preset(name: str) -> PretrainConfig:
    """A preset's configuration.

    Examples:
        >>> preset("imagenet").training.batch_size
        2048
    """
    if name not in PRESETS:
        raise UnweaveError(f"there is no `preset` {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name].config
