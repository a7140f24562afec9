"""Figures and pages: the report of a run, and parts that reports share."""

from typing import TYPE_CHECKING

from unweave._lazy import attach

if TYPE_CHECKING:
    from unweave.report.figures import as_png, as_svg, color_of, curves, heat_map, image_grid, save_svg
    from unweave.report.run_report import (
        ReportImages,
        RunReport,
        draw_scores,
        make_report,
        neighbour_images,
        view_pairs,
        write_report,
    )
    from unweave.report.templates import number, render

__all__ = [
    "ReportImages",
    "RunReport",
    "as_png",
    "as_svg",
    "color_of",
    "curves",
    "draw_scores",
    "heat_map",
    "image_grid",
    "make_report",
    "neighbour_images",
    "number",
    "render",
    "save_svg",
    "view_pairs",
    "write_report",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "figures": ("as_png", "as_svg", "color_of", "curves", "heat_map", "image_grid", "save_svg"),
        "run_report": (
            "ReportImages", "RunReport", "draw_scores", "make_report", "neighbour_images", "view_pairs", "write_report",
        ),
        "templates": ("number", "render"),
    },
)  # fmt: skip
