"""What a configuration means: its views, encoder, objective and schedule."""

import torch

from unweave import augment as A
from unweave.models import Encoder
from unweave.objectives import BarlowTwins, DisentangledLoss, DualAscent, Fixed, SimCLR, VICReg
from unweave.objectives._base import BaseMethod
from unweave.training.config import TrainConfig
from unweave.training.pretrain_config import PretrainConfig

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's, as nearly every published checkpoint has them."""
STYLES = ("spatial", "appearance")


def make_views(config: PretrainConfig) -> A.Views:
    """Crop and flip are spatial; jitter, grayscale, blur and solarize are appearance (paper, appendix B.3)."""
    spatial = [
        A.RandomResizedCrop(config.size, (config.crop_scale, 1.0), interpolation="bicubic"),
        A.RandomHorizontalFlip(),
    ]
    kernel = 2 * (config.size // 20) + 1  # VICReg's 23 pixels at 224

    def appearance(side: int) -> list[A.Transform]:
        return [
            A.ColorJitter(*config.jitter, p=0.8),
            A.RandomGrayscale(p=0.2),
            A.GaussianBlur(kernel, (0.1, 2.0), p=config.blur[side]),
            A.RandomSolarize(0.5, p=config.solarize[side]),
        ]

    normalize = A.Normalize(MEAN, STD)
    if config.styles:
        return A.Views({"spatial": spatial, "appearance": (appearance(0), appearance(1))}, always=[normalize])
    return A.Views({}, always=([*spatial, *appearance(0), normalize], [*spatial, *appearance(1), normalize]))


def make_encoder(config: PretrainConfig, *, pretrained: bool = False) -> Encoder:
    """The network, its weights drawn from the seed."""
    torch.manual_seed(config.seed)
    return Encoder(
        config.backbone,
        spaces(config),
        dim=config.dim,
        hidden=config.hidden,
        depth=config.depth,
        small_images=config.small_images,
        pretrained=pretrained,
    )


def spaces(config: PretrainConfig) -> tuple[str, ...]:
    """Content, and the styles where they are wanted."""
    return ("content", *STYLES) if config.styles else ("content",)


def make_objective(config: PretrainConfig, steps_per_epoch: int) -> DisentangledLoss:
    """The base method; with styles, under weights that rise until every space is invariant."""
    bases: dict[str, BaseMethod] = {
        "simclr": SimCLR(config.temperature),
        "vicreg": VICReg(),
        "barlow": BarlowTwins(),
    }
    weights = Fixed()
    if config.styles:
        weights = DualAscent(
            rule=config.weight_rule,
            lr=config.weight_lr,
            tolerance=config.tolerance,
            warmup=config.weight_warmup_epochs * steps_per_epoch,
        )
    return DisentangledLoss(bases[config.method], spaces=spaces(config), weights=weights)


def make_train_config(
    config: PretrainConfig, epochs: int, steps_per_epoch: int, *, devices: int, nodes: int, precision: str
) -> TrainConfig:
    """The loop's own settings for a phase of so many epochs."""
    steps = epochs * steps_per_epoch
    scale = config.batch_size / 256 if config.optimizer == "lars" else 1.0
    return TrainConfig(
        steps=steps,
        batch_size=config.batch_size,
        micro_batch=config.micro_batch,
        optimizer=config.optimizer,
        lr=config.lr * scale,
        warmup_steps=min(round(config.warmup_epochs * steps_per_epoch), steps // 10),
        weight_decay=config.weight_decay,
        clip=config.clip,
        precision=precision,  # type: ignore[arg-type]
        compile=config.compile,
        graph=config.graph,
        seed=config.seed,
        log_every=min(config.log_every, steps),
        checkpoint_every=0,
        checkpoint_minutes=config.checkpoint_minutes,
        tensorboard=config.tensorboard,
        accelerator=config.accelerator,
        devices=devices,
        nodes=nodes,
        strategy=config.strategy,
    )
