"""``unweave demo`` and ``unweave reproduce``."""

from pathlib import Path
from typing import Literal


def demo(*, out: Path = Path("unweave-demo"), seed: int = 0, quick: bool = False) -> None:
    """Learn content, color and spatial spaces from coloured sprites: about 4 minutes on 2 CPU cores.

    Prints how well each factor can be predicted from each space, and writes report.html, spaces.json, figure.png and
    the run. The same command resumes a demo that was stopped.

    Args:
        out: Folder for the report and the run.
        seed: Seed of everything random.
        quick: A few seconds, as a test; the spaces are not separate after so short a time.
    """
    from unweave.reproduce.demo import run_demo

    run_demo(out, seed=seed, quick=quick)


def numerical(*, out: Path = Path("unweave-numerical"), quick: bool = False) -> None:
    """Content alone, at any size of the embedding (paper, section 5.1).

    Writes table.json, figure.svg and README.md. The same command resumes with the settings that are not finished.

    Args:
        out: Folder for the results.
        quick: Three sizes, two seeds, one setting and a small encoder: minutes on 2 CPU cores.
    """
    from unweave.reproduce.numerical import QUICK, NumericalConfig, run_numerical

    run_numerical(out, QUICK if quick else NumericalConfig())


def identifiability(*, out: Path = Path("unweave-identifiability"), quick: bool = False) -> None:
    """A test of the paper's theorem, within its assumptions and one step outside.

    Writes table.json, figure.svg and README.md. The same command resumes with what is not finished.

    Args:
        out: Folder for the results.
        quick: Two styles, one seed, one objective and a small network: minutes on 2 CPU cores.
    """
    from unweave.reproduce.identifiability import QUICK, IdentifiabilityConfig, run_identifiability

    run_identifiability(out, QUICK if quick else IdentifiabilityConfig())


def sprites(
    *,
    out: Path = Path("unweave-sprites"),
    seeds: tuple[int, ...] = (),
    only: str = "",
    tune: bool = False,
    steps: int | None = None,
    quick: bool = False,
    workers: int = 1,
) -> None:
    """Content alone, at any strength of augmentation: ColorDSprites (paper, section 5.2).

    Writes table.json, figure.svg, samples.png and README.md; with --tune, tuning.json and settings.yaml. The same
    command resumes with the rows not finished.

    Args:
        out: Folder for the results.
        seeds: Seeds of the networks and the views; by default 21 to 25, and 100 for trials.
        only: Words that a row's name must contain, such as "simclr ours weak release".
        tune: Compare the trials of every method and rule on validation images, instead of making the table.
        steps: Optimiser steps of each row, 10,000 by default; schedules are relative to it.
        quick: Small images and a small network: about 12 minutes for each row on a CPU core; without --only our rule
            for SimCLR at medium strength.
        workers: Processes on this machine that share the rows: on a GPU some decode and probe while others train.
    """
    from dataclasses import replace

    from unweave.reproduce.workers import start_workers

    if start_workers(workers, out):
        return
    from unweave.reproduce.sprites import QUICK, QUICK_ROWS, SpritesConfig, run_sprites, tune_sprites

    config = QUICK if quick else SpritesConfig()
    if seeds:
        config = replace(config, tuning_seeds=seeds) if tune else replace(config, seeds=seeds)
    if steps is not None:
        config = replace(config, steps=steps)
    (tune_sprites if tune else run_sprites)(out, config, only=only or (QUICK_ROWS if quick else ""))


def sprite_spaces(
    *,
    out: Path = Path("unweave-sprite-spaces"),
    mode: Literal["latents", "pixels", "zoom"] = "latents",
    seed: int = 0,
    only: str = "",
    quick: bool = False,
    workers: int = 1,
) -> None:
    """Content and five style spaces of ColorDSprites at once; not in the paper.

    Writes table.json, figure.svg and README.md. The same command resumes with the rows not finished.

    Args:
        out: Folder for the results.
        mode: How views are made: sprites are rendered again with new factors, or transformed as images, which sets
            their size (pixels) or changes it by a factor (zoom).
        seed: Seed of the networks and the views; each seed has its own rows.
        only: Words that a row's name must contain, such as "simclr none".
        quick: One row, small images and a small network: minutes on 2 CPU cores.
        workers: Processes on this machine that share the rows: on a GPU some decode and probe while others train.
    """
    from dataclasses import replace

    from unweave.reproduce.workers import start_workers

    if start_workers(workers, out):
        return
    from unweave.reproduce.sprite_spaces import QUICK, SpriteSpacesConfig, run_sprite_spaces

    config = QUICK if quick else SpriteSpacesConfig()
    run_sprite_spaces(out, replace(config, mode=mode), seed=seed, only=only)


def transfer(
    *,
    data: Path,
    out: Path = Path("unweave-transfer"),
    scale: Literal["mini", "paper"] = "mini",
    pretraining: Path | None = None,
    seed: tuple[int, ...] = (0,),
    only: str = "",
    tune: bool = False,
    quick: bool = False,
    devices: int | None = None,
    workers: int = 1,
) -> None:
    """Does keeping style help other tasks? Models pre-trained on photographs, probed on labelled ones (section 5.3).

    Writes table.json, tables in Markdown and LaTeX, figures and README.md. The same command resumes with the models and
    probes not finished; several processes with the same --out share the work.

    Args:
        data: Folder of the data sets: tiny-imagenet (or imagenet) and the tasks, each in its official layout or as
            Parquet files. Tasks that are not there are left out.
        out: Folder for the results.
        scale: mini is Tiny-ImageNet at 64 pixels and ResNet-18, about 50 s of training for each model on one H200;
            paper is ImageNet at 224 pixels and ResNet-50, for clusters.
        pretraining: Folder of the images to train on, if it is not in --data.
        seed: Seeds of the networks, the order of images and the views; each seed has its own rows.
        only: Names of models or parts of them, separated by commas.
        tune: Try the settings listed for each model, with one tuning seed and without test images; writes tuning.json.
        quick: A test: two steps of a small network, and few images of each task.
        devices: GPUs that train one model together.
        workers: Processes on this machine that share the rows: on a GPU some decode and probe while others train.
    """
    from unweave.reproduce.workers import start_workers

    if start_workers(workers, out):
        return
    from unweave.reproduce.transfer import run_transfer, run_tuning

    changes = {} if devices is None else {"devices": devices}
    if tune:
        run_tuning(out, data, pretraining=pretraining, only=only, quick=quick, changes=changes)
    else:
        run_transfer(
            out, data, scale=scale, pretraining=pretraining, seeds=seed, only=only, quick=quick, changes=changes
        )
