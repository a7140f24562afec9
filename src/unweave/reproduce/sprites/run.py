"""The sprites experiment.

    ColorDSprites ─► two views, weak, medium or strong ─► ResNet-18 and projector ─► SimCLR, VICReg or Barlow Twins
                  with its standard λ, or an adapted one ─► scores of shape (content) and of every style factor

Legend: n images.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unweave import DisentangledLoss, SimCLR, Sprites, UnweaveError, train
from unweave.data import StoredSprites
from unweave.evaluation import compute_embeddings
from unweave.reproduce.results import ResultsTable, Row
from unweave.reproduce.sprite_training import SpriteTraining, split_sprites
from unweave.reproduce.sprites.methods import METHODS, Method, lambda_rule
from unweave.reproduce.sprites.report import KEY, write_report
from unweave.reproduce.sprites.scores import score_embedding
from unweave.reproduce.sprites.views import STRENGTHS, sprite_views

KINDS = (
    ("standard", "raised", "whole"),
    ("adapted", "geometric", "whole"),
    ("adapted", "paper", "whole"),
    ("adapted", "geometric", "release"),
    ("standard", "fixed", "whole"),
    ("adapted", "squared", "whole"),
)
"""λ, its rule, and the views: as the authors' release draws them, or drawn again where they would cut the sprite."""


@dataclass(frozen=True, kw_only=True)
class SpritesConfig(SpriteTraining):
    """How every row is trained and scored."""

    methods: Mapping[str, Method] = field(default_factory=lambda: METHODS)
    kinds: tuple[tuple[str, str, str], ...] = KINDS
    strengths: tuple[str, ...] = tuple(STRENGTHS)
    batch: int = 256
    steps: int = 10_000
    scored: int = Sprites.count // 10
    """Held-out images; half of them fit the probes, half are scored."""

    def __post_init__(self) -> None:
        if unknown := set(self.strengths) - set(STRENGTHS):
            raise UnweaveError(f"`strengths` {sorted(unknown)} do not exist; there are {', '.join(STRENGTHS)}")
        if not 100 <= self.scored <= Sprites.count // 10:
            raise UnweaveError(f"`scored` must be between 100 and {Sprites.count // 10}, not {self.scored}")


QUICK = SpritesConfig(
    methods={"simclr": replace(METHODS["simclr"], base=SimCLR(0.15), adapted=(0.3, 0.9))},
    kinds=(("adapted", "geometric", "whole"),),
    strengths=("weak",),
    size=32,
    backbone="small",
    hidden=256,
    batch=64,
    steps=2400,
    scored=8000,
)


@dataclass(frozen=True)
class RowName:
    """What identifies a row."""

    method: str
    weights: str
    rule: str
    strength: str
    views: str
    seed: int

    def __str__(self) -> str:
        return f"{self.method} {self.weights} {self.rule} {self.strength} {self.views}"


def row_names(config: SpritesConfig, seed: int, only: str) -> Iterator[RowName]:
    """The rows whose name contains every word of ``only``."""
    for method, (weights, rule, views), strength in itertools.product(config.methods, config.kinds, config.strengths):
        name, chosen = RowName(method, weights, rule, strength, views, seed), config.methods[method]
        if rule == "fixed" and chosen.start == chosen.base.invariance_weight:
            continue  # the same as raised
        if rule == "squared" and chosen.for_row("geometric", strength) == chosen:
            continue  # the same as geometric
        if set(only.split()) <= set(str(name).split()):
            yield name


class SpriteData:
    """The sprites to train on and those to score."""

    def __init__(self, config: SpritesConfig, device: str) -> None:
        train_index, held_out = split_sprites(config.scored)
        self.sprites, self.device = Sprites(config.size), device
        self.held_out = held_out.to(device)
        self.train = (
            RenderedSprites(self.sprites, train_index)
            if device == "cpu"
            else StoredSprites(self.sprites, train_index, device)
        )

    def factors(self) -> dict[str, Tensor]:
        """The factors of the images that are scored."""
        return self.sprites.factors(self.held_out)


class RenderedSprites:
    """Some of the sprites, rendered on demand."""

    def __init__(self, sprites: Sprites, index: Tensor) -> None:
        self._sprites, self._index = sprites, index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self._sprites[self._index[rows]]


def run_sprites(
    out: Path, config: SpritesConfig, *, seed: int = 0, only: str = "", device: str | None = None
) -> list[Row]:
    """Trains and scores what ``out`` does not contain yet; returns all rows."""
    out.mkdir(parents=True, exist_ok=True)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    table = ResultsTable(out / "table.json", KEY, config)
    wanted = list(row_names(config, seed, only))
    if not wanted:
        raise UnweaveError(
            f"`only` {only!r} matches no row; a name consists of a method, weights, a rule, a strength and views"
        )
    data = cache(lambda: SpriteData(config, device))

    def make(*parts: Any) -> Row:
        *fields, place = parts
        name = RowName(*fields)
        return train_row(name, data(), config, out / "runs", f"{place} {name}")

    table.fill([astuple(name) for name in wanted], make)
    write_report(out, table)
    return table.rows


def train_row(name: RowName, data: SpriteData, config: SpritesConfig, runs: Path, description: str) -> Row:
    """Trains one encoder and scores its embedding."""
    method = config.methods[name.method].for_row(name.rule, name.strength)
    views = sprite_views(name.strength, name.views)
    torch.manual_seed(name.seed)
    encoder = config.encoder(views.spaces, method.dim, method.depth)
    rule, guard = lambda_rule(name.rule, method, config.steps)
    objective = DisentangledLoss(method.base, spaces=views.spaces, lambda_rule=rule, collapse_guard=guard)
    training = config.train_config(name.seed, data.device, method.lr)
    folder = runs / f"{name} {name.seed}".replace(" ", "-")
    run = train(data.train, views, encoder, objective, training, folder, description=description)
    if run.stopped:
        raise KeyboardInterrupt
    z = compute_embeddings(encoder, lambda index: views.prepare(data.sprites[index]), data.held_out)["content"]
    last = run.metrics[-1]
    return {
        **vars(name),
        **score_embedding(z.float(), data.factors(), method.base.normalize),
        "weight": last["content/lambda"],
        "invariance_gap": last["content/invariance_gap"],
        "seconds": round(run.seconds, 1),
    }
