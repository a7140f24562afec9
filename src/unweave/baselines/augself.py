"""AugSelf (Lee et al. 2021, "Improving transferability of representations via augmentation-aware self-supervision").

    loss = base method on z  +  Σ_t weight_t · error of predicting how the views differ in transform t, from both h

Legend: n images, d dimensions of h, k numbers that describe a transform.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unweave.augment import (
    ColorJitter,
    GaussianBlur,
    Pair,
    Params,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Transform,
    Views,
)
from unweave.describe import Described
from unweave.distributed import gather
from unweave.errors import UnweaveError
from unweave.models.encoder import projector
from unweave.objectives import BaseMethod, DisentangledLoss, LossTerms, Objective
from unweave.objectives.base import Embeddings
from unweave.settings import require_number


@dataclass(frozen=True)
class _Target:
    transform: type[Transform]
    numbers: int


TARGETS = {
    "crop": _Target(RandomResizedCrop, 4),
    "color": _Target(ColorJitter, 4),
    "flip": _Target(RandomHorizontalFlip, 1),
    "blur": _Target(GaussianBlur, 1),
}
"""What can be predicted: the transform, and how many numbers describe it."""
PUBLISHED = {"crop": 0.5, "color": 0.5}
"""The weights on ImageNet-100."""


def parameter_differences(pair: Pair, names: Sequence[str] = tuple(PUBLISHED)) -> dict[str, Tensor]:
    """How the views of a pair differ, by name: (n, 2, k), view a relative to view b and the reverse.

    - crop: the differences of the windows' centres (y, x) and sizes (height, width), as fractions of the image; x in
      the frame of the first view, which may be mirrored;
    - color: the differences of brightness, contrast, saturation and hue, as fractions of their ranges;
    - flip: 1 where both views are mirrored or neither is, 0 otherwise;
    - blur: the difference of the blurs' widths as a fraction of the largest, 0 being no blur.

    Examples:
        >>> import torch, unweave as uw, unweave.augment as A
        >>> views = uw.Views({}, ungrouped=[A.RandomResizedCrop(8), A.ColorJitter(0.4, 0.4, 0.2, 0.1)])
        >>> pair = views(torch.rand(5, 3, 16, 16))
        >>> {name: tuple(value.shape) for name, value in parameter_differences(pair).items()}
        {'crop': (5, 2, 4), 'color': (5, 2, 4)}
    """
    differences = {}
    for name in names:
        a, b = _both(pair, TARGETS[name].transform)
        if name == "crop":
            differences[name] = _crop_difference(pair, a, b)
        elif name == "color":
            differences[name] = _antisymmetric(*_colors(a, b))
        elif name == "flip":
            same = (a.params["on"] == b.params["on"]).float()
            differences[name] = same[:, None, None].expand(-1, 2, 1)
        else:
            differences[name] = _antisymmetric(*_blurs(a, b))
    return differences


@dataclass(frozen=True)
class _Made:
    """A transform of one view with its parameters, and the size of the images before it."""

    transform: Any
    params: Params
    size: tuple[int, int]


def _find(pair: Pair, side: int, kind: type[Transform]) -> _Made | None:
    assert pair.steps is not None
    assert pair.size is not None
    size = pair.size
    for transform, params in pair.steps[side]:
        if isinstance(transform, kind):
            return _Made(transform, params, size)
        size = transform.output_size(size)
    return None


def _both(pair: Pair, kind: type[Transform]) -> tuple[_Made, _Made]:
    a, b = (_find(pair, side, kind) for side in (0, 1))
    if a is None or b is None:
        raise UnweaveError(f"the views have no {kind.__name__}, so its parameters cannot be predicted")
    return a, b


def _antisymmetric(a: Tensor, b: Tensor) -> Tensor:
    """(n, 2, k) from (n, k) each."""
    return torch.stack([a - b, b - a], 1)


def _crop_difference(pair: Pair, a: _Made, b: _Made) -> Tensor:
    windows = []
    for made in (a, b):
        height, width = made.size
        top, left, h, w = (made.params[name] for name in ("top", "left", "height", "width"))
        windows.append(torch.stack([(top + h / 2) / height, (left + w / 2) / width, h / height, w / width], 1))
    difference = _antisymmetric(*windows)
    flips = [_find(pair, side, RandomHorizontalFlip) for side in (0, 1)]
    for side, flip in enumerate(flips):
        if flip is not None:
            x = difference[:, side, 1]
            difference[:, side, 1] = torch.where(flip.params["on"], -x, x)
    return difference


def _colors(a: _Made, b: _Made) -> list[Tensor]:
    """Distances from no change, (n, 4) for each view, as fractions of the wider of the two views' ranges."""
    ranges = [[getattr(made.transform, name) for name in ColorJitter.names] for made in (a, b)]
    widths = [max(high - low for low, high in both) or 1.0 for both in zip(*ranges, strict=True)]
    neutral = (1.0, 1.0, 1.0, 0.0)
    values = []
    for made in (a, b):
        factors = [(made.params[name] - n) / w for name, n, w in zip(ColorJitter.names, neutral, widths, strict=True)]
        values.append(torch.where(made.params["on"][:, None], torch.stack(factors, 1), 0.0))
    return values


def _blurs(a: _Made, b: _Made) -> list[Tensor]:
    largest = max(made.transform.sigma[1] for made in (a, b))
    return [torch.where(made.params["on"], made.params["sigma"] / largest, 0.0)[:, None] for made in (a, b)]


class AugSelf(Described, Objective):
    """A base method on one space, plus the prediction of how two views differ from the backbone's output h of both.

    The views' groups are not used: the parameters of two views are always independent. h is what to evaluate.

    Args:
        base: the base method; published with SimCLR, MoCo, BYOL, SimSiam and SwAV.
        weights: what is predicted (crop, color, flip, blur) with its weight in the loss. Published: 0.5 for crop and
            color on ImageNet-100, 1 on STL-10.
        hidden: the width of the prediction heads.
        depth: their linear layers.

    Notes:
        As in the public code, each head sees the pair in both orders, differences are regressed through a tanh by the
        mean squared error, and flips are classified.

    Examples:
        >>> import tempfile, unweave as uw, unweave.augment as A
        >>> views = uw.Views({"spatial": [A.RandomResizedCrop(16)], "color": [A.ColorJitter(0.4, 0.4, 0.2, 0.1)]})
        >>> encoder = uw.Encoder(uw.SmallConvNet(16, layers=((4, 2),), dim=8), ("content",), dim=4, hidden=8)
        >>> config = uw.TrainConfig(steps=2, batch_size=8)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     run = uw.train(uw.Sprites(16), views, encoder, AugSelf(uw.SimCLR()), config, out, progress=False)
        >>> sorted(name for name in run.metrics[-1] if name.startswith("predict"))
        ['predict_color', 'predict_crop']
    """

    spaces = ("content",)

    def __init__(
        self,
        base: BaseMethod,
        *,
        weights: Mapping[str, float] = PUBLISHED,
        hidden: int = 512,
        depth: int = 3,
    ) -> None:
        super().__init__()
        if unknown := set(weights) - set(TARGETS):
            raise UnweaveError(f"`weights` names {sorted(unknown)}; AugSelf predicts {', '.join(TARGETS)}")
        for name, weight in weights.items():
            require_number(f"weights[{name!r}]", weight, "> 0")
        self.weights, self.hidden, self.depth = dict(weights), hidden, depth
        self.contrastive = DisentangledLoss(base, spaces=self.spaces)
        self.heads = nn.ModuleDict()

    @property
    def outputs(self) -> tuple[str, ...]:
        """z for the base method, h for the predictions."""
        return (*self.spaces, "h")

    @property
    def geometry(self) -> BaseMethod:
        """That of the base method."""
        return self.contrastive.base

    @property
    def least_batch(self) -> int:
        """That of the base method."""
        return self.contrastive.least_batch

    def sampler(self, views: Any) -> Views:
        """The same transforms, never shared; raises where what is to be predicted is not among them."""
        if not isinstance(views, Views):
            raise UnweaveError(
                f"AugSelf predicts the parameters of `views` of the class Views, not {type(views).__name__}"
            )
        for name in self.weights:
            kind = TARGETS[name].transform
            if not any(isinstance(transform, kind) for transform in views.transforms()):
                raise UnweaveError(
                    f"AugSelf cannot predict {name!r}: the views have no {kind.__name__}; remove it from `weights`, "
                    f"or set `predict_{name}` to 0"
                )
        return views.without_groups()

    def attach(self, encoder: nn.Module) -> None:
        """Makes the prediction heads; their weights are drawn from torch's global generator."""
        dim = getattr(encoder, "feature_dim", None)
        if not isinstance(dim, int):
            raise UnweaveError(f"AugSelf needs to know the size of h: the encoder's `feature_dim` is {dim}")
        for name in self.weights:
            if name not in self.heads:
                self.heads[name] = projector(2 * dim, self.hidden, self.depth, TARGETS[name].numbers)

    def targets(self, pair: Any) -> dict[str, Tensor]:
        """The differences to be predicted, (n, 2, k) by name."""
        return parameter_differences(pair, tuple(self.weights))

    def forward(
        self, z_a: Embeddings, z_b: Embeddings, shared: Tensor, targets: Mapping[str, Tensor] | None = None
    ) -> LossTerms:
        """The terms of a batch: the base method's, and the errors of the predictions."""
        assert targets is not None
        terms = self.contrastive(z_a, z_b, shared)
        loss, metrics = terms.loss, dict(terms.metrics)
        with torch.autocast(loss.device.type, enabled=False):
            h_a, h_b = gather(z_a["h"].float()), gather(z_b["h"].float())
            both = torch.cat([torch.cat([h_a, h_b], 1), torch.cat([h_b, h_a], 1)])
            for name, weight in self.weights.items():
                target = gather(targets[name]).transpose(0, 1).flatten(0, 1)
                error = self._error(name, self.heads[name](both), target)
                loss, metrics[f"predict_{name}"] = loss + weight * error, error.detach()
        return replace(terms, loss=loss, metrics=metrics)

    @staticmethod
    def _error(name: str, predicted: Tensor, target: Tensor) -> Tensor:
        if name == "flip":
            return F.binary_cross_entropy_with_logits(predicted, target)
        return F.mse_loss(predicted.tanh(), target)

    def update(self, terms: LossTerms) -> None:
        """That of the base method, which reports a collapse."""
        self.contrastive.update(terms)

    def finish(self, terms: LossTerms) -> None:
        """That of the base method."""
        self.contrastive.finish(terms)
