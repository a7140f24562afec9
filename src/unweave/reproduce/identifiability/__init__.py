"""``unweave reproduce identifiability``: a test of the paper's theorem on data whose latent variables are known."""

from unweave.reproduce.identifiability.run import QUICK, IdentifiabilityConfig, run_identifiability

__all__ = ["QUICK", "IdentifiabilityConfig", "run_identifiability"]
