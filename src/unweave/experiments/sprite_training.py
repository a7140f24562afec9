"""What both parts of the sprites experiment train with."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from unweave.models import Encoder, SmallConvNet
from unweave.training import TrainConfig

SMALL = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (64, 2))
"""Width and stride of the small network's convolutions: without the unstrided ones it cannot tell a shape."""


@dataclass(frozen=True, kw_only=True)
class SpriteTraining:
    """Images, network and steps."""

    size: int = 64
    backbone: str = "resnet18"
    """A name of torchvision's or timm's; ``small`` is a few convolutions, for a CPU."""
    hidden: int = 2048
    """Width of the projectors."""
    batch: int = 1024
    steps: int = 3000

    def encoder(
        self, spaces: Sequence[str], dim: int | Mapping[str, int], depth: int = 2, ends: Collection[str] = ()
    ) -> Encoder:
        """With a projector of ``depth`` layers for each space."""
        backbone = SmallConvNet(self.size, SMALL, pooled=True) if self.backbone == "small" else self.backbone
        return Encoder(backbone, spaces, dim=dim, hidden=self.hidden, depth=depth, ends=ends)

    def train_config(self, seed: int, device: str, lr: float = 2e-3) -> TrainConfig:
        """On a GPU compiled, recorded, in bfloat16, a checkpoint at the end alone: a row is to take about a minute."""
        on_cpu = device == "cpu"
        return TrainConfig(
            steps=self.steps,
            batch_size=self.batch,
            lr=lr,
            seed=seed,
            log_every=50,
            checkpoint_every=500 if on_cpu else 0,
            precision="32-true" if on_cpu else "bf16-mixed",
            graph=not on_cpu,
            compile=not on_cpu,
            accelerator=device,
        )
