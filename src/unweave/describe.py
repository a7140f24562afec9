"""Objects as plain data, so that a run can be compared with another and its model built again.

describe(object)      ─►  numbers, strings, lists and dictionaries, ready for JSON
rebuild(description)  ─►  the object, where its class is one of unweave's
"""

import dataclasses
import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from unweave.errors import UnweaveError

CLASS = "class"
"""The key under which a description names the object's class."""


class Described:
    """Base of classes that remember the arguments they were constructed with.

    Subclasses do nothing for it: every argument of their constructor is part of their description, so a new option
    cannot be forgotten in a run's fingerprint.
    """

    _arguments: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _remembering(cls.__init__)  # type: ignore[method-assign]


def _remembering(init: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(init)

    @functools.wraps(init)
    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        if "_arguments" not in vars(self):  # a subclass's constructor, which was the one called, came first
            try:
                bound = signature.bind(self, *args, **kwargs)
            except TypeError:
                pass  # the constructor itself raises the better error
            else:
                bound.apply_defaults()
                # Not by setattr: torch's modules have a __setattr__ of their own, which needs their constructor.
                vars(self)["_arguments"] = dict(list(bound.arguments.items())[1:])
        init(self, *args, **kwargs)

    return remember


def describe(value: Any) -> Any:
    """``value`` as JSON data.

    Examples:
        >>> import unweave.augment as A
        >>> describe(A.RandomHorizontalFlip(p=0.2))
        {'class': 'unweave.augment.RandomHorizontalFlip', 'p': 0.2}
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): describe(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(describe(item) for item in value)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [describe(item) for item in value]
    name = public_name(type(value))
    if isinstance(value, Described):
        return {CLASS: name, **{key: describe(item) for key, item in value._arguments.items()}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: describe(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {CLASS: name, **fields}
    if inspect.isroutine(value) or isinstance(value, type):
        return {"function": f"{value.__module__}.{value.__qualname__}"}
    return {CLASS: name, **_opaque(value)}


def _opaque(value: Any) -> dict[str, Any]:
    """What can be said of an object whose construction is not known."""
    if hasattr(value, "detach"):  # a tensor
        data = value.detach().cpu().contiguous()
        return {"shape": list(data.shape), "sha256": hashlib.sha256(data.numpy().tobytes()).hexdigest()}
    if " at 0x" not in (text := repr(value)):
        return {"repr": text}
    known = {name: item for name, item in vars(value).items() if isinstance(item, (bool, int, float, str, tuple))}
    return {name: describe(item) for name, item in sorted(known.items())}


def public_name(cls: type) -> str:
    """``unweave.augment.ColorJitter`` for a class of ours, wherever in its package it is defined."""
    package = cls.__module__.split(".")
    return ".".join([*(package[:2] if package[0] == "unweave" else package), cls.__qualname__])


def rebuild(description: Any) -> Any:
    """The object that ``describe`` was given. Only classes that unweave exports are constructed.

    Examples:
        >>> import unweave.augment as A
        >>> rebuild(describe(A.RandomRotation(30)))
        RandomRotation(p=1.0, interpolation=bilinear, degrees=(-30.0, 30.0))
    """
    if isinstance(description, list):
        return [rebuild(item) for item in description]
    if not isinstance(description, Mapping):
        return description
    arguments = {key: rebuild(item) for key, item in description.items() if key != CLASS}
    if CLASS not in description:
        return arguments
    package, _, name = str(description[CLASS]).rpartition(".")
    if package.split(".")[0] != "unweave" or package.count(".") > 1:
        raise UnweaveError(f"{description[CLASS]} is not a class of unweave: it cannot be built from its description")
    found = getattr(import_module(package), name, None)
    if not (isinstance(found, type) and (issubclass(found, Described) or dataclasses.is_dataclass(found))):
        raise UnweaveError(f"unweave has no class {description[CLASS]} that can be built from its description")
    return found(**arguments)


def differences(old: Any, new: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """The places, as ``a.b.c``, at which two descriptions differ, with both values.

    Examples:
        >>> differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}})
        [('a.c', 2, 3)]
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping) and old.get(CLASS) == new.get(CLASS):
        found = []
        for key in dict.fromkeys([*old, *new]):
            found += differences(old.get(key), new.get(key), f"{path}.{key}".lstrip("."))
        return found
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = zip(old, new, strict=True)
        return [change for i, (a, b) in enumerate(pairs) for change in differences(a, b, f"{path}[{i}]")]
    return [] if old == new else [(path, old, new)]
