"""Where images come from: sources, loading, batches, and data with known factors."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.data.batches import BatchSource, DataLoaderImages, DatasetImages, TensorImages, as_batch_source
    from unweave.data.config import DataConfig
    from unweave.data.latents import LatentModel, StackedLatents
    from unweave.data.loading import load_images
    from unweave.data.sources import open_source
    from unweave.data.sources.base import Source, Subset, unescape_name
    from unweave.data.sprites import Sprites, StoredSprites
    from unweave.data.tasks import TASKS, Task, TaskPart, open_labelled, open_tasks

__all__ = [
    "TASKS",
    "BatchSource",
    "DataConfig",
    "DataLoaderImages",
    "DatasetImages",
    "LatentModel",
    "Source",
    "Sprites",
    "StackedLatents",
    "StoredSprites",
    "Subset",
    "Task",
    "TaskPart",
    "TensorImages",
    "as_batch_source",
    "load_images",
    "open_labelled",
    "open_source",
    "open_tasks",
    "unescape_name",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "batches": ("BatchSource", "DataLoaderImages", "DatasetImages", "TensorImages", "as_batch_source"),
        "config": ("DataConfig",),
        "latents": ("LatentModel", "StackedLatents"),
        "loading": ("load_images",),
        "sources": ("open_source",),
        "sources.base": ("Source", "Subset", "unescape_name"),
        "sprites": ("Sprites", "StoredSprites"),
        "tasks": ("TASKS", "Task", "TaskPart", "open_labelled", "open_tasks"),
    },
)
