"""``unweave explore``: a page that shows the spaces of an index side by side, and the server behind it."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.explore.config import ExploreConfig
    from unweave.explore.maps import Maps, make_maps
    from unweave.explore.server import make_app, serve
    from unweave.explore.static_page import write_static_page

__all__ = ["ExploreConfig", "Maps", "make_app", "make_maps", "serve", "write_static_page"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "config": ("ExploreConfig",),
        "maps": ("Maps", "make_maps"),
        "server": ("make_app", "serve"),
        "static_page": ("write_static_page",),
    },
)
