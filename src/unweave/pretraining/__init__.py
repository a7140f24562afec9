"""What ``unweave train`` does: settings, presets and the run."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.pretraining.config import PretrainConfig
    from unweave.pretraining.presets import PRESETS, Preset, preset
    from unweave.pretraining.report import write_run_report
    from unweave.pretraining.run import pretrain

__all__ = ["PRESETS", "Preset", "PretrainConfig", "preset", "pretrain", "write_run_report"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "config": ("PretrainConfig",),
        "presets": ("PRESETS", "Preset", "preset"),
        "report": ("write_run_report",),
        "run": ("pretrain",),
    },
)
