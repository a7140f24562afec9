"""Labelled data for evaluation: the paper's 13 tasks with their official splits and metrics, and any other."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.data.tasks.base import ListedImages, Task, TaskPart
    from unweave.data.tasks.geometry import crop_boxes, crop_points
    from unweave.data.tasks.registry import FAMILIES, TASKS, open_labelled, open_tasks

__all__ = [
    "FAMILIES",
    "TASKS",
    "ListedImages",
    "Task",
    "TaskPart",
    "crop_boxes",
    "crop_points",
    "open_labelled",
    "open_tasks",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "base": ("ListedImages", "Task", "TaskPart"),
        "geometry": ("crop_boxes", "crop_points"),
        "registry": ("FAMILIES", "TASKS", "open_labelled", "open_tasks"),
    },
)
