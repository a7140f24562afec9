"""Lazy imports (PEP 562): importing torch takes seconds, and ``unweave --help`` needs none of it."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def attach(package: str, homes: Mapping[str, tuple[str, ...]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for a package whose submodules (keys) define its public names (values).

    A public name cannot be the name of a submodule: once imported, the submodule would take its place.
    """
    where = {name: home for home, names in homes.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name in where:
            return getattr(import_module(f"{package}.{where[name]}"), name)
        if name in homes:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*where, *homes})

    return __getattr__, __dir__
