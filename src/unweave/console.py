"""Messages for people, on the standard error stream."""

from typing import Any


def message_console(*, quiet: bool = False) -> Any:
    """A console that prints text as it is: file names are not read as markup, and undecodable bytes are escaped."""
    from rich.console import Console

    return Console(stderr=True, quiet=quiet, soft_wrap=True, highlight=False, markup=False, emoji=False)
