"""``unweave demo``: content, color and spatial spaces of coloured sprites, learned on two CPU cores."""

from unweave.reproduce.demo.run import run_demo

__all__ = ["run_demo"]
