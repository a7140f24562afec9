"""``unweave reproduce numerical``: content alone, at any size of the embedding (paper, section 5.1)."""

from unweave.reproduce.numerical.run import QUICK, NumericalConfig, run_numerical

__all__ = ["QUICK", "NumericalConfig", "run_numerical"]
