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
    "RidgeProbe",
    "SpaceScores",
    "Targets",
    "accuracy",
    "as_targets",
    "compute_embeddings",
    "dci",
    "knn_accuracy",
    "mcc",
    "mean_average_precision",
    "mean_class_accuracy",
    "mean_r2",
    "probe",
    "r2",
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
        "sensitivity_matrix": ("sensitivity",),
        "targets": ("Targets", "as_targets"),
        "spaces": ("SpaceScores", "compute_embeddings", "score_spaces"),
    },
)
