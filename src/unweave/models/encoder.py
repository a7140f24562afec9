"""images ─► backbone ─► h ─► one projector for each space ─► z (paper, section 3.2)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, TypeVar, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unweave.describe import Described
from unweave.errors import UnweaveError
from unweave.models.backbones import branch_last_stage, make_backbone
from unweave.settings import require_number

T = TypeVar("T")


Output = Literal["linear", "unit", "standardised", "nonnegative"]
STAGES = ("layer1", "layer2", "layer3")
"""The first three stages of a ResNet."""


def projector(dim_in: int, hidden: int, depth: int, dim_out: int) -> nn.Sequential:
    """``depth`` linear layers with batch norm and ReLU between them and without biases; depth 1 is a linear map."""
    layers: list[nn.Module] = []
    for _ in range(depth - 1):
        layers += [nn.Linear(dim_in, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True)]
        dim_in = hidden
    return nn.Sequential(*layers, nn.Linear(dim_in, dim_out, bias=False))


def output_layer(output: Output, dim: int) -> nn.Module:
    """What follows a projector: nothing, L2-normalisation, batch norm without parameters, or the root of a softmax.

    Examples:
        >>> output_layer("unit", 2)(torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """
    if output == "linear":
        return nn.Identity()
    last = {
        "unit": UnitLength(),
        "standardised": nn.BatchNorm1d(dim, eps=1e-12, affine=False),
        "nonnegative": NonNegative(),
    }[output]
    return nn.Sequential(SinglePrecision(), last)


class SinglePrecision(nn.Module):
    """Half precision to single precision; anything else unchanged.

    Examples:
        >>> SinglePrecision()(torch.ones(1, dtype=torch.bfloat16)).dtype
        torch.float32
    """

    def forward(self, z: Tensor) -> Tensor:
        """(n, d) to (n, d)"""
        return z.float() if z.dtype in (torch.float16, torch.bfloat16) else z


class UnitLength(nn.Module):
    """Unit vectors.

    Examples:
        >>> UnitLength()(torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """

    def forward(self, z: Tensor) -> Tensor:
        """(n, d) to (n, d)"""
        return nn.functional.normalize(z, dim=1)


class NonNegative(nn.Module):
    """Square roots of a softmax: unit vectors with non-negative coordinates.

    Examples:
        >>> NonNegative()(torch.tensor([[0.0, 0.0], [9.0, -9.0]])).round(decimals=2)
        tensor([[0.7100, 0.7100],
                [1.0000, 0.0000]])
    """

    def forward(self, z: Tensor) -> Tensor:
        """(n, d) to (n, d)"""
        return (z.log_softmax(1) / 2).exp()


class Encoder(Described, nn.Module):
    """A backbone and one projector for each space; returns ``{"h": …, "content": …, …}``.

    Args:
        backbone: a name known to torchvision or timm, or any module from images to (n, feature_dim).
        spaces: the names of the spaces, as ``views.spaces``.
        dim: the size of each space; one number, or one for each space.
        hidden: the width of each projector; one number, or one for each space.
        depth: the number of linear layers of each projector; one number, or one for each space.
        split: a single projector for all spaces, whose output is divided by these fractions; ``dim`` is then the size
            of the whole.
        branches: give every space its own copy of a ResNet's last stage, from which its projector reads; h is their
            concatenation (LooC++).
        style_gradient: the fraction of the style spaces' gradient that reaches the backbone; h then depends less on
            style, and the projectors are trained as before.
        style_layers: modules of the backbone, such as ``("layer2", "layer3")`` of a ResNet, whose maps the style
            projectors read instead of h: they hold what h discards, such as position and color. "auto" is the first
            three stages of a ResNet, and h of other networks.
        style_grid: side of the grid to which these feature maps are averaged; 1 for one mean per channel.
        output: the last layer of each projector, one for all spaces or one for each: "linear"; "unit", L2-normalised,
            for SimCLR; "standardised", batch norm without parameters, for Barlow Twins; or "nonnegative", the square
            root of a softmax, a unit vector without negative coordinates, for factors with two ends, such as size,
            and for content of few kinds. The embedding is then what the loss sees: its length, or the variance of its
            dimensions, is not left to chance.
        feature_dim: the size of h, where ``backbone`` is a module without an attribute ``num_features``.
        channels: of the images, where ``backbone`` is a name.
        image_size: side of the images in pixels, where ``backbone`` is the name of a network built for one size.
        small_images: the stem for small images, where ``backbone`` is the name of a ResNet.
        pretrained: load the weights that torchvision or timm publish for the named backbone.

    Notes:
        On the whole sphere an interval can be embedded as a closed loop, with another starting point for each content.
        Neither entropy nor independence changes then, but size 2 of one content lies where size 3 of another does. The
        theorem's spaces are cubes, in which a loop costs entropy. A softmax saturates: the more certain a network is of
        one of a few contents, the less of anything else its embedding holds.

    Examples:
        >>> import torch, unweave as uw
        >>> encoder = uw.Encoder("resnet18", spaces=("content", "color"), dim={"content": 64, "color": 8})
        >>> {name: tuple(z.shape) for name, z in encoder(torch.rand(2, 3, 64, 64)).items()}
        {'h': (2, 512), 'content': (2, 64), 'color': (2, 8)}
    """

    def __init__(
        self,
        backbone: str | nn.Module,
        spaces: Sequence[str],
        *,
        dim: int | Mapping[str, int] = 128,
        hidden: int | Mapping[str, int] = 2048,
        depth: int | Mapping[str, int] = 2,
        split: Mapping[str, float] | None = None,
        branches: bool = False,
        style_gradient: float = 1.0,
        style_layers: Sequence[str] | Literal["auto"] = (),
        style_grid: int = 1,
        output: Output | Mapping[str, Output] = "linear",
        feature_dim: int | None = None,
        channels: int = 3,
        image_size: int | None = None,
        small_images: bool = False,
        pretrained: bool = False,
    ) -> None:
        super().__init__()
        self.spaces = tuple(spaces)
        if not self.spaces or "h" in self.spaces or len(set(self.spaces)) != len(self.spaces):
            raise UnweaveError(f"`spaces` must be different names other than 'h', not {self.spaces}")
        outputs: dict[str, Output] = _per_space("output", output, self.spaces)
        if unknown := set(outputs.values()) - set(get_args(Output)):
            raise UnweaveError(f"`output` is one of {', '.join(get_args(Output))}, not {sorted(unknown)[0]!r}")
        if isinstance(backbone, str):
            self.backbone, known = make_backbone(
                backbone, channels=channels, image_size=image_size, small_images=small_images, pretrained=pretrained
            )
        else:
            self.backbone = backbone
            known = feature_dim or getattr(backbone, "num_features", 0)  # type: ignore[assignment]
            if not known:
                raise UnweaveError("the size of the backbone's output is not known: set `feature_dim`")
        if style_layers == "auto":
            style_layers = STAGES if all(hasattr(self.backbone, stage) for stage in STAGES) else ()
        require_number("style_gradient", style_gradient, "in [0, 1]")
        if split is not None:
            given = {"style_gradient": style_gradient != 1, "style_layers": bool(style_layers), "branches": branches}
            for name in (name for name, is_given in given.items() if is_given):
                raise UnweaveError(f"`{name}` needs a projector for each space: remove `split`")
        if branches and style_layers:
            raise UnweaveError("`branches` gives every space features of its own: remove `style_layers`")
        self._style_gradient = style_gradient
        of_projector = int(known)
        self._branches = len(self.spaces) if branches else 1
        if branches:
            branch_last_stage(self.backbone, self._branches)
        self.feature_dim = of_projector * self._branches
        self._taps: FeatureMaps | None = None
        self._parts: list[int] | None = None
        if split is not None:
            self._parts = _split(split, self.spaces, dim)
            self.dims = dict(zip(self.spaces, self._parts, strict=True))
            sizes = (_single("hidden", hidden), _single("depth", depth), sum(self._parts))
            self.projectors = nn.ModuleDict({"all": projector(self.feature_dim, *sizes)})
        else:
            dims, hiddens, depths = (
                _sizes(name, value, self.spaces) for name, value in (("dim", dim), ("hidden", hidden), ("depth", depth))
            )
            sizes_in = dict.fromkeys(self.spaces, of_projector)
            if style_layers:
                self._taps = FeatureMaps(self.backbone, style_layers, style_grid)
                sizes_in |= dict.fromkeys(self.spaces[1:], self._taps.features(channels, image_size or 64))
            self.projectors = nn.ModuleDict(
                {s: projector(sizes_in[s], hiddens[s], depths[s], dims[s]) for s in self.spaces}
            )
            self.dims = dims
        self.outputs = nn.ModuleDict({s: output_layer(outputs[s], self.dims[s]) for s in self.spaces})

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """h (n, feature_dim), and z (n, dim) of every space by name."""
        h = self.backbone(images)
        if h.ndim != 2 or h.shape[1] != self.feature_dim:
            raise UnweaveError(
                f"the backbone's output has the shape {tuple(h.shape)}, not (n, {self.feature_dim}); remove its "
                "classifier (timm: num_classes=0), pool and flatten it, or set `feature_dim`"
            )
        if self._parts is not None:
            z = dict(zip(self.spaces, self.projectors["all"](h).split(self._parts, 1), strict=True))
        else:
            content, *styles = self._projector_inputs(h)
            inputs = [content, *map(self._less_gradient, styles)]
            z = {space: self.projectors[space](x) for space, x in zip(self.spaces, inputs, strict=True)}
        return {"h": h, **{space: self.outputs[space](z[space]) for space in self.spaces}}

    def _projector_inputs(self, h: Tensor) -> Sequence[Tensor]:
        """What the projector of each space reads."""
        if self._branches > 1:
            return h.chunk(self._branches, 1)
        of_style = h if self._taps is None else self._taps.take()
        return [h, *[of_style] * (len(self.spaces) - 1)]

    def _less_gradient(self, h: Tensor) -> Tensor:
        """h, with a part of its gradient."""
        if self._style_gradient == 1 or not torch.is_grad_enabled():
            return h
        return h.detach() + self._style_gradient * (h - h.detach())


class FeatureMaps:
    """Keeps the feature maps of some modules of a backbone as it computes them, averaged to a grid.

    Examples:
        >>> network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten())
        >>> maps = FeatureMaps(network, ("0",), grid=2)
        >>> h = network(torch.rand(5, 3, 8, 8))
        >>> maps.take().shape
        torch.Size([5, 16])
    """

    def __init__(self, backbone: nn.Module, layers: Sequence[str], grid: int) -> None:
        require_number("style_grid", grid, ">= 1")
        self._backbone, self._layers, self._grid = backbone, tuple(layers), grid
        self._kept: dict[str, Tensor] = {}
        modules = dict(backbone.named_modules())
        for layer in self._layers:
            if layer not in modules:
                known = ", ".join(name for name, _ in backbone.named_children())
                raise UnweaveError(f"`style_layers`: the backbone has no module {layer!r}; there are {known}")
            modules[layer].register_forward_hook(partial(self._keep, layer))

    def _keep(self, layer: str, module: nn.Module, inputs: object, output: Tensor) -> None:
        if not isinstance(output, Tensor) or output.ndim != 4:
            raise UnweaveError(f"`style_layers`: the output of {layer!r} is not a feature map (n, c, h, w)")
        self._kept[layer] = F.adaptive_avg_pool2d(output, self._grid).flatten(1)

    def take(self) -> Tensor:
        """The maps of the backbone's last call (n, d), side by side; each can be taken once."""
        return torch.cat([self._kept.pop(layer) for layer in self._layers], 1)

    @torch.no_grad()
    def features(self, channels: int, image_size: int) -> int:
        """d, found with one image."""
        was_training = self._backbone.training
        self._backbone.eval()(torch.zeros(1, channels, image_size, image_size))
        self._backbone.train(was_training)
        return self.take().shape[1]


class BothViews(nn.Module):
    """Encodes two views in one call, as data-parallel wrappers require; batch norm normalises each view separately.

    Examples:
        >>> encoder = Encoder(torch.nn.Flatten(), ("content",), dim=4, depth=1, feature_dim=12)
        >>> z_a, z_b = BothViews(encoder)(torch.rand(2, 3, 2, 2), torch.rand(2, 3, 2, 2))
        >>> z_a["content"].shape
        torch.Size([2, 4])
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, a: Tensor, b: Tensor | None = None) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The encoder's outputs for view a and for view b; without b, none for it."""
        return self.encoder(a), {} if b is None else self.encoder(b)


def _per_space(name: str, value: T | Mapping[str, T], spaces: tuple[str, ...]) -> dict[str, T]:
    """A setting of every space, from one value for all of them or one for each."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(spaces, value)
    if set(value) != set(spaces):
        raise UnweaveError(f"`{name}` names the spaces {sorted(value)}, but there are {sorted(spaces)}")
    return dict(value)


def _sizes(name: str, value: int | Mapping[str, int], spaces: tuple[str, ...]) -> dict[str, int]:
    """The same for numbers of at least 1."""
    values = _per_space(name, value, spaces)
    for space, number in values.items():
        if number < 1:
            raise UnweaveError(f"`{name}` of space {space!r} must be at least 1, not {number}")
    return values


def _single(name: str, value: int | Mapping[str, int]) -> int:
    if isinstance(value, Mapping):
        raise UnweaveError(f"with `split` there is one projector: `{name}` must be one number, not {dict(value)}")
    return value


def _split(fractions: Mapping[str, float], spaces: tuple[str, ...], dim: int | Mapping[str, int]) -> list[int]:
    total = _single("dim", dim)
    if set(fractions) != set(spaces) or min(fractions.values()) <= 0 or abs(sum(fractions.values()) - 1) > 1e-6:
        raise UnweaveError(
            f"`split` must give each of {sorted(spaces)} a positive fraction, 1 in total, not {dict(fractions)}"
        )
    edges = torch.tensor([0.0] + [fractions[s] for s in spaces], dtype=torch.float64).cumsum(0)
    parts = (edges * total).round().long().diff().tolist()
    if min(parts) < 1:
        raise UnweaveError(f"`split` {dict(fractions)} of {total} dimensions leaves a space without dimensions")
    return parts
