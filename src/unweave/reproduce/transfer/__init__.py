"""The transfer study: models pre-trained on photographs, scored on other tasks (paper, section 5.3)."""

from unweave.reproduce.transfer.run import run_transfer
from unweave.reproduce.transfer.tuning import run_tuning

__all__ = ["run_transfer", "run_tuning"]
