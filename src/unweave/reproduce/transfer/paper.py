"""The paper's numbers: Eastwood et al., ``tab:imagenet-grouped`` and ``tab:imagenet-full`` (Further Results, ImageNet).

ImageNet-1k with blurred faces, ResNet-50, 224 pixels, 100 epochs; no intervals. Points: top-1 accuracy, r² for
the tasks of CUB boxes and key points, AP for VOC2007 (the paper writes AP50). Keys are (model, features).

Notes:
    "Other" of the grouped table is the mean of seven tasks, without VOC2007, although the paper's text lists VOC2007 in
    that group; "Average" includes it. ``OTHER_WITH_VOC`` is the mean of all eight, which is what our "Other" averages.
"""

from unweave.reproduce.transfer.names import group_averages

GROUPED: dict[tuple[str, str], dict[str, float]] = {
    name: dict(zip(("pretraining_top1", "spatial", "appearance", "other", "average"), numbers, strict=True))
    for name, numbers in {
        ("SimCLR", "z"): (56.5, 23.8, 67.8, 42.4, 47.9),
        ("SimCLR + Ours-FT", "z"): (57.8, 24.4, 68.3, 43.8, 48.8),
        ("SimCLR + Ours-Scratch", "z"): (49.0, 39.1, 62.8, 45.3, 50.6),
        ("VICReg", "z"): (55.7, 19.2, 64.8, 39.4, 45.0),
        ("VICReg + Ours-FT", "z"): (55.3, 22.0, 67.2, 42.0, 47.3),
        ("SimCLR", "h"): (68.1, 51.9, 83.7, 65.9, 68.9),
        ("SimCLR + Ours-FT", "h"): (67.9, 52.2, 84.0, 65.9, 69.0),
        ("SimCLR + Ours-Scratch", "h"): (61.7, 47.1, 77.6, 58.5, 62.6),
        ("VICReg", "h"): (67.2, 50.5, 83.9, 65.3, 68.4),
        ("VICReg + Ours-FT", "h"): (66.9, 51.3, 84.0, 65.1, 68.5),
    }.items()
}
"""``tab:imagenet-grouped``."""

COLUMNS = (
    "aircraft", "caltech101", "cars", "cifar10", "cifar100", "cub-box", "cub-class", "cub-keypoints", "dtd", "flowers",
    "pets", "sun397", "voc2007",
)  # fmt: skip
"""The tasks of ``FULL``, in the paper's order."""

FULL: dict[tuple[str, str], dict[str, float]] = {
    name: dict(zip(COLUMNS, numbers, strict=True))
    for name, numbers in {
        ("SimCLR", "z"): (14.6, 70.9, 13.0, 76.7, 50.5, 35.6, 22.5, 12.0, 66.4, 66.8, 70.3, 48.9, 74.6),
        ("SimCLR + Ours-FT", "z"): (15.9, 72.4, 14.6, 77.8, 53.6, 36.2, 22.5, 12.6, 67.0, 67.3, 70.6, 49.5, 74.9),
        ("SimCLR + Ours-Scratch", "z"): (25.9, 77.6, 14.4, 81.8, 56.2, 60.5, 15.1, 17.6, 64.4, 63.4, 60.7, 45.9, 73.6),
        ("VICReg", "z"): (10.6, 69.5, 9.5, 75.0, 48.3, 27.6, 17.1, 10.8, 64.6, 61.3, 68.4, 46.1, 75.6),
        ("VICReg + Ours-FT", "z"): (11.7, 72.6, 11.1, 78.5, 54.4, 32.5, 17.8, 11.4, 66.5, 66.8, 68.3, 48.0, 75.5),
        ("SimCLR", "h"): (50.9, 88.2, 50.7, 89.3, 73.0, 71.3, 48.6, 32.5, 75.2, 93.5, 82.4, 60.3, 79.7),
        ("SimCLR + Ours-FT", "h"): (51.0, 88.1, 51.0, 89.4, 72.9, 71.4, 48.5, 32.9, 75.9, 93.5, 82.6, 60.2, 79.7),
        ("SimCLR + Ours-Scratch", "h"): (46.2, 86.5, 37.5, 87.2, 67.4, 70.6, 29.6, 23.6, 72.6, 86.8, 73.3, 55.1, 77.2),
        ("VICReg", "h"): (51.1, 87.6, 52.6, 88.3, 70.1, 69.1, 47.4, 31.9, 75.3, 93.4, 83.1, 59.7, 79.6),
        ("VICReg + Ours-FT", "h"): (50.1, 87.5, 52.4, 88.4, 70.3, 69.8, 47.2, 32.8, 75.7, 93.6, 82.7, 59.8, 79.6),
    }.items()
}
"""``tab:imagenet-full`` without the columns that ``GROUPED`` has."""

OTHER_WITH_VOC: dict[tuple[str, str], float] = {name: group_averages(tasks)["other"] for name, tasks in FULL.items()}
"""The mean of all eight tasks of the group "Other", computed from ``FULL``."""
BASE = {"SimCLR + Ours-FT": "SimCLR", "SimCLR + Ours-Scratch": "SimCLR", "VICReg + Ours-FT": "VICReg"}
"""The model that the paper compares a model with; it has no "SimCLR continued"."""
