"""Other methods that keep style, on the same views, backbones and training loop: LooC, LooC++ and AugSelf."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.baselines.augself import AugSelf, parameter_differences
    from unweave.baselines.config import BaselineConfig
    from unweave.baselines.looc import LooC, leave_one_out_loss

__all__ = ["AugSelf", "BaselineConfig", "LooC", "leave_one_out_loss", "parameter_differences"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "augself": ("AugSelf", "parameter_differences"),
        "config": ("BaselineConfig",),
        "looc": ("LooC", "leave_one_out_loss"),
    },
)
