"""The command line: one table from verbs to functions. It only parses and prints.

Nothing heavy is imported before it is needed, so that help and errors come at once.
"""

import argparse
import errno
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from unweave._version import __version__
from unweave.errors import UnweaveError
from unweave.training.presets import PRESETS
from unweave.training.presets import preset as preset_named
from unweave.training.pretrain_config import PretrainConfig, from_mapping, read_yaml


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


def sprites(
    *,
    out: Path = Path("unweave-sprites"),
    part: Literal["table", "spaces"] = "table",
    mode: Literal["latents", "pixels"] = "latents",
    seed: int = 0,
    only: str = "",
    quick: bool = False,
) -> None:
    """Content alone, whatever the strength of augmentation: ColorDSprites (paper, section 5.2).

    Writes table.json, figure.svg, samples.png and README.md; an interrupted run goes on with the rows not finished.
    The part "spaces", which the paper lacks, learns content and five style spaces at once and writes spaces.json.

    Args:
        out: Folder for the table, the figures and the README.
        part: The paper's table, or content and five style spaces at once.
        mode: Views for --part spaces: sprites rendered anew, or turned, scaled, moved and painted as images.
        seed: Of the networks and the views; each has rows of its own.
        only: Words that a row's name must have, as "simclr adapted weak".
        quick: One row, small images and a small network: minutes on 2 CPU cores.
    """
    if part == "spaces":
        from unweave.experiments import sprite_spaces

        config = sprite_spaces.QUICK if quick else sprite_spaces.SpacesConfig()
        sprite_spaces.run_spaces(out, replace(config, mode=mode), seed=seed, only=only)
        return
    from unweave.experiments.sprites import QUICK, SpritesConfig, run_sprites

    run_sprites(out, QUICK if quick else SpritesConfig(), seed=seed, only=only)


@dataclass(frozen=True, kw_only=True)
class Flags(PretrainConfig):
    """Any of these can be set by flag, or in a YAML file."""

    def __post_init__(self) -> None:
        """Checked when the verb is called: tyro would draw a box round the error, and name its own workings in it."""


def train_from(settings: PretrainConfig) -> Callable[..., int]:
    """The verb ``train``, its flags having the values of ``settings`` unless they are given."""

    def train(
        data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
        /,
        *,
        out: Path,
        preset: str = "small",
        config: Path | None = None,
        flags: tyro.conf.OmitArgPrefixes[Flags] = Flags(**vars(settings)),  # noqa: B008
    ) -> int:
        """Learn content, spatial and appearance spaces from images of your own.

        Stopped and started again, it goes on where it was. What it leaves in the run's folder: config.yaml,
        checkpoint.safetensors, metrics.jsonl and skipped.txt.

        Args:
            data: A folder of images, Parquet files (a file, a folder, a glob), or the name of a torchvision data set
                with --root.
            out: The run's folder.
            preset: Settings to start from: small, cifar, imagenet-100 or imagenet. `unweave presets` tells of each.
            config: A YAML file of settings, as a run's own config.yaml; flags go before it, and it before the preset.
            flags: Settings.
        """
        from unweave.data.source import check_exists

        settings = PretrainConfig(**vars(flags))
        check_exists(data, settings.root)
        from unweave.processes import rank
        from unweave.training.pretrain import pretrain

        run = pretrain(data, out, settings)
        if run.stopped and rank() == 0:
            print(f"unweave: told to stop at step {run.steps}; the same command goes on from there", file=sys.stderr)
        return 143 if run.stopped else 0

    return train


def embed(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    /,
    *,
    out: Path,
    root: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    batch_size: int = 256,
    workers: int | None = None,
    max_bad: float = 0.01,
    device: str = "auto",
) -> None:
    """Write h and every space's z of every image to a Parquet file, with its path and label.

    Args:
        run: A run's folder, or an export's.
        data: Images, as `unweave train` takes them.
        out: The Parquet file.
        root: Where a torchvision data set lies, DATA being its name.
        image_column: The images' column, where a Parquet file has several.
        label_column: The labels' column in a Parquet file.
        batch_size: Images through the network at a time.
        workers: Processes that decode images; one for each core by default.
        max_bad: The share of images that may be unreadable.
        device: cpu, cuda, …; auto takes what there is.
    """
    from unweave.data.source import check_exists

    check_exists(data, root)
    from unweave.inference.verbs import embed_data

    columns = {"root": root, "image_column": image_column, "label_column": label_column}
    embed_data(run, data, out, columns, batch_size=batch_size, workers=workers, max_bad=max_bad, device=device)


def export(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    /,
    *,
    out: Path | None = None,
    onnx: bool = True,
) -> None:
    """Write a run's model as safetensors with its configuration, and as ONNX.

    Args:
        run: A run's folder.
        out: The folder for the files; RUN/export by default.
        onnx: Write ONNX too.
    """
    from unweave.inference import export_run, load

    for path in export_run(load(run), run / "export" if out is None else out, onnx=onnx):
        print(path)


def doctor() -> None:
    """Print versions, devices, threads and what is missing: for bug reports."""
    from unweave.doctor import report

    print(report())


def presets() -> None:
    """Tell what each preset is for: its command, hardware, hours and the score to expect."""
    print("\n\n".join(f"{name}: {preset.describe()}" for name, preset in PRESETS.items()))


def reproduce() -> None:
    """Run an experiment of the paper, or one it lacks: unweave reproduce numerical | identifiability | sprites."""


VERBS: dict[str, Callable[..., Any]] = {
    "demo": demo,
    "train": train_from(preset_named("small")),
    "embed": embed,
    "export": export,
    "doctor": doctor,
    "presets": presets,
    "reproduce": reproduce,
}
EXPERIMENTS: dict[str, Callable[..., Any]] = {
    "identifiability": identifiability,
    "numerical": numerical,
    "sprites": sprites,
}


def main(arguments: list[str] | None = None) -> int:
    """Entry point of the ``unweave`` command; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(__version__)
        return 0
    experiments = arguments[:1] == ["reproduce"]
    try:
        verbs = EXPERIMENTS if experiments else VERBS
        if arguments[:1] == ["train"]:
            verbs = {**verbs, "train": train_from(starting_point(arguments))}
        status = tyro.extras.subcommand_cli_from_dict(
            verbs,
            prog="unweave reproduce" if experiments else "unweave",
            description="Keep style, apart: one embedding space for content and one for each style you can augment.",
            args=arguments[1:] if experiments else arguments,
        )
    except UnweaveError as error:
        print(f"unweave: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read our output, as `head` does, has had enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 141
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS):
            raise
        print(f"unweave: {error.strerror}: {error.filename or 'a file of the run'}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("unweave: stopped; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130
    return int(status or 0)


def starting_point(arguments: list[str]) -> PretrainConfig:
    """The settings that flags then change: those of --preset, changed by the file that --config names."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--preset", default="small")
    first.add_argument("--config", type=Path)
    chosen, _ = first.parse_known_args(arguments)
    settings = preset_named(chosen.preset)
    if chosen.config is None:
        return settings
    values = read_yaml(chosen.config)
    for name in ("data", "unweave"):  # a run's own file says these too
        values.pop(name, None)
    return from_mapping(values, settings, str(chosen.config))


if __name__ == "__main__":
    sys.exit(main())
