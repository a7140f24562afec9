"""Settings of ``unweave explore``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unweave.settings import require

PAGE = Path(__file__).parent / "page"
"""The files of the page."""
THIS_MACHINE = ("127.0.0.1", "localhost", "::1")
"""Addresses that only this machine can reach."""


@dataclass(frozen=True, kw_only=True)
class ExploreConfig:
    """Where the page is served, how maps are made, and what an upload may be.

    Examples:
        >>> ExploreConfig().is_local, ExploreConfig(host="0.0.0.0").is_local
        (True, False)
    """

    host: str = "127.0.0.1"
    """Address to listen on. Any other than this machine's own needs the token that is printed."""
    port: int = 8517
    """Port to listen on; 0 takes a free one."""
    map: Literal["auto", "pacmap", "pca"] = "auto"
    """How the maps are made; auto uses PaCMAP where it is installed and PCA otherwise."""
    map_rows: int = 200_000
    """Largest number of points of a map; of larger indexes a random sample is drawn."""
    max_upload_mb: float = 20
    """Largest size of an uploaded file in megabytes."""
    max_pixels: int = 50_000_000
    """Largest number of pixels of an uploaded image; larger ones are not decompressed."""

    def __post_init__(self) -> None:
        require(self, ">= 0", "port")
        require(self, ">= 1", "map_rows", "max_pixels")
        require(self, "> 0", "max_upload_mb")

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in THIS_MACHINE
