"""Probes and scores for embeddings."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.evaluation.disentanglement import DCI, dci, mcc
    from unweave.evaluation.kernel_ridge import KernelRidge
    from unweave.evaluation.knn import knn_accuracy
    from unweave.evaluation.linear_models import LogisticRegression, RidgeRegression
    from unweave.evaluation.online import OnlineProbe
    from unweave.evaluation.probes import ClassProbe, RidgeProbe, r2
    from unweave.evaluation.sensitivity_matrix import sensitivity
    from unweave.evaluation.spaces import SpaceScores, compute_embeddings, score_spaces

__all__ = [
    "DCI",
    "ClassProbe",
    "KernelRidge",
    "LogisticRegression",
    "OnlineProbe",
    "RidgeProbe",
    "RidgeRegression",
    "SpaceScores",
    "compute_embeddings",
    "dci",
    "knn_accuracy",
    "mcc",
    "r2",
    "score_spaces",
    "sensitivity",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "disentanglement": ("DCI", "dci", "mcc"),
        "kernel_ridge": ("KernelRidge",),
        "knn": ("knn_accuracy",),
        "linear_models": ("LogisticRegression", "RidgeRegression"),
        "online": ("OnlineProbe",),
        "probes": ("ClassProbe", "RidgeProbe", "r2"),
        "sensitivity_matrix": ("sensitivity",),
        "spaces": ("SpaceScores", "compute_embeddings", "score_spaces"),
    },
)
