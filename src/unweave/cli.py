"""The command line: one table from verbs to functions. It only parses and prints; nothing heavy is imported for help."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from unweave._version import __version__
from unweave.errors import UnweaveError


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Learn content, color and spatial spaces from coloured sprites; about 4 minutes on 2 CPU cores.

    Prints what each space tells of each factor and writes report.html, spaces.json and the run's metrics.
    Stopped and started again, it goes on where it was.
    """

    out: Path = Path("unweave-demo")
    """Folder for the report and the run."""
    seed: int = 0
    """Of everything random."""
    quick: bool = False
    """A few seconds, to see that it runs: the spaces do not come apart in so short a time."""

    def __call__(self) -> None:
        """Runs it."""
        from unweave.experiments.demo import run_demo

        run_demo(self.out, seed=self.seed, quick=self.quick)


Verb = Annotated[Demo, tyro.conf.subcommand("demo")] | Annotated[None, tyro.conf.subcommand("version")]


def main(arguments: list[str] | None = None) -> int:
    """Entry point of the ``unweave`` command; returns the exit status."""
    try:
        verb = tyro.cli(
            Verb,  # type: ignore[arg-type]
            prog="unweave",
            description="Keep style, apart: one embedding space for content and one for each style you can augment.",
            args=arguments,
            config=(tyro.conf.OmitArgPrefixes,),
        )
        if verb is None:
            print(__version__)
        else:
            verb()
    except UnweaveError as error:
        print(f"unweave: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("unweave: stopped; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
