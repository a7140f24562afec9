"""Settings of the views for photographs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unweave.settings import require

if TYPE_CHECKING:
    from unweave.augment import Views
    from unweave.augment.views import Group

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's statistics, which nearly every published checkpoint expects."""


@dataclass(frozen=True, kw_only=True)
class ViewsConfig:
    """Views of photographs with two groups: spatial (crop, flip) and appearance (colour, blur, solarization).

    Examples:
        >>> ViewsConfig(size=32).build().spaces
        ('content', 'spatial', 'appearance')
    """

    styles: bool = True
    """Learn a spatial and an appearance space beside content; without styles, train the base method alone."""
    size: int = 64
    """Side of the network's input in pixels."""
    crop_scale: float = 0.08
    """Smallest area of a crop, as a fraction of the image."""
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.2, 0.1)
    """Strength of brightness, contrast, saturation and hue jitter."""
    blur: tuple[float, float] = (0.5, 0.5)
    """Probability of blurring the first and the second view."""
    solarize: tuple[float, float] = (0.0, 0.2)
    """Probability of solarizing the first and the second view."""

    def __post_init__(self) -> None:
        require(self, ">= 1", "size")
        require(self, "in [0, 1]", "crop_scale")

    def build(self) -> "Views":
        """The views (paper, appendix B.3); without styles, the same transforms in no group."""
        from unweave import augment as A

        spatial: list[A.Transform] = [
            A.RandomResizedCrop(self.size, (self.crop_scale, 1.0), interpolation="bicubic"),
            A.RandomHorizontalFlip(),
        ]
        kernel = 2 * (self.size // 20) + 1  # VICReg's 23 pixels at 224

        def appearance(view: int) -> list[A.Transform]:
            return [
                A.ColorJitter(*self.jitter, p=0.8),
                A.RandomGrayscale(p=0.2),
                A.GaussianBlur(kernel, (0.1, 2.0), p=self.blur[view]),
                A.RandomSolarize(0.5, p=self.solarize[view]),
            ]

        normalize = A.Normalize(MEAN, STD)
        if self.styles:
            groups: dict[str, Group] = {"spatial": spatial, "appearance": A.Asymmetric(appearance(0), appearance(1))}
            return A.Views(groups, ungrouped=[normalize])
        first, second = ([*spatial, *appearance(view), normalize] for view in (0, 1))
        return A.Views({}, ungrouped=A.Asymmetric(first, second))

    @property
    def spaces(self) -> tuple[str, ...]:
        """The spaces of these views."""
        return ("content", "spatial", "appearance") if self.styles else ("content",)
