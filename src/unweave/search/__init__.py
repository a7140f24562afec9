"""Search by content and by style: an index of the images of a run, queries, near-duplicates and outliers."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.search.config import IndexConfig
    from unweave.search.index import Hit, Index
    from unweave.search.sheet import write_sheet

__all__ = ["Hit", "Index", "IndexConfig", "write_sheet"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "config": ("IndexConfig",),
        "index": ("Hit", "Index"),
        "sheet": ("write_sheet",),
    },
)
