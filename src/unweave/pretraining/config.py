"""All settings of ``unweave train`` as one nested configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from unweave.augment.config import ViewsConfig
from unweave.baselines.config import BASELINES, BaselineConfig
from unweave.data.config import DataConfig
from unweave.errors import UnweaveError
from unweave.models.config import EncoderConfig
from unweave.objectives.config import ObjectiveConfig
from unweave.settings import adjustable, from_nested, require, require_choice
from unweave.training.config import TrainConfig

if TYPE_CHECKING:
    from unweave.models import Encoder
    from unweave.objectives import Objective


@dataclass(frozen=True, kw_only=True)
class InitConfig:
    """A trained base to start from."""

    init: str | None = adjustable(None)
    """Weights to start from: a run's folder, a checkpoint file of torchvision or timm (.safetensors, or .pth without
    pickled code), or 'pretrained' for the weights they publish."""
    projector_epochs: int = 0
    """Epochs that train the projectors alone, before the epochs of all parameters (the paper's Ours-FT)."""

    def __post_init__(self) -> None:
        require(self, ">= 0", "projector_epochs")
        if self.projector_epochs and self.init is None:
            raise UnweaveError("`projector_epochs` needs a trained base: set `init`")


@dataclass(frozen=True, kw_only=True)
class ProbeConfig:
    """Evaluation on labelled images during training."""

    probe: Literal["knn", "linear", "none"] = adjustable("knn")
    """How labels are predicted from each space, where there are labels."""
    probe_every: int = adjustable(10)
    """Epochs between two evaluations."""
    probe_data: str | None = adjustable(None)
    """Labelled images to evaluate on; by default a part of DATA."""

    def __post_init__(self) -> None:
        require_choice(self, "probe")
        require(self, ">= 1", "probe_every")


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """The report at the end of a run."""

    report: bool = adjustable(True)
    """Write report.html and report.json when training ends: what each space contains."""
    held_out: float = 0.05
    """Fraction of the images, at most 500 of them, that are kept out of training for the report; none where they
    would be fewer than 32."""

    def __post_init__(self) -> None:
        require(self, "in [0, 1]", "held_out")


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """A run on photographs.

    A preset is one of these. Its settings have unique names, so that flags and keyword arguments are flat.

    Examples:
        >>> import unweave as uw
        >>> uw.PretrainConfig(views=uw.augment.ViewsConfig(size=32)).decode_size
        36
    """

    data: DataConfig = field(default_factory=DataConfig)
    views: ViewsConfig = field(default_factory=ViewsConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    baseline: BaselineConfig = field(default_factory=BaselineConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    start: InitConfig = field(default_factory=InitConfig)
    evaluation: ProbeConfig = field(default_factory=ProbeConfig)
    report: ReportConfig = field(default_factory=ReportConfig)

    def __post_init__(self) -> None:
        if not self.training.epochs and self.training.steps is None and not self.start.projector_epochs:
            raise UnweaveError("`epochs` is 0: there is nothing to train without `init` and `projector_epochs`")

    @property
    def decode_size(self) -> int:
        """The side in pixels of decoded images."""
        return self.data.decode_size or self.views.size * 8 // 7

    def build_objective(self, steps: int) -> "Objective":
        """The objective, or a baseline in its place, for a run of this many steps."""
        method, spaces = self.objective.method, self.views.spaces
        if method in BASELINES:
            return self.baseline.build(method, spaces, temperature=self.objective.temperature)
        return self.objective.build(spaces, steps, self.views.geometric)

    def build_encoder(self, spaces: Sequence[str]) -> "Encoder":
        """The network for an objective with these spaces; its weights are drawn from torch's global generator."""
        return self.encoder.build(
            spaces,
            channels=self.data.channels,
            image_size=self.views.size,
            pretrained=self.start.init == "pretrained",
            branches=self.objective.method == "looc++",
        )


HEADER = ("unweave", "source")
"""Entries of a run's config.yaml that are not settings: the version and DATA."""


def from_yaml(values: Mapping[str, Any], base: PretrainConfig, where: str) -> PretrainConfig:
    """``base`` changed by the settings of a YAML file, such as a run's config.yaml; errors name ``where`` it is."""
    return from_nested(base, {name: value for name, value in values.items() if name not in HEADER}, where)
