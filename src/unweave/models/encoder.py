"""images ─► backbone ─► h ─► one projector for each space ─► z (paper, section 3.2)."""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from unweave.errors import UnweaveError
from unweave.models.backbones import make_backbone

T = TypeVar("T")


def projector(dim_in: int, hidden: int, depth: int, dim_out: int) -> nn.Sequential:
    """``depth`` linear layers, batch norm and ReLU between them; the last has no bias. Depth 1 is a linear map."""
    layers: list[nn.Module] = []
    for _ in range(depth - 1):
        layers += [nn.Linear(dim_in, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True)]
        dim_in = hidden
    return nn.Sequential(*layers, nn.Linear(dim_in, dim_out, bias=False))


def with_ends(z: Tensor) -> Tensor:
    """Square roots of a softmax, (n, d) to (n, d): unit vectors none of whose coordinates is negative.

    >>> with_ends(torch.tensor([[0.0, 0.0], [9.0, -9.0]])).round(decimals=2)
    tensor([[0.7100, 0.7100],
            [1.0000, 0.0000]])
    """
    return (z.log_softmax(1) / 2).exp()


class Encoder(nn.Module):
    """A backbone and one projector for each space; gives ``{"h": …, "content": …, …}``.

    Args:
        backbone: a name of torchvision's or timm's, or any module from images to (n, dim).
        spaces: the names of the spaces, as ``views.spaces``.
        dim: the size of each space; one number, or one for each space.
        hidden, depth: the width and number of layers of each projector; likewise.
        split: instead of one projector for each space, a single one whose output is split by these fractions; ``dim``
            is then the size of the whole.
        ends: spaces whose embeddings are made to be ``with_ends``: for a factor that is a line, such as size, under a
            method that sees directions alone (SimCLR). On a sphere a line may close to a ring, and on a ring every
            content may begin at a place of its own: all are spread alike, so that neither entropy nor independence
            sees it, and what is size 2 of one content is size 3 of another (``reproduce sprites``). The theorem's
            spaces are cubes, which have ends.
        feature_dim: the size of h, where ``backbone`` is a module that does not say it (as ``num_features``).
        small_images: the stem for small images, where ``backbone`` is the name of a ResNet.
        pretrained: load the library's own weights for the named backbone.

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
        ends: Collection[str] = (),
        feature_dim: int | None = None,
        small_images: bool = False,
        pretrained: bool = False,
    ) -> None:
        super().__init__()
        self.spaces = tuple(spaces)
        if not self.spaces or "h" in self.spaces or len(set(self.spaces)) != len(self.spaces):
            raise UnweaveError(f"spaces must be different names other than 'h', not {self.spaces}")
        self.ends = frozenset(ends)
        if unknown := self.ends - set(self.spaces):
            raise UnweaveError(f"ends names the spaces {sorted(unknown)}, but there are {sorted(self.spaces)}")
        if isinstance(backbone, str):
            self.backbone, known = make_backbone(backbone, small_images=small_images, pretrained=pretrained)
        else:
            self.backbone = backbone
            known = feature_dim or getattr(backbone, "num_features", 0)  # type: ignore[assignment]
            if not known:
                raise UnweaveError("the size of the backbone's output is not known: give feature_dim")
        self.feature_dim = int(known)
        self._parts: list[int] | None = None
        if split is not None:
            self._parts = _split(split, self.spaces, dim)
            sizes = (_single("hidden", hidden), _single("depth", depth), sum(self._parts))
            self.projectors = nn.ModuleDict({"all": projector(self.feature_dim, *sizes)})
        else:
            dims, hiddens, depths = (
                _per_space(name, value, self.spaces)
                for name, value in (("dim", dim), ("hidden", hidden), ("depth", depth))
            )
            self.projectors = nn.ModuleDict(
                {s: projector(self.feature_dim, hiddens[s], depths[s], dims[s]) for s in self.spaces}
            )

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """h (n, feature_dim), and z (n, dim) of every space by name."""
        h = self.backbone(images)
        if self._parts is not None:
            z = dict(zip(self.spaces, self.projectors["all"](h).split(self._parts, 1), strict=True))
        else:
            z = {space: self.projectors[space](h) for space in self.spaces}
        return {"h": h, **{space: with_ends(z[space]) if space in self.ends else z[space] for space in self.spaces}}


class BothViews(nn.Module):
    """Encodes two views in one call, as data-parallel wrappers want it; batch norm sees each view by itself."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, a: Tensor, b: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The encoder's outputs for view a and for view b."""
        return self.encoder(a), self.encoder(b)


def _per_space(name: str, value: int | Mapping[str, int], spaces: tuple[str, ...]) -> dict[str, int]:
    if isinstance(value, Mapping) and set(value) != set(spaces):
        raise UnweaveError(f"{name} names the spaces {sorted(value)}, but there are {sorted(spaces)}")
    values = dict(value) if isinstance(value, Mapping) else dict.fromkeys(spaces, value)
    for space, number in values.items():
        if number < 1:
            raise UnweaveError(f"{name} of space {space!r} must be at least 1, not {number}")
    return values


def _single(name: str, value: int | Mapping[str, int]) -> int:
    if isinstance(value, Mapping):
        raise UnweaveError(f"with split there is one projector: {name} is one number, not {dict(value)}")
    return value


def _split(fractions: Mapping[str, float], spaces: tuple[str, ...], dim: int | Mapping[str, int]) -> list[int]:
    total = _single("dim", dim)
    if set(fractions) != set(spaces) or min(fractions.values()) <= 0 or abs(sum(fractions.values()) - 1) > 1e-6:
        raise UnweaveError(
            f"split must give each of {sorted(spaces)} a positive fraction, 1 in all, not {dict(fractions)}"
        )
    edges = torch.tensor([0.0] + [fractions[s] for s in spaces], dtype=torch.float64).cumsum(0)
    parts = (edges * total).round().long().diff().tolist()
    if min(parts) < 1:
        raise UnweaveError(f"split {dict(fractions)} of {total} dimensions leaves a space with none")
    return parts
