"""Flags from settings, and argument names in error messages as flags."""

import re
from collections.abc import Collection
from dataclasses import make_dataclass
from typing import Annotated, Any, TypedDict

import tyro

from unweave.settings import Setting, settings_of


def flags_of(config: type, default: Any, only: Collection[str] | None = None) -> type:
    """A dataclass for tyro with a dictionary of flags for each part of a configuration.

    A flag that is not given is absent from its dictionary, so that only given flags change a preset. The help shows the
    values of ``default``. ``only`` names the settings that get a flag, by default all.
    """
    parts: dict[str, dict[str, Any]] = {}
    for setting in settings_of(config).values():
        if setting.yaml_only or (only is not None and setting.name not in only):
            continue
        about = tyro.conf.arg(help=setting.help, help_behavior_hint=_default(setting, default))
        parts.setdefault(setting.path[-2], {})[setting.name] = Annotated[setting.type, about]
    flags = [(name, TypedDict(name, part, total=False)) for name, part in parts.items()]  # type: ignore[operator]
    return make_dataclass("Flags", flags)


def _default(setting: Setting, default: Any) -> str:
    value = default
    for part in setting.path:
        value = getattr(value, part)
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else "none" if value is None else value
    return f"(default: {shown})"


def with_flags(message: str, config: type, *others: str) -> str:
    """A library's message with the names of arguments that are flags written as flags.

    Examples:
        >>> from unweave.training.config import TrainConfig
        >>> with_flags("`batch_size` must be at least 1, not 0", TrainConfig)
        '--batch-size must be at least 1, not 0'
    """
    names = {*settings_of(config), *others}
    names |= {".".join(setting.path) for setting in settings_of(config).values()}

    def flag(match: re.Match[str]) -> str:
        name = match[1]
        return "--" + name.split(".")[-1].replace("_", "-") if name in names else name

    return re.sub(r"`([\w.\[\]]+)`", flag, message)
