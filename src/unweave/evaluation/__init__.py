"""Probes and scores for embeddings."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.evaluation.disentanglement import DCI, dci, mcc
    from unweave.evaluation.kernel_ridge import KernelRidge
    from unweave.evaluation.knn import KNNProbe, knn_accuracy
    from unweave.evaluation.linear_probe import PENALTIES, LinearProbe
    from unweave.evaluation.metrics import accuracy, mean_average_precision, mean_class_accuracy, mean_r2, r2
    from unweave.evaluation.online import OnlineProbe
    from unweave.evaluation.probes import ClassProbe, RidgeProbe
    from unweave.evaluation.probing import ProbeScores, probe
    from unweave.evaluation.retrieval import (
        RetrievalScores,
        average_precision,
        cosine_scores,
        expected_average_precision,
        precision_at,
        same_label,
        score_retrieval,
    )
    from unweave.evaluation.sensitivity_matrix import sensitivity
    from unweave.evaluation.spaces import SpaceScores, compute_embeddings, score_spaces
    from unweave.evaluation.targets import Targets, as_targets

__all__ = [
    "DCI",
    "PENALTIES",
    "ClassProbe",
    "KNNProbe",
    "KernelRidge",
    "LinearProbe",
    "OnlineProbe",
    "ProbeScores",
    "RetrievalScores",
    "RidgeProbe",
    "SpaceScores",
    "Targets",
    "accuracy",
    "as_targets",
    "average_precision",
    "compute_embeddings",
    "cosine_scores",
    "dci",
    "expected_average_precision",
    "knn_accuracy",
    "mcc",
    "mean_average_precision",
    "mean_class_accuracy",
    "mean_r2",
    "precision_at",
    "probe",
    "r2",
    "same_label",
    "score_retrieval",
    "score_spaces",
    "sensitivity",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "disentanglement": ("DCI", "dci", "mcc"),
        "kernel_ridge": ("KernelRidge",),
        "knn": ("KNNProbe", "knn_accuracy"),
        "online": ("OnlineProbe",),
        "linear_probe": ("PENALTIES", "LinearProbe"),
        "metrics": ("accuracy", "mean_average_precision", "mean_class_accuracy", "mean_r2", "r2"),
        "probes": ("ClassProbe", "RidgeProbe"),
        "probing": ("ProbeScores", "probe"),
        "retrieval": (
            "RetrievalScores",
            "average_precision",
            "cosine_scores",
            "expected_average_precision",
            "precision_at",
            "same_label",
            "score_retrieval",
        ),
        "sensitivity_matrix": ("sensitivity",),
        "targets": ("Targets", "as_targets"),
        "spaces": ("SpaceScores", "compute_embeddings", "score_spaces"),
    },
)
