"""Figures and pages: parts that reports share."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.report.figures import as_png, as_svg, color_of, curves, heat_map, image_grid, save_svg
    from unweave.report.templates import number, render

__all__ = ["as_png", "as_svg", "color_of", "curves", "heat_map", "image_grid", "number", "render", "save_svg"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "figures": ("as_png", "as_svg", "color_of", "curves", "heat_map", "image_grid", "save_svg"),
        "templates": ("number", "render"),
    },
)
