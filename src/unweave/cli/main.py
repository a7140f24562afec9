"""The ``unweave`` command: a table from verbs to functions, and how errors are shown."""

import errno
import os
import sys
from collections.abc import Callable
from typing import Any

import tyro

from unweave._version import __version__
from unweave.cli.doctor import doctor
from unweave.cli.embed import embed, export
from unweave.cli.flags import with_flags
from unweave.cli.reproduce import demo, identifiability, numerical, sprite_spaces, sprites
from unweave.cli.styles import styles
from unweave.cli.train import presets, train
from unweave.errors import UnweaveError
from unweave.pretraining.config import PretrainConfig


def reproduce() -> None:
    """Run an experiment: unweave reproduce numerical | identifiability | sprites | sprite-spaces."""


VERBS: dict[str, Callable[..., Any]] = {
    "demo": demo,
    "train": train,
    "embed": embed,
    "export": export,
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
}
OTHER_FLAGS = ("out", "preset", "config", "device", "onnx", "mode", "only")
"""Flags that are not settings of a configuration."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(__version__)
        return 0
    experiment = arguments[:1] == ["reproduce"]
    try:
        status = tyro.extras.subcommand_cli_from_dict(
            EXPERIMENTS if experiment else VERBS,
            prog="unweave reproduce" if experiment else "unweave",
            description="Learn one embedding space for content and one for each style you can augment.",
            args=arguments[1:] if experiment else arguments,
        )
    except UnweaveError as error:
        print(f"unweave: {with_flags(str(error), PretrainConfig, *OTHER_FLAGS)}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output, such as `head`, has ended
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 141
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS):
            raise
        print(f"unweave: {error.strerror}: {error.filename or 'a file of the run'}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("unweave: stopped; the same command resumes from the last checkpoint", file=sys.stderr)
        return 130
    return int(status or 0)
