"""The public API and the structure of the package."""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import unweave

SOURCE = Path(unweave.__file__).parent
PACKAGES = (
    "augment", "baselines", "data", "evaluation", "explore", "inference", "models", "objectives", "pretraining",
    "search", "training",
)  # fmt: skip
PUBLIC = [
    (package, name)
    for package in ("unweave", *(f"unweave.{name}" for name in PACKAGES))
    for name in import_module(package).__all__
    if not name.startswith("__")
]


@pytest.mark.parametrize(("package", "name"), PUBLIC, ids=lambda part: part.removeprefix("unweave."))
def test_every_public_name_has_a_docstring_with_an_example(package, name):
    thing = getattr(import_module(package), name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        assert ">>>" in (inspect.getdoc(thing) or ""), f"{package}.{name}"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_name_is_the_name_of_a_submodule(package):
    """Once imported, the submodule would take its place."""
    modules = {path.stem for path in (SOURCE / package).glob("*.py")} | {
        path.name for path in (SOURCE / package).iterdir()
    }
    assert not set(import_module(f"unweave.{package}").__all__) & modules


def imports(path):
    """(module, name) of everything that a file imports from unweave; name is None for ``import module``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "unweave":
            for alias in node.names:
                yield node.module, alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "unweave":
                    yield alias.name, None


INDEPENDENT = ("augment", "objectives", "models", "data")
SHARED = {
    "console",
    "describe",
    "device_cache",
    "distributed",
    "errors",
    "files",
    "gpu",
    "settings",
    "tensor_files",
} | {
    "_lazy",
    "_version",
}


@pytest.mark.parametrize("package", INDEPENDENT)
def test_the_parts_of_a_step_do_not_import_each_other(package):
    for path in (SOURCE / package).rglob("*.py"):
        for module, name in imports(path):
            part = module.split(".")[1] if "." in module else name
            assert part in SHARED | {package}, f"{path.name} imports {module}"


UTILITIES = {"unweave.console", "unweave.describe", "unweave.files", "unweave.provenance", "unweave.settings"}


def test_experiments_use_the_public_api_alone():
    for path in (SOURCE / "reproduce").rglob("*.py"):
        for module, name in imports(path):
            if module.startswith("unweave.reproduce") or module in UTILITIES:
                continue
            public = {*import_module(module).__all__, *(PACKAGES if module == "unweave" else ())}
            assert name in public, f"{path.relative_to(SOURCE)} imports {name} from {module}"


def test_errors_of_the_library_name_arguments_and_not_flags():
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise):
                text = "".join(
                    n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
                )
                assert not re.search(r"(^|\s)--(?!ntasks-per-node)\w", text), (path.name, text)
