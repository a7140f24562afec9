"""The models of the transfer experiment and their bases; its tasks and their groups."""

from collections.abc import Mapping

MEANING: dict[str, str] = {
    "SimCLR": "one space, one projector",
    "SimCLR wide": "SimCLR with a z as wide as all spaces of ours together",
    "SimCLR continued": "SimCLR trained for as many further epochs as Ours-FT",
    "SimCLR + Ours-FT": "SimCLR, fine-tuned with a content space and two style spaces",
    "SimCLR + Ours-Scratch": "content and two style spaces from random weights",
    "SimCLR + per-space entropy": "Ours-Scratch with one entropy for each space in place of the joint entropy",
    "SimCLR + narrow styles": "Ours-Scratch with style spaces of 16 dimensions in place of 512",
    "SimCLR + Ours-Scratch on h": "Ours-Scratch whose style projectors read h, as content's does",
    "SimCLR three heads": "a control: projectors and layers of Ours-Scratch, one entropy each; no pair shares a style",
    "SimCLR + paper's objective": "the paper's objective with fixed λ = 1 and none of our additions",
    "VICReg": "one space, one projector",
    "VICReg + Ours-FT": "VICReg, fine-tuned with a content space and two style spaces",
    "VICReg + Ours-Scratch": "content and two style spaces from random weights",
    "Barlow Twins": "one space, one projector",
    "Barlow Twins + Ours-Scratch": "content and two style spaces from random weights",
    "LooC++": "Xiao et al. 2021: a teacher, and a queue and a branch for each space; h concatenates the branches",
    "AugSelf": "Lee et al. 2021: SimCLR that also predicts differences of augmentation parameters",
    "supervised": "trained with the labels of the pre-training data",
    "random weights": "not trained",
    "SimCLR, 200 epochs": "SimCLR, trained longer",
    "SimCLR + Ours-Scratch, 200 epochs": "Ours-Scratch, trained longer",
}
"""What each model is, in the order of the tables."""
ORDER: tuple[str, ...] = tuple(MEANING)
"""The models in the order of the tables."""
BASE: dict[str, str] = {
    "SimCLR wide": "SimCLR",
    "SimCLR continued": "SimCLR",
    "SimCLR + Ours-FT": "SimCLR continued",
    "SimCLR + Ours-Scratch": "SimCLR",
    "SimCLR + per-space entropy": "SimCLR",
    "SimCLR + narrow styles": "SimCLR",
    "SimCLR + Ours-Scratch on h": "SimCLR",
    "SimCLR three heads": "SimCLR",
    "SimCLR + paper's objective": "SimCLR",
    "VICReg + Ours-FT": "VICReg",
    "VICReg + Ours-Scratch": "VICReg",
    "Barlow Twins + Ours-Scratch": "Barlow Twins",
    "LooC++": "SimCLR",
    "AugSelf": "SimCLR",
    "SimCLR + Ours-Scratch, 200 epochs": "SimCLR, 200 epochs",
}
"""The model that the paired difference of a model refers to."""
OTHER_BASES: dict[str, tuple[str, ...]] = {"SimCLR + Ours-Scratch": ("SimCLR wide", "SimCLR three heads")}
"""Further models that a model is compared with."""
REFERENCES = ("supervised", "random weights", "SimCLR, 200 epochs", "SimCLR + Ours-Scratch, 200 epochs")
"""Models that do not compete for the best score of a column: they use labels, or another number of epochs."""

TASKS: dict[str, str] = {
    "aircraft": "Aircraft",
    "caltech101": "Caltech-101",
    "cars": "Cars",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cub-box": "CUB box",
    "cub-class": "CUB class",
    "cub-keypoints": "CUB key points",
    "dtd": "DTD",
    "dtd-10": "DTD-10",
    "flowers": "Flowers",
    "pets": "Pets",
    "sun397": "SUN397",
    "voc2007": "VOC2007",
}
"""The tasks in the order of the paper's table, with their titles."""
PAPER_SCALE_ONLY = frozenset({"aircraft", "dtd", "sun397"})
"""Tasks that the miniature does not have; its DTD-10 is ten of DTD's 47 classes."""
SPATIAL = frozenset({"cub-box", "cub-keypoints"})
APPEARANCE = frozenset({"dtd", "dtd-10", "flowers", "pets"})
GROUPS: dict[str, str] = {
    "spatial": "Spatial", "appearance": "Appearance", "other": "Other", "average": "Average",
}  # fmt: skip
"""The groups of tasks, and the average over tasks, with their titles."""


def group_of(task: str) -> str:
    """The group that a task belongs to.

    Examples:
        >>> group_of("cub-box"), group_of("dtd-10"), group_of("voc2007")
        ('spatial', 'appearance', 'other')
    """
    return "spatial" if task in SPATIAL else "appearance" if task in APPEARANCE else "other"


def group_averages(tasks: Mapping[str, float]) -> dict[str, float]:
    """The mean score of each group, and the average over tasks (not over groups); only groups that have a task.

    Examples:
        >>> group_averages({"cub-box": 20, "cub-keypoints": 40, "pets": 90})
        {'spatial': 30.0, 'appearance': 90.0, 'average': 50.0}
    """
    members: dict[str, list[float]] = {group: [] for group in GROUPS}
    for task, score in tasks.items():
        members[group_of(task)].append(score)
        members["average"].append(score)
    return {group: sum(scores) / len(scores) for group, scores in members.items() if scores}
