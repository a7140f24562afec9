"""Backbones by name, from torchvision or timm, without their classifier."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from unweave.describe import Described
from unweave.errors import UnweaveError


def make_backbone(name: str, *, small_images: bool = False, pretrained: bool = False) -> tuple[nn.Module, int]:
    """A network from images to h, and the size of h.

    ``name`` is torchvision's (``resnet18``) or timm's (``vit_tiny_patch16_224``, or ``timm/resnet18`` where both have
    one). ``small_images`` gives a ResNet the stem of the CIFAR papers: a 3×3 convolution without stride and no pooling.

    Examples:
        >>> backbone, features = make_backbone("resnet18", small_images=True)
        >>> features, backbone(torch.rand(2, 3, 32, 32)).shape
        (512, torch.Size([2, 512]))
    """
    import timm
    import torchvision.models as tv

    if not name.startswith("timm/") and name in tv.list_models(module=tv):
        backbone = tv.get_model(name, weights="DEFAULT" if pretrained else None)
        dim = _remove_classifier(backbone)
    else:
        known = name.removeprefix("timm/")
        if not timm.is_model(known):
            close = [n for n in (*tv.list_models(module=tv), *timm.list_models()) if n.startswith(known[:6])]
            hint = f"; did you mean {', '.join(close[:3])}?" if close else ""
            raise UnweaveError(f"`backbone` {name!r} is in neither torchvision nor timm{hint}")
        backbone = timm.create_model(known, pretrained=pretrained, num_classes=0)
        dim = getattr(backbone, "head_hidden_size", backbone.num_features)
    if small_images:
        _shrink_stem(backbone, name)
    return backbone, dim


def _remove_classifier(backbone: nn.Module) -> int:
    """Replaces the last linear layer by the identity; returns its number of inputs."""
    name, last = [(n, m) for n, m in backbone.named_modules() if isinstance(m, nn.Linear)][-1]
    parent, _, child = name.rpartition(".")
    setattr(backbone.get_submodule(parent), child, nn.Identity())
    return last.in_features


def _shrink_stem(backbone: Any, name: str) -> None:
    if not (isinstance(getattr(backbone, "conv1", None), nn.Conv2d) and hasattr(backbone, "maxpool")):
        raise UnweaveError(f"`small_images` changes the stem of a ResNet; `backbone` {name!r} has no such stem")
    old = backbone.conv1
    backbone.conv1 = nn.Conv2d(old.in_channels, old.out_channels, 3, stride=1, padding=1, bias=False)
    nn.init.kaiming_normal_(backbone.conv1.weight, mode="fan_out", nonlinearity="relu")
    backbone.maxpool = nn.Identity()


class SmallConvNet(Described, nn.Module):
    """A few strided convolutions and a fully connected layer, for small images on a CPU.

    The last feature map is flattened, not averaged, so that h encodes position.

    Args:
        size: side of the images in pixels.
        layers: (width, stride) of each convolution.
        dim: size of the fully connected layer.
        channels: of the images.
        pooled: append the mean and the maximum of each channel to h, which do not depend on position.

    Examples:
        >>> SmallConvNet(32)(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 128])
    """

    def __init__(
        self,
        size: int,
        layers: Sequence[tuple[int, int]] = ((16, 2), (32, 2), (32, 1), (64, 2)),
        dim: int = 128,
        channels: int = 3,
        *,
        pooled: bool = False,
    ) -> None:
        super().__init__()
        convolutions: list[nn.Module] = []
        before, side = channels, size
        for width, stride in layers:
            convolutions += [
                nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
            before, side = width, -(-side // stride)
        self.pooled = pooled
        self.num_features = dim + 2 * before * pooled
        self.layers = nn.Sequential(
            *convolutions,
            nn.Flatten(),
            nn.Linear(before * side * side, dim, bias=False),
            nn.BatchNorm1d(dim),
            nn.ReLU(),
        )

    def forward(self, images: Any) -> Any:
        """(n, c, size, size) to (n, num_features)."""
        if not self.pooled:
            return self.layers(images)
        maps = self.layers[:-4](images)
        return torch.cat([self.layers[-4:](maps), maps.mean((2, 3)), maps.amax((2, 3))], 1)
