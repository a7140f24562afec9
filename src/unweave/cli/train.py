"""``unweave train`` and ``unweave presets``."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import tyro

from unweave.cli.flags import flags_of
from unweave.pretraining.config import PretrainConfig, from_yaml
from unweave.pretraining.presets import PRESETS, preset
from unweave.settings import read_yaml, with_settings

BASIC = (
    "styles", "size", "backbone", "init", "method", "epochs", "batch_size", "lr", "seed", "label_column", "cache",
    "workers", "max_bad", "accelerator", "devices",
)  # fmt: skip
"""The settings that `unweave train --help` lists; `--help-all` lists all."""


def train_with(flags: type) -> Callable[..., int]:
    """The verb ``train``, with these flags for its settings."""

    def train(
        data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
        /,
        *,
        out: Path,
        preset: str = "small",
        config: Path | None = None,
        quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
        flags: Annotated[flags, tyro.conf.OmitArgPrefixes, tyro.conf.arg(name="")],  # type: ignore[valid-type]
    ) -> int:
        """Learn a content space and a space for each style from your own images.

        The same command resumes a run that was stopped. The run's folder contains config.yaml, checkpoint.safetensors,
        metrics.jsonl and, if there are any, unreadable.jsonl with the images that could not be read. `--help` lists
        the flags most often needed, `--help-all` all of them.

        Args:
            data: Folder of images, Parquet files (a file, a folder, a glob), a CSV file of paths, a folder of
                Hugging Face's save_to_disk, or the name of a torchvision data set with --root.
            out: The run's folder.
            preset: Settings to start from: small, cifar, imagenet-100 or imagenet; see `unweave presets`.
            config: YAML file of settings, such as a run's config.yaml. Flags override it, and it overrides the preset.
            quiet: Print warnings and errors only.
            flags: Settings. The defaults shown are those of the preset small.
        """
        from unweave.data.sources import check_exists

        settings = settings_from(preset, config, asdict(flags))
        check_exists(data, settings.data.root)
        from unweave.distributed import rank
        from unweave.pretraining import pretrain

        run = pretrain(data, out, config=settings, progress=not quiet)
        if run.stopped and rank() == 0:
            print(f"unweave: stopped at step {run.steps}; the same command resumes the run", file=sys.stderr)
        return 143 if run.stopped else 0

    return train


train = train_with(flags_of(PretrainConfig, default=PRESETS["small"].config))
train_basic = train_with(flags_of(PretrainConfig, default=PRESETS["small"].config, only=BASIC))


def settings_from(name: str, config: Path | None, flags: dict[str, dict[str, Any]]) -> PretrainConfig:
    """The preset, changed by the YAML file, changed by the flags."""
    settings = preset(name)
    if config is not None:
        settings = from_yaml(read_yaml(config), settings, str(config))
    return with_settings(settings, {name: value for given in flags.values() for name, value in given.items()})


def presets() -> None:
    """List the presets with their command, hardware, time and expected score."""
    print("\n\n".join(f"{name}: {chosen.describe()}" for name, chosen in PRESETS.items()))
