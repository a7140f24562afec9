"""The six-space experiment.

sprites ─► pairs that share shape and one of color, scale, orientation, x, y ─► content and five style spaces
        ─► scores of every factor from every space
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave import SimCLR, Sprites, UnweaveError, train
from unweave.evaluation import compute_embeddings, dci
from unweave.objectives import BaseMethod, effective_rank, variance
from unweave.reproduce.results import ResultsTable, Row
from unweave.reproduce.sprite_spaces.methods import ABLATIONS, make_objective, methods, outputs
from unweave.reproduce.sprite_spaces.report import KEY, write_report
from unweave.reproduce.sprite_spaces.views import FACTORS, SPACES, Mode, SpriteFactors, SpriteViews
from unweave.reproduce.sprite_training import SpriteTraining, split_sprites
from unweave.reproduce.sprites.scores import CATEGORIES, CHANCE, SpriteScores, with_noise


@dataclass(frozen=True, kw_only=True)
class SpriteSpacesConfig(SpriteTraining):
    """How every row is trained and scored."""

    methods: tuple[str, ...] = ("simclr", "vicreg", "barlow_twins")
    ablations: tuple[str, ...] = tuple(ABLATIONS)
    ablated: str = "simclr"
    """The base method that the ablations are of."""
    mode: Mode = "latents"
    temperature: float = 0.4
    """SimCLR's τ."""
    hidden: int = 512
    batch: int = 512
    steps: int = 9000
    scored: int = 20_000
    forest: int = 4000
    """Images on which DCI is computed."""

    def __post_init__(self) -> None:
        known = methods(self.steps, self.temperature)
        if unknown := set(self.methods) - set(known):
            raise UnweaveError(f"`methods` {sorted(unknown)} do not exist; there are {', '.join(known)}")
        if self.mode not in get_args(Mode):
            raise UnweaveError(f"`mode` is one of {', '.join(get_args(Mode))}, not {self.mode!r}")


QUICK = SpriteSpacesConfig(
    methods=("simclr",),
    ablations=("none",),
    size=32,
    backbone="small",
    temperature=0.15,
    hidden=128,
    batch=192,
    steps=900,
    scored=4000,
    forest=1000,
)
"""A test that the experiment runs; this network does not learn the shapes at 32 pixels."""


def row_names(config: SpriteSpacesConfig, seed: int, only: str) -> Iterator[tuple[str, str, str, int]]:
    """The rows whose name contains every word of ``only``."""
    for method in config.methods:
        for ablation in config.ablations if method == config.ablated else config.ablations[:1]:
            if set(only.split()) <= {method, *ablation.split(), config.mode}:
                yield method, ablation, config.mode, seed


def run_sprite_spaces(
    out: Path, config: SpriteSpacesConfig, *, seed: int = 0, only: str = "", device: str | None = None
) -> list[Row]:
    """Trains and scores what ``out`` does not contain yet; returns all rows."""
    out.mkdir(parents=True, exist_ok=True)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    table = ResultsTable(out / "table.json", KEY, config)
    wanted = list(row_names(config, seed, only))
    if not wanted:
        raise UnweaveError(f"`only` {only!r} matches no row; a name consists of a method, an ablation and a mode")

    def make(method: str, ablation: str, mode: str, seed: int, place: str) -> Row:
        return train_row(method, ablation, config, seed, device, out / "runs", f"{place} {method}, {ablation}")

    table.fill(wanted, make)
    write_report(out, table)
    return table.rows


def train_row(
    method: str, ablation: str, config: SpriteSpacesConfig, seed: int, device: str, runs: Path, description: str
) -> Row:
    """Trains one encoder with six spaces and scores each."""
    train_index, held_out = split_sprites(config.scored)
    chosen, views = methods(config.steps, config.temperature)[method], SpriteViews(config.size, config.mode)
    torch.manual_seed(seed)
    encoder = config.encoder(SPACES, chosen.dims, output=outputs(chosen, ablation))
    objective = make_objective(chosen, ablation)
    folder = runs / f"{method} {ablation} {config.mode} {seed}".replace(" ", "-")
    training = config.train_config(seed, device, chosen.lr)
    source = SpriteFactors(train_index, device)
    run = train(source, views, encoder, objective, training, folder, description=description)
    if run.stopped:
        raise KeyboardInterrupt
    test = SpriteFactors(held_out, device)
    index = torch.arange(len(test), device=device)
    z = compute_embeddings(encoder, lambda rows: views.prepare(test[rows]), index)
    scores = SpriteScores(Sprites(8).factors(held_out.to(device)), config.penalties)
    return {
        "method": method,
        "ablation": ablation,
        "mode": config.mode,
        "seed": seed,
        **score_sprite_spaces({name: z[name].float() for name in SPACES}, scores, chosen.base, config.forest),
        "seconds_training": round(run.seconds, 1),
    }


@torch.no_grad()
def score_sprite_spaces(z: dict[str, Tensor], probes: SpriteScores, base: BaseMethod, forest: int) -> dict[str, Any]:
    """Spaces × factors, of embeddings with 1% noise, and DCI.

    ``scores`` are of embeddings in the geometry of the loss, ``raw`` of unnormalised ones.
    """
    raw = _table(z, probes)
    normalised = {space: base.normalize(features) for space, features in z.items()}
    z = {space: in_loss_geometry(features, base) for space, features in z.items()}
    scores = _table(z, probes)
    coarse = {name: probes.factors[name][:forest] // _coarse(name) for name in FACTORS}
    found = dci({space: features[:forest] for space, features in z.items()}, coarse)
    return {
        "spaces": list(z),
        "factors": list(FACTORS),
        "scores": scores,
        "raw": raw,
        "chance": {name: CHANCE[name] for name in FACTORS},
        "scale_across_shapes": probes.scale_across_shapes(z["scale"]),
        "width": probes.width(z["scale"]),
        "variance": {s: float(variance(f)) for s, f in normalised.items()},
        "effective_rank": {s: float(effective_rank(f)) for s, f in normalised.items()},
        "dci": {
            "disentanglement": found.disentanglement,
            "completeness": found.completeness,
            "informativeness": found.informativeness,
        },
        "dci_importance": found.importance,
    }


def _table(z: dict[str, Tensor], probes: SpriteScores) -> dict[str, dict[str, float]]:
    noisy = {space: with_noise(features) for space, features in z.items()}
    return {space: {name: probes.own(features, name) for name in FACTORS} for space, features in noisy.items()}


def in_loss_geometry(z: Tensor, base: BaseMethod) -> Tensor:
    """z (n, d) as the loss sees it: L2-normalised for SimCLR, standardised for Barlow Twins, unchanged for VICReg."""
    return F.normalize(z, dim=1) if isinstance(base, SimCLR) else base.normalize(z)


def _coarse(name: str) -> int:
    """Positions and angles are grouped into eight classes, so that forests can learn them from some thousand images."""
    return 1 if name in CATEGORIES else Sprites.factor_sizes[name] // 8
