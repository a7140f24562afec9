"""The command line: one table from verbs to functions. It only parses and prints.

Nothing heavy is imported before it is needed, so that help and errors come at once.
"""

import sys
from pathlib import Path

import tyro

from unweave._version import __version__
from unweave.errors import UnweaveError


def demo(*, out: Path = Path("unweave-demo"), seed: int = 0, quick: bool = False) -> None:
    """Learn content, color and spatial spaces from coloured sprites: about 3 minutes on 2 CPU cores.

    Prints what each space tells of each factor and writes report.html, spaces.json, figure.png and the run's metrics.
    Stopped and started again, it goes on where it was.

    Args:
        out: Folder for the report and the run.
        seed: Of everything random.
        quick: A few seconds, to see that it runs; the spaces do not come apart in so short a time.
    """
    from unweave.experiments.demo import run_demo

    run_demo(out, seed=seed, quick=quick)


def numerical(*, out: Path = Path("unweave-numerical"), quick: bool = False) -> None:
    """Only content, whatever the size of the embedding (paper, section 5.1).

    Writes table.json, figure.svg and README.md; an interrupted run goes on with the settings that are not finished.

    Args:
        out: Folder for the table, the figure and the README.
        quick: Three sizes, two seeds, one setting and a small encoder: minutes on 2 CPU cores.
    """
    from unweave.experiments.numerical import QUICK, NumericalConfig, run_numerical

    run_numerical(out, QUICK if quick else NumericalConfig())


def identifiability(*, out: Path = Path("unweave-identifiability"), quick: bool = False) -> None:
    """The paper's theorem put to the test, inside its assumptions and one step outside.

    Writes table.json, figure.svg and README.md; an interrupted run goes on with what is not finished.

    Args:
        out: Folder for the table, the figure and the README.
        quick: Two styles, one seed, our objective and a small network: minutes on 2 CPU cores.
    """
    from unweave.experiments.identifiability import QUICK, IdentifiabilityConfig, run_identifiability

    run_identifiability(out, QUICK if quick else IdentifiabilityConfig())


def reproduce() -> None:
    """Run an experiment of the paper, or one it lacks: unweave reproduce numerical | identifiability."""


VERBS = {"demo": demo, "reproduce": reproduce}
EXPERIMENTS = {"identifiability": identifiability, "numerical": numerical}


def main(arguments: list[str] | None = None) -> int:
    """Entry point of the ``unweave`` command; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(__version__)
        return 0
    experiments = arguments[:1] == ["reproduce"]
    try:
        tyro.extras.subcommand_cli_from_dict(
            EXPERIMENTS if experiments else VERBS,
            prog="unweave reproduce" if experiments else "unweave",
            description="Keep style, apart: one embedding space for content and one for each style you can augment.",
            args=arguments[1:] if experiments else arguments,
        )
    except UnweaveError as error:
        print(f"unweave: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("unweave: stopped; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
