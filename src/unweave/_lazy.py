"""Names that are imported when they are first used (PEP 562): torch takes seconds to import, help should not."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def attach(package: str, homes: Mapping[str, tuple[str, ...]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for a package whose submodules (keys) hold its public names (values)."""
    where = {name: home for home, names in homes.items() for name in names}

    def __getattr__(name: str) -> Any:
        # A submodule that shares its name with what it holds yields to that: the import system finds the module itself.
        if name in where:
            return getattr(import_module(f"{package}.{where[name]}"), name)
        if name in homes:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*where, *homes})

    return __getattr__, __dir__
