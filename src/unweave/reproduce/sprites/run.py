"""The sprites experiment.

    ColorDSprites ─► two views, weak, medium or strong ─► ResNet-18 and projector ─► SimCLR, VICReg or Barlow Twins
                  with its standard λ, the paper's rule or ours ─► scores of shape (content) and of every style factor

Legend: n images.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from unweave import Sprites, UnweaveError, train
from unweave.data import StoredSprites
from unweave.evaluation import compute_embeddings
from unweave.reproduce.results import ResultsTable, Row
from unweave.reproduce.sprite_training import SpriteTraining, split_sprites
from unweave.reproduce.sprites.report import KEY, write_report
from unweave.reproduce.sprites.scores import SpriteScores, score_embedding, score_headline
from unweave.reproduce.sprites.settings import FILE, METHODS, RULES, TRIALS, Method, Setting, load_settings
from unweave.reproduce.sprites.tuning import TUNING_KEY, write_tuning
from unweave.reproduce.sprites.views import STRENGTHS, sprite_views
from unweave.settings import to_nested

VIEWS = ("release", "whole")
"""As the authors' release draws them, the main table; or drawn again where they would cut the sprite, the second."""
Part = Literal["test", "validation"]


@dataclass(frozen=True, kw_only=True)
class SpritesConfig(SpriteTraining):
    """How every row is trained and scored."""

    methods: Mapping[str, Method] = field(default_factory=lambda: METHODS)
    rules: tuple[str, ...] = RULES
    views: tuple[str, ...] = VIEWS
    strengths: tuple[str, ...] = tuple(STRENGTHS)
    seeds: tuple[int, ...] = (21, 22, 23, 24, 25)
    """Reported seeds: run once, with the settings of ``settings.yaml``."""
    tuning_seeds: tuple[int, ...] = (100,)
    """Seeds of the trials."""
    settings: Mapping[str, Mapping[str, Setting]] = field(default_factory=load_settings)
    settings_file: str = f"unweave/reproduce/sprites/{FILE.name}"
    trials: Mapping[str, Mapping[str, tuple[Setting, ...]]] = field(default_factory=lambda: TRIALS)
    batch: int = 256
    steps: int = 10_000
    scored: int = 40_000
    """Held-out images of the reported scores; half of them fit the probes, half are scored."""
    validated: int = 20_000
    """Other held-out images, by which trials are compared."""

    def __post_init__(self) -> None:
        for name, known in (("strengths", STRENGTHS), ("rules", RULES), ("views", VIEWS)):
            if unknown := set(getattr(self, name)) - set(known):
                raise UnweaveError(f"`{name}` {sorted(unknown)} do not exist; there are {', '.join(known)}")
        if min(self.scored, self.validated) < 100 or self.scored + self.validated > Sprites.count // 10:
            raise UnweaveError(
                f"`scored` and `validated` must be at least 100 each and {Sprites.count // 10} together, not "
                f"{self.scored} and {self.validated}"
            )


QUICK = SpritesConfig(
    views=("release",),
    seeds=(21,),
    size=32,
    backbone="small",
    hidden=256,
    steps=4000,
    scored=8000,
    validated=6000,
)
"""Rows that a CPU core trains in 12 minutes each: 32 pixels and a small network, which learns the shapes by SimCLR."""
QUICK_ROWS = "simclr ours medium"
"""The rows of the small form where no others are asked for."""


class SpriteData:
    """The sprites to train on and those to score."""

    def __init__(self, config: SpritesConfig, device: str, part: Part) -> None:
        train_index, test = split_sprites(config.scored)
        held_out = test if part == "test" else split_sprites(config.validated, skip=config.scored)[1]
        self.sprites, self.device, self.part = Sprites(config.size), device, part
        self.held_out = held_out.to(device)
        self.scores = SpriteScores(self.sprites.factors(self.held_out), config.penalties)
        self.train = (
            RenderedSprites(self.sprites, train_index)
            if device == "cpu"
            else StoredSprites(self.sprites, train_index, device)
        )


class RenderedSprites:
    """Some of the sprites, rendered on demand."""

    def __init__(self, sprites: Sprites, index: Tensor) -> None:
        self._sprites, self._index = sprites, index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self._sprites[self._index[rows]]


def run_sprites(out: Path, config: SpritesConfig, *, only: str = "", device: str | None = None) -> list[Row]:
    """Trains and scores the rows that ``out`` does not contain yet; returns all rows."""
    out.mkdir(parents=True, exist_ok=True)
    table = ResultsTable(out / "table.json", KEY, config)
    _fill(table, list(row_names(config, only)), only, config, "test", out, device)
    write_report(out, table)
    return table.rows


def tune_sprites(out: Path, config: SpritesConfig, *, only: str = "", device: str | None = None) -> list[Row]:
    """Trains the trials of every method and rule, and scores them on the validation images; returns all rows.

    Writes ``tuning.json``, and ``settings.yaml`` with the best trial of every method and rule that has them all.
    """
    out.mkdir(parents=True, exist_ok=True)
    table = ResultsTable(out / "tuning.json", TUNING_KEY, config)
    _fill(table, list(trial_names(config, only)), only, config, "validation", out, device)
    write_tuning(out, table.rows, config.settings, config.trials)
    return table.rows


def row_names(config: SpritesConfig, only: str) -> Iterator[tuple[Any, ...]]:
    """The names, in the order of ``KEY``, that contain every word of ``only``; one seed after another."""
    every = itertools.product(config.seeds, config.views, config.methods, config.rules, config.strengths)
    for seed, views, method, rule, strength in every:
        if set(only.split()) <= {method, rule, strength, views}:
            yield method, rule, strength, views, seed


def trial_names(config: SpritesConfig, only: str) -> Iterator[tuple[Any, ...]]:
    """The names of the trials, in the order of ``TUNING_KEY``; views are the release's."""
    for seed, method in itertools.product(config.tuning_seeds, config.methods):
        for rule, trials in config.trials[method].items():
            for trial, strength in itertools.product(range(len(trials)), config.strengths):
                if set(only.split()) <= {method, rule, strength, f"trial{trial}"}:
                    yield method, rule, strength, VIEWS[0], seed, trial


def _fill(
    table: ResultsTable,
    wanted: list[tuple[Any, ...]],
    only: str,
    config: SpritesConfig,
    part: Part,
    out: Path,
    device: str | None,
) -> None:
    if not wanted:
        raise UnweaveError(f"`only` {only!r} matches no row; a name consists of a method, a rule, a strength and views")
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    data = cache(lambda: SpriteData(config, where, part))

    def make(*parts: Any) -> Row:
        *name, place = parts
        method, rule = name[:2]
        setting = config.trials[method][rule][name[5]] if part == "validation" else config.settings[method][rule]
        row = dict(zip(table.key, name, strict=True))
        return {**row, **train_row(row, setting, data(), config, out / "runs", place)}

    table.fill(wanted, make)


def train_row(
    row: Row, setting: Setting, data: SpriteData, config: SpritesConfig, runs: Path, place: str
) -> dict[str, Any]:
    """Trains one encoder and scores its embedding."""
    method, name = config.methods[row["method"]], " ".join(str(value) for value in row.values())
    views = sprite_views(row["strength"], row["views"])
    torch.manual_seed(row["seed"])
    encoder = config.encoder(views.spaces, method.dim, method.depth, output=setting.output)
    objective = method.objective(row["rule"], setting, views.spaces, config.steps)
    training = config.train_config(row["seed"], data.device, setting.lr, setting.precision)
    folder = runs / name.replace(" ", "-")
    run = train(data.train, views, encoder, objective, training, folder, description=f"{place} {name}")
    if run.stopped:
        raise KeyboardInterrupt
    z = compute_embeddings(encoder, lambda index: views.prepare(data.sprites[index]), data.held_out)["content"]
    last, score = run.metrics[-1], score_embedding if data.part == "test" else score_headline
    return {
        **score(z.float(), data.scores, objective.base.normalize),
        "weight": last["content/lambda"],
        "invariance_gap": last["content/invariance_gap"],
        "setting": to_nested(setting),
        "seconds": round(run.seconds, 1),
    }
