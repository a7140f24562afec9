"""Probes and scores."""

from unweave.evaluation.probes import ClassProbe, RidgeProbe, r2
from unweave.evaluation.spaces import SpaceScores, embed, score_spaces

__all__ = ["ClassProbe", "RidgeProbe", "SpaceScores", "embed", "r2", "score_spaces"]
