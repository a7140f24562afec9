"""Settings of the encoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unweave.settings import require

if TYPE_CHECKING:
    from unweave.models import Encoder


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """A backbone, and one projector for each space.

    Examples:
        >>> EncoderConfig(dim=32, hidden=64).build(("content", "color")).feature_dim
        512
    """

    backbone: str = "resnet18"
    """A network of torchvision or timm, by name."""
    small_images: bool = False
    """Give a ResNet the stem for 32-pixel images: a 3×3 convolution without stride, no pooling."""
    dim: int = 512
    """Dimensions of each space."""
    style_dim: int | None = None
    """Dimensions of each style space; by default as many as content's."""
    hidden: int = 2048
    """Width of each projector."""
    depth: int = 3
    """Linear layers of each projector."""
    style_gradient: float = 0.1
    """Fraction of the style spaces' gradient that reaches the backbone."""
    style_layers: tuple[str, ...] = ("auto",)
    """Modules of the backbone whose feature maps the style projectors read instead of h, such as layer2 of a ResNet;
    auto: the first three stages of a ResNet, and h of other networks."""
    style_grid: int = 2
    """Side of the grid to which these feature maps are averaged."""

    def __post_init__(self) -> None:
        require(self, ">= 1", "dim", "style_dim", "hidden", "depth", "style_grid")
        require(self, "in [0, 1]", "style_gradient")

    def build(
        self,
        spaces: Sequence[str],
        *,
        channels: int = 3,
        image_size: int | None = None,
        pretrained: bool = False,
        branches: bool = False,
    ) -> "Encoder":
        """The network; its weights are drawn from torch's global generator."""
        from unweave.models import Encoder

        style_dim = self.dim if self.style_dim is None else self.style_dim
        return Encoder(
            self.backbone,
            spaces,
            dim={space: style_dim if number else self.dim for number, space in enumerate(spaces)},
            hidden=self.hidden,
            depth=self.depth,
            channels=channels,
            image_size=image_size,
            small_images=self.small_images,
            pretrained=pretrained,
            branches=branches,
            style_gradient=self.style_gradient,
            style_layers=() if branches else "auto" if self.style_layers == ("auto",) else self.style_layers,
            style_grid=self.style_grid,
        )
