"""Network and training settings that both sprite experiments share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from unweave import Encoder, LaunchConfig, OptimConfig, SmallConvNet, Sprites, TrainConfig
from unweave.evaluation import PENALTIES
from unweave.models import Output

MEAN, STD = (0.0233, 0.0210, 0.0184), (0.128, 0.106, 0.105)
"""Statistics of ColorDSprites, from the authors' release."""
SMALL = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (64, 2))
"""Width and stride of the small network's convolutions; the ones without stride are needed to distinguish shapes."""
WARMUP_STEPS = 50


@dataclass(frozen=True, kw_only=True)
class SpriteTraining:
    """Images, network and steps."""

    size: int = 64
    backbone: str = "resnet18"
    """A network of torchvision or timm, or ``small`` for a few convolutions that a CPU can train."""
    hidden: int = 2048
    """Width of the projectors."""
    batch: int = 1024
    steps: int = 3000
    penalties: tuple[float, ...] = PENALTIES
    """Penalties of the linear probes, chosen by cross-validation."""

    def encoder(
        self,
        spaces: Sequence[str],
        dim: int | Mapping[str, int],
        depth: int = 2,
        output: Output | Mapping[str, Output] = "linear",
    ) -> Encoder:
        """An encoder with a projector of ``depth`` layers for each space."""
        backbone = SmallConvNet(self.size, SMALL, pooled=True) if self.backbone == "small" else self.backbone
        return Encoder(backbone, spaces, dim=dim, hidden=self.hidden, depth=depth, output=output)

    def train_config(
        self, seed: int, device: str, lr: float = 2e-3, precision: Literal["auto", "32-true"] = "auto"
    ) -> TrainConfig:
        """Settings of the loop. On a GPU the step is captured as a CUDA graph, and only the last step is saved."""
        on_cpu = device == "cpu"
        return TrainConfig(
            steps=self.steps,
            batch_size=self.batch,
            seed=seed,
            log_every=50,
            checkpoint_every=500 if on_cpu else 0,
            checkpoint_minutes=None,
            graph=not on_cpu,
            optim=OptimConfig(lr=lr, warmup=min(1.0, WARMUP_STEPS / self.steps)),
            launch=LaunchConfig(accelerator=device, precision=precision),
        )


def split_sprites(scored: int, skip: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers of the sprites to train on, a random 90%, and of ``scored`` of the others, after ``skip`` of them."""
    order = torch.randperm(Sprites.count, generator=torch.Generator().manual_seed(0))
    edge = Sprites.count * 9 // 10
    return order[:edge], order[edge + skip : edge + skip + scored]
