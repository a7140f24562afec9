"""Reports from templates: the prose is in Markdown and HTML files beside the code of each experiment."""

from pathlib import Path
from typing import Any


def render(template: Path, **values: Any) -> str:
    """A Jinja template with these values; a missing value is an error. HTML is escaped in ``.html`` templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=template.suffix == ".html",
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["number"] = number
    return environment.get_template(template.name).render(**values)


def number(value: float, digits: int = 2) -> str:
    """A rounded number without a minus before a zero.

    Examples:
        >>> number(-0.001), number(0.126)
        ('0.00', '0.13')
    """
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text
