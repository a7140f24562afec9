"""Settings of the baselines."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unweave.errors import UnweaveError
from unweave.settings import require

if TYPE_CHECKING:
    from unweave.objectives import Objective

BASELINES = ("looc", "looc++", "augself")
"""The values of `method` that are baselines."""


@dataclass(frozen=True, kw_only=True)
class BaselineConfig:
    """LooC and AugSelf, where ``method`` is one of them.

    Examples:
        >>> BaselineConfig(queue_size=4096).build("looc", ("content", "color"), temperature=0.2).queue_size
        4096
    """

    queue_size: int = 16_384
    """Keys in each of LooC's queues."""
    teacher_momentum: float = 0.999
    """Momentum of LooC's teacher: the weight of its own parameters in each update."""
    predict_crop: float = 0.5
    """Weight of AugSelf's prediction of the difference in place and size of the crops."""
    predict_color: float = 0.5
    """Weight of AugSelf's prediction of the difference in brightness, contrast, saturation and hue."""
    predict_flip: float = 0.0
    """Weight of AugSelf's prediction whether one view is mirrored and the other is not."""
    predict_blur: float = 0.0
    """Weight of AugSelf's prediction of the difference in blur."""

    def __post_init__(self) -> None:
        require(self, ">= 1", "queue_size")
        require(self, "in [0, 1]", "teacher_momentum")
        require(self, ">= 0", "predict_crop", "predict_color", "predict_flip", "predict_blur")

    def build(self, method: str, spaces: Sequence[str], *, temperature: float) -> "Objective":
        """The objective of a baseline by name."""
        from unweave.baselines import AugSelf, LooC
        from unweave.objectives import SimCLR

        if method in ("looc", "looc++"):
            return LooC(spaces, temperature=temperature, queue_size=self.queue_size, momentum=self.teacher_momentum)
        if method == "augself":
            weights = {name: getattr(self, f"predict_{name}") for name in ("crop", "color", "flip", "blur")}
            return AugSelf(SimCLR(temperature), weights={name: w for name, w in weights.items() if w})
        raise UnweaveError(f"`method` {method!r} is not a baseline; there are {', '.join(BASELINES)}")
