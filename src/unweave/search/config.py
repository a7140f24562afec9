"""Settings of an index."""

from dataclasses import dataclass, field
from typing import Literal

from unweave.inference.config import EmbedConfig
from unweave.settings import require_choice

StoreName = Literal["exact", "lance", "qdrant"]


@dataclass(frozen=True, kw_only=True)
class IndexConfig:
    """What an index holds and what answers its queries; fixed when it is built.

    Examples:
        >>> IndexConfig(spaces=("content",)).store
        'exact'
    """

    store: StoreName = "exact"
    """What finds the nearest vectors: exact (in process, no further package), lance (on disk) or qdrant (a server)."""
    store_url: str | None = None
    """Address of a Qdrant server; without one, Qdrant keeps its files in the index."""
    spaces: tuple[str, ...] | None = None
    """Spaces to keep, h included; by default all but h."""
    whiten: bool = True
    """Compare images by whitened embeddings: around their mean, and with the largest variances reduced, so that a few
    directions of a space do not decide what is alike. Not done for fewer than two images per dimension."""

    def __post_init__(self) -> None:
        require_choice(self, "store")


@dataclass(frozen=True, kw_only=True)
class BuildConfig:
    """All settings of ``unweave index``: what the index holds, and how images are embedded."""

    index: IndexConfig = field(default_factory=IndexConfig)
    embedding: EmbedConfig = field(default_factory=EmbedConfig)
