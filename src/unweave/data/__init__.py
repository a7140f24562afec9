"""Where images come from."""

from unweave.data.sprites import Sprites

__all__ = ["Sprites"]
