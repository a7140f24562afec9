"""Settings as nested dataclasses: from YAML, keyword arguments and flags, and back to YAML.

A configuration is a frozen, keyword-only dataclass whose fields are settings or further configurations. Each setting
is declared once, with a docstring below it, next to the code that uses it. YAML files mirror the nesting. Keyword
arguments and flags are flat, so the name of a setting is unique within a configuration.
"""

import ast
import dataclasses
import difflib
import inspect
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from unweave.errors import UnweaveError

C = TypeVar("C")


def adjustable(default: Any) -> Any:
    """A field that may change when a run resumes, because it does not affect what is learned."""
    return field(default=default, metadata={"adjustable": True})


def yaml_only(default: Any) -> Any:
    """A field with a structure that a flag cannot express."""
    return field(default=default, metadata={"yaml_only": True})


@dataclass(frozen=True)
class Setting:
    """One setting of a configuration: where it is, its type and its documentation."""

    name: str
    path: tuple[str, ...]
    type: Any
    help: str
    yaml_only: bool = False

    @property
    def section(self) -> str:
        """The configuration it belongs to."""
        return ".".join(self.path[:-1])


@cache
def settings_of(config: type) -> dict[str, Setting]:
    """All settings of a configuration by name, nested ones included."""
    found: dict[str, Setting] = {}
    for setting in _walk(config, ()):
        if setting.name in found:
            raise TypeError(f"{config.__name__} has two settings named {setting.name}: a flag could mean either")
        found[setting.name] = setting
    return found


def _walk(config: type, path: tuple[str, ...]) -> Iterator[Setting]:
    hints, docs = get_type_hints(config), _field_docs(config)
    for item in fields(config):
        if is_dataclass(hints[item.name]):
            yield from _walk(hints[item.name], (*path, item.name))
        else:
            only = bool(item.metadata.get("yaml_only"))
            yield Setting(item.name, (*path, item.name), hints[item.name], docs.get(item.name, ""), only)


def _field_docs(config: type) -> dict[str, str]:
    """The string below each field in the class's source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(config))).body[0].body  # type: ignore[attr-defined]
    docs = {}
    for node, after in pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(after, ast.Expr):
            docs[node.target.id] = " ".join(inspect.cleandoc(ast.literal_eval(after.value)).split())
    return docs


def with_settings(config: C, values: Mapping[str, Any]) -> C:
    """A copy of ``config`` with these settings changed, by their flat names."""
    known = settings_of(type(config))  # type: ignore[arg-type]
    nested: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise UnweaveError(f"there is no setting `{name}`{_suggest(name, known)}")
        place = nested
        for part in known[name].path[:-1]:
            place = place.setdefault(part, {})
        place[name] = _coerce(value, known[name].type, f"`{name}`")
    return _changed(config, nested)


def from_nested(config: C, values: Mapping[str, Any], where: str) -> C:
    """A copy of ``config`` with what a YAML file holds; errors name ``where`` it comes from."""
    return _changed(config, _checked(type(config), values, where, ""))


def _checked(config: type, values: Mapping[str, Any], where: str, path: str) -> dict[str, Any]:
    hints = get_type_hints(config)
    checked: dict[str, Any] = {}
    for name, value in values.items():
        place = f"{path}.{name}".lstrip(".")
        if name not in hints:
            raise UnweaveError(f"{where}: there is no setting {place!r}{_suggest(str(name), settings_of(config))}")
        if not is_dataclass(hints[name]):
            checked[name] = _coerce(value, hints[name], f"{where}: {place}")
        elif isinstance(value, Mapping):
            checked[name] = _checked(hints[name], value, where, place)
        else:
            raise UnweaveError(f"{where}: {place} is a group of settings, not {value!r}")
    return checked


def _changed(config: C, nested: Mapping[str, Any]) -> C:
    changes = {
        name: _changed(part, value) if is_dataclass(part := getattr(config, name)) else value
        for name, value in nested.items()
    }
    return replace(config, **changes) if changes else config  # type: ignore[type-var]


def _suggest(name: str, known: Mapping[str, Setting]) -> str:
    if name in known:
        return f"; it belongs to {known[name].section}"
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {'.'.join(known[close[0]].path)}?" if close else ""


def to_nested(config: Any) -> dict[str, Any]:
    """Plain values by name, as they are written to YAML."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return list(value) if isinstance(value, tuple) else value

    return plain(dataclasses.asdict(config))


def identity(config: Any) -> dict[str, Any]:
    """``to_nested`` without the settings that may change when a run resumes."""
    kept: dict[str, Any] = {}
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value):
            kept[item.name] = identity(value)
        elif not item.metadata.get("adjustable"):
            kept[item.name] = list(value) if isinstance(value, tuple) else value
    return kept


def require(config: Any, accepted: str, *names: str) -> None:
    """Raises unless the named settings, where they are not None, satisfy a condition such as ``"> 0"``.

    Conditions: ``>= 1``, ``>= 0``, ``> 0``, ``in [0, 1]``. NaN and infinity satisfy none of them.
    """
    for name in names:
        require_number(name, getattr(config, name), accepted)


_CONDITIONS: dict[str, tuple[Callable[[float], bool], str]] = {
    ">= 1": (lambda v: v >= 1, "must be at least 1, not {}"),
    ">= 0": (lambda v: v >= 0, "must be 0 or more, not {}"),
    "> 0": (lambda v: v > 0, "must be positive, not {}"),
    "in [0, 1]": (lambda v: 0 <= v <= 1, "must be between 0 and 1, not {}"),
}


def require_number(name: str, value: float | None, accepted: str) -> None:
    """Raises unless the argument ``name`` is None or satisfies a condition of ``require``."""
    test, words = _CONDITIONS[accepted]
    if value is not None and not (math.isfinite(value) and test(value)):
        raise UnweaveError(f"`{name}` {words.format(value)}")


def require_choice(config: Any, *names: str) -> None:
    """Raises unless the named settings have one of the values that their type allows."""
    hints = get_type_hints(type(config))
    for name in names:
        _coerce(getattr(config, name), hints[name], f"`{name}`")


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds."""
    import yaml

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnweaveError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UnweaveError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UnweaveError(f"{path} must contain 'name: value' lines, not a {type(values).__name__}")
    return values


def to_yaml(values: Mapping[str, Any]) -> str:
    """The text of a YAML file, in the order of ``values``."""
    import yaml

    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)


_KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def _coerce(value: Any, hint: Any, where: str) -> Any:
    """The value as its field wants it: YAML reads 1e-3 as a text, and has lists in place of tuples."""
    if get_origin(hint) is UnionType:
        kinds = get_args(hint)
        if value is None and NoneType in kinds:
            return None
        hint = next(kind for kind in kinds if kind is not NoneType)
    if get_origin(hint) is Literal:
        if value in get_args(hint):
            return value
        raise UnweaveError(f"{where} must be one of {', '.join(get_args(hint))}, not {value!r}")
    if get_origin(hint) in (dict, list):
        if isinstance(value, get_origin(hint)):
            return value
        raise UnweaveError(f"{where} must be a {get_origin(hint).__name__}, not {value!r}")
    if get_origin(hint) is tuple and get_args(hint)[-1] is Ellipsis:
        values = [value] if isinstance(value, str) else value
        if isinstance(values, (list, tuple)):
            return tuple(_coerce(v, get_args(hint)[0], where) for v in values)
        raise UnweaveError(f"{where} must be a list, not {value!r}")
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        if isinstance(value, (list, tuple)) and len(value) == len(kinds):
            return tuple(_coerce(v, kind, where) for v, kind in zip(value, kinds, strict=True))
        raise UnweaveError(f"{where} must be {len(kinds)} numbers, not {value!r}")
    if hint is float and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except ValueError:
            pass
    elif isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    raise UnweaveError(f"{where} must be {_KINDS.get(hint, hint)}, not {value!r}")
