"""Settings of the views: stock styles for photographs, or groups described in YAML."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unweave.errors import UnweaveError
from unweave.settings import require, yaml_only

if TYPE_CHECKING:
    from unweave.augment import Transform, Views
    from unweave.augment.views import Group

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's statistics, which nearly every published checkpoint expects."""
STOCK = ("crop", "flip", "rotation", "jitter", "grayscale", "blur", "solarize")
"""The stock transforms in the order in which they are applied."""
SPATIAL, COLOR = STOCK[:3], ("jitter", "grayscale")
STYLES = {
    "spatial": ("crop", "flip"),
    "crop": ("crop",),
    "flip": ("flip",),
    "rotation": ("rotation",),
    "appearance": ("jitter", "grayscale", "blur", "solarize"),
    "color": COLOR,
    "blur": ("blur",),
}
"""The stock styles and the transforms of each."""


@dataclass(frozen=True, kw_only=True)
class ViewsConfig:
    """Views of photographs: one group for each style.

    Examples:
        >>> ViewsConfig(size=32).build().spaces
        ('content', 'spatial', 'appearance')
        >>> ViewsConfig(styles=("color", "rotation")).build().spaces
        ('content', 'rotation', 'color')
    """

    styles: tuple[str, ...] = ("spatial", "appearance")
    """Styles to learn a space for, of spatial, crop, flip, rotation, appearance, color and blur (see `unweave styles`).
    The transforms of the others are applied to every view and never shared. "none" trains the base method alone."""
    size: int = 64
    """Side of the network's input in pixels."""
    crop_scale: float = 0.2
    """Smallest area of a crop, as a fraction of the image."""
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)
    """Strength of brightness, contrast, saturation and hue jitter."""
    blur: tuple[float, float] = (0.5, 0.5)
    """Probability of blurring the first and the second view."""
    solarize: tuple[float, float] = (0.1, 0.1)
    """Probability of solarizing the first and the second view."""
    unshared: int = 1
    """Pairs of views that share no style for each pair that shares a given one."""
    share: bool = True
    """Share the parameters of a style in the pairs of its space; without it no space can keep a style: a control."""
    rotation: float = 30.0
    """Largest angle of the style rotation, in degrees."""
    mean: tuple[float, ...] | None = None
    """Mean of each channel, for images in [0, 1]; by default ImageNet's for 3 channels, otherwise measured."""
    std: tuple[float, ...] | None = None
    """Standard deviation of each channel; likewise."""
    groups: dict[str, Any] | None = yaml_only(None)
    """Groups of your own, instead of styles: transforms by name with their arguments."""
    ungrouped: list[Any] | None = yaml_only(None)
    """Transforms in no group, with groups of your own; normalisation is added."""

    def __post_init__(self) -> None:
        require(self, ">= 1", "size", "unshared")
        require(self, "in [0, 1]", "crop_scale")
        require(self, ">= 0", "rotation")
        if (self.mean is None) != (self.std is None) or len(self.mean or ()) != len(self.std or ()):
            raise UnweaveError(f"`mean` and `std` must have as many numbers, not {self.mean} and {self.std}")
        for name in self.chosen:
            if name not in STYLES:
                raise UnweaveError(f"`styles` has no {name!r}; there are {', '.join(STYLES)} and none")
        used: dict[str, str] = {}
        for name in self.chosen:
            for transform in STYLES[name]:
                if transform in used:
                    raise UnweaveError(f"`styles` {used[transform]} and {name} share the transform {transform}")
                used[transform] = name

    @property
    def chosen(self) -> tuple[str, ...]:
        """The stock styles in the order in which their transforms are applied."""
        names = () if self.groups is not None or self.styles == ("none",) else self.styles
        first = {name: STOCK.index(transforms[0]) for name, transforms in STYLES.items()}
        return tuple(sorted(names, key=lambda name: first.get(name, 0)))

    @property
    def spaces(self) -> tuple[str, ...]:
        """The spaces of these views."""
        return ("content", *(self.chosen if self.groups is None else self.groups))

    @property
    def geometric(self) -> tuple[str, ...]:
        """The style spaces whose transforms move pixels."""
        if self.groups is None:
            return tuple(name for name in self.chosen if set(STYLES[name]) & set(SPATIAL))
        from unweave.augment import Views

        views = Views(self._described_groups())
        return tuple(name for name in views.groups if any(each.geometric for each in views.transforms(name)))

    def _described_groups(self) -> "dict[str, Group]":
        """The groups that are described in YAML."""
        described = self.groups or {}
        return {name: _described_group(f"groups.{name}", value, self.size) for name, value in described.items()}

    def build(self, channels: int = 3) -> "Views":
        """The views, for images with this many channels (paper, appendix B.3)."""
        from unweave import augment as A

        normalize = A.Normalize(*self.statistics(channels))
        how: dict[str, Any] = {"unshared": self.unshared, "share": self.share}
        if self.groups is not None:
            extra = _transforms("ungrouped", self.ungrouped or [], self.size)
            return A.Views(self._described_groups(), ungrouped=[*extra, normalize], **how)
        if channels not in (1, 3) and (colored := [name for name in self.chosen if set(STYLES[name]) & set(COLOR)]):
            raise UnweaveError(f"`styles` {', '.join(colored)} need gray or RGB images, not {channels} channels")
        stock = {name: both for name in STOCK if (both := self._stock(name, channels)) is not None}
        shared = {name: [stock[part] for part in STYLES[name]] for name in self.chosen}
        rest = [name for name in stock if not any(name in STYLES[style] for style in self.chosen)]
        before = [stock[name] for name in rest if name in SPATIAL]
        after = [stock[name] for name in rest if name not in SPATIAL]
        return A.Views(
            {name: _group(transforms) for name, transforms in shared.items()},
            ungrouped=_group([*after, (normalize, normalize)]),
            before=_group(before),
            **how,
        )

    def _stock(self, name: str, channels: int) -> "tuple[Transform, Transform] | None":
        """A stock transform for the first and the second view; None where it is not used."""
        from unweave import augment as A

        if (name in COLOR and channels not in (1, 3)) or (name == "rotation" and "rotation" not in self.chosen):
            return None
        kernel = 2 * (self.size // 20) + 1  # VICReg's 23 pixels at 224
        if name in ("blur", "solarize"):
            made: list[Transform] = [
                A.GaussianBlur(kernel, (0.1, 2.0), p=self.blur[view])
                if name == "blur"
                else A.RandomSolarize(0.5, p=self.solarize[view])
                for view in (0, 1)
            ]
            return made[0], made[1]
        both: Transform = {
            "crop": lambda: A.RandomResizedCrop(self.size, (self.crop_scale, 1.0), interpolation="bicubic"),
            "flip": lambda: A.RandomHorizontalFlip(),
            "rotation": lambda: A.RandomRotation(self.rotation),
            "jitter": lambda: A.ColorJitter(*self.jitter, p=0.8),
            "grayscale": lambda: A.RandomGrayscale(p=0.2),
        }[name]()
        return both, both

    def statistics(self, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel."""
        if self.mean is not None and self.std is not None:
            if len(self.mean) != channels:
                raise UnweaveError(
                    f"`mean` and `std` have {len(self.mean)} numbers for images with {channels} channels"
                )
            return self.mean, self.std
        if channels != 3:
            raise UnweaveError(f"`mean` and `std` are needed for images with {channels} channels")
        return MEAN, STD


def _group(transforms: "Sequence[tuple[Transform, Transform]]") -> "Group":
    """Transforms of the first and the second view as a group."""
    from unweave.augment import Asymmetric

    first, second = [a for a, _ in transforms], [b for _, b in transforms]
    return first if all(a is b for a, b in transforms) else Asymmetric(first, second)


def _described_group(where: str, value: Any, size: int) -> "Group":
    from unweave.augment import Asymmetric

    if isinstance(value, Mapping) and set(value) == {"first", "second"}:
        return Asymmetric(*(_transforms(f"{where}.{side}", value[side], size) for side in ("first", "second")))
    return _transforms(where, value, size)


def _transforms(where: str, value: Any, size: int) -> "list[Transform]":
    """Transforms from a list of names, or of names with arguments: ``[{ColorJitter: {hue: 0.5}}]``."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise UnweaveError(f"views.{where} must be a list of transforms, not {value!r}")
    return [_transform(where, item, size) for item in value]


def _transform(where: str, item: Any, size: int) -> "Transform":
    from unweave import augment as A

    name, arguments = next(iter(item.items())) if isinstance(item, Mapping) and len(item) == 1 else (item, {})
    kind = getattr(A, name, None) if isinstance(name, str) and name in A.__all__ else None
    known = [n for n in A.__all__ if inspect.isclass(t := getattr(A, n)) and issubclass(t, A.Transform)]
    usable = [n for n in known if n not in ("Transform", "AffineTransform", "Replay")]
    if name not in usable or kind is None:
        raise UnweaveError(f"views.{where}: {item!r} is not a transform; there are {', '.join(usable)}")
    accepted = inspect.signature(kind).parameters
    if not isinstance(arguments, Mapping) or set(arguments) - set(accepted):
        raise UnweaveError(f"views.{where}: {name} takes {', '.join(accepted)}, not {arguments!r}")
    if "size" in accepted and "size" not in arguments:
        arguments = {"size": size, **arguments}
    try:
        return kind(**{key: tuple(v) if isinstance(v, list) else v for key, v in arguments.items()})
    except UnweaveError as error:
        raise UnweaveError(f"views.{where}: {error}") from None
    except (TypeError, ValueError) as error:
        raise UnweaveError(f"views.{where}: {name}: {error}") from None
