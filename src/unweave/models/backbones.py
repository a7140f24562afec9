"""Backbones by name, from torchvision or timm, without their classifier."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unweave.describe import Described
from unweave.errors import UnweaveError


def make_backbone(
    name: str,
    *,
    channels: int = 3,
    image_size: int | None = None,
    small_images: bool = False,
    pretrained: bool = False,
) -> tuple[nn.Module, int]:
    """A network from images to h, and the size of h.

    Args:
        name: torchvision's (``resnet18``) or timm's (``vit_tiny_patch16_224``; ``timm/resnet18`` where both have one).
        channels: of the images.
        image_size: side of the images in pixels, for networks that are built for one size, such as vision transformers.
        small_images: give a ResNet the stem of the CIFAR papers: a 3×3 convolution without stride and no pooling.
        pretrained: load published weights.

    Examples:
        >>> backbone, features = make_backbone("resnet18", small_images=True)
        >>> features, backbone(torch.rand(2, 3, 32, 32)).shape
        (512, torch.Size([2, 512]))
    """
    import timm
    import torchvision.models as tv

    if not name.startswith("timm/") and name in tv.list_models(module=tv):
        fixed = {"image_size": image_size} if name.startswith("vit_") and image_size and not pretrained else {}
        backbone = tv.get_model(name, weights="DEFAULT" if pretrained else None, **fixed)
        dim = _remove_classifier(backbone)
        if channels != 3:
            _replace_first_convolution(backbone, channels)
    else:
        known = name.removeprefix("timm/")
        if not timm.is_model(known):
            close = [n for n in (*tv.list_models(module=tv), *timm.list_models()) if n.startswith(known[:6])]
            hint = f"; did you mean {', '.join(close[:3])}?" if close else ""
            raise UnweaveError(f"`backbone` {name!r} is in neither torchvision nor timm{hint}")
        fixed = {"img_size": image_size} if image_size and _has_fixed_size(known) else {}
        backbone = timm.create_model(known, pretrained=pretrained, num_classes=0, in_chans=channels, **fixed)
        if fixed:
            _require_size(backbone, name, channels, image_size or 0)
        dim = getattr(backbone, "head_hidden_size", backbone.num_features)
    if small_images:
        _shrink_stem(backbone, name)
    return backbone, dim


def _has_fixed_size(name: str) -> bool:
    import timm

    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    return bool(config and config.fixed_input_size)


@torch.no_grad()
def _require_size(backbone: nn.Module, name: str, channels: int, image_size: int) -> None:
    """Raises unless a network accepts images of this size."""
    try:
        backbone.eval()(torch.zeros(1, channels, image_size, image_size))
    except (AssertionError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise UnweaveError(f"`backbone` {name!r} cannot be used with images of {image_size} pixels: {reason}") from None
    finally:
        backbone.train()


def _replace_first_convolution(backbone: nn.Module, channels: int) -> None:
    """Replaces the first convolution by one for another number of channels, with new weights."""
    name, old = next((n, m) for n, m in backbone.named_modules() if isinstance(m, nn.Conv2d))
    new = nn.Conv2d(
        channels,
        old.out_channels,
        old.kernel_size,  # type: ignore[arg-type]
        old.stride,  # type: ignore[arg-type]
        old.padding,  # type: ignore[arg-type]
        bias=old.bias is not None,
    )
    parent, _, child = name.rpartition(".")
    setattr(backbone.get_submodule(parent), child, new)


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


class _Branches(nn.ModuleList):
    """Modules side by side; their feature maps (n, c, h, w) are concatenated."""

    def forward(self, maps: Tensor) -> Tensor:
        return torch.cat([branch(maps) for branch in self], 1)


def branch_last_stage(backbone: Any, branches: int) -> None:
    """Replaces the last stage of a ResNet by copies of it: h becomes the concatenation of their features."""
    stage = getattr(backbone, "layer4", None)
    if not isinstance(stage, nn.Module):
        raise UnweaveError(
            f"`branches` (LooC++) copies the last stage of a ResNet, which a {type(backbone).__name__} does not have: "
            "use a ResNet as `backbone`"
        )
    backbone.layer4 = _Branches(copy.deepcopy(stage) for _ in range(branches))


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
