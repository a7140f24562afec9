"""The ``unweave`` command: a table from verbs to functions, and how errors are shown."""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tyro

from unweave._version import __version__
from unweave.cli.doctor import doctor
from unweave.cli.embed import embed, export
from unweave.cli.explore import explore
from unweave.cli.flags import with_flags
from unweave.cli.probe import probe
from unweave.cli.report import report
from unweave.cli.reproduce import demo, identifiability, numerical, sprite_spaces, sprites, transfer
from unweave.cli.search import duplicates, index, search
from unweave.cli.styles import styles
from unweave.cli.train import presets, train, train_basic
from unweave.errors import UnweaveError, UnweaveWarning, printable
from unweave.pretraining.config import PretrainConfig


def reproduce() -> None:
    """Run an experiment: unweave reproduce numerical | identifiability | sprites | sprite-spaces |
    transfer."""


VERBS: dict[str, Callable[..., Any]] = {
    "demo": demo,
    "train": train,
    "probe": probe,
    "embed": embed,
    "export": export,
    "index": index,
    "search": search,
    "duplicates": duplicates,
    "explore": explore,
    "report": report,
    "doctor": doctor,
    "presets": presets,
    "styles": styles,
    "reproduce": reproduce,
}
EXPERIMENTS: dict[str, Callable[..., Any]] = {
    "identifiability": identifiability,
    "numerical": numerical,
    "sprite-spaces": sprite_spaces,
    "sprites": sprites,
    "transfer": transfer,
}
PROBE_FLAGS = ("embeddings", "factors", "kind", "metric", "folds", "test_fraction")
SEARCH_FLAGS = (
    "add", "prune", "removed", "run", "store", "store_url", "spaces", "space", "like", "unlike", "weights", "min",
    "where", "k", "threshold", "outliers", "html",
)  # fmt: skip
EXPLORE_FLAGS = ("static", "host", "port", "map", "map_rows", "max_upload_mb", "max_pixels")
OTHER_FLAGS = (
    "out",
    "preset",
    "config",
    "device",
    "onnx",
    "mode",
    "only",
    "data",
    "scale",
    "pretraining",
    "dtype",
    "overwrite",
    *PROBE_FLAGS,
    *SEARCH_FLAGS,
    *EXPLORE_FLAGS,
)
"""Flags that are not settings of a configuration."""
DESCRIPTION = """Learn one embedding space for content and one for each style you can augment.

`unweave VERB --help` lists the flags of a verb, `unweave --version` prints the version, and
`unweave --tyro-print-completion bash` (or zsh, tcsh) prints a script that completes verbs and flags.
"""


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(__version__)
        return 0
    try:
        with warnings.catch_warnings(), _terminable():
            warnings.simplefilter("always", UnweaveWarning)
            warnings.showwarning = _show_warning(warnings.showwarning)
            return int(_run(arguments) or 0)
    except UnweaveError as error:
        return _fail(_with_flags(str(error)))
    except BrokenPipeError:  # the reader of our output, such as `head`, has ended
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 141
    except OSError as error:
        if error.errno is None:
            raise
        return _fail(f"{error.strerror}: {printable(str(error.filename or 'a file of the run'))}")
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        return _fail("the main memory is full: use a smaller --batch-size, --micro-batch or --cache none")
    except Terminated:
        return _fail("stopped by SIGTERM", status=143)
    except KeyboardInterrupt:
        return _fail("stopped; the same command resumes from the last checkpoint", status=130)


def _run(arguments: list[str]) -> Any:
    verbs, prog = VERBS, "unweave"
    if arguments[:1] == ["reproduce"]:
        arguments, verbs, prog = arguments[1:], EXPERIMENTS, "unweave reproduce"
    if {"-h", "--help"} & set(arguments):
        verbs = {**verbs, "train": train_basic} if "train" in verbs else verbs
    arguments = ["--help" if word == "--help-all" else word for word in arguments]
    return tyro.extras.subcommand_cli_from_dict(verbs, prog=prog, description=DESCRIPTION, args=arguments)


def _fail(message: str, status: int = 2) -> int:
    print(f"unweave: {message}", file=sys.stderr)
    return status


def _with_flags(message: str) -> str:
    return with_flags(message, PretrainConfig, *OTHER_FLAGS)


def _show_warning(others: Callable[..., None]) -> Callable[..., None]:
    """Shows the warnings of unweave as a line of the tool, and those of other libraries as Python does."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, UnweaveWarning):
            print(f"unweave: {_with_flags(str(message))}", file=sys.stderr)
        else:
            others(message, category, *place, **more)

    return show


class Terminated(BaseException):
    """SIGTERM arrived; raised so that temporary files are removed."""


@contextmanager
def _terminable() -> Iterator[None]:
    """Raises ``Terminated`` at SIGTERM; the training loop handles the signal itself."""

    def stop(number: int, frame: Any) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
