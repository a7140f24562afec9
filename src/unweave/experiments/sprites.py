"""``unweave reproduce sprites``: content alone, whatever the strength of augmentation (paper, section 5.2).

    ColorDSprites ─► two views, weak, medium or strong ─► ResNet-18 and projector ─► SimCLR, VICReg or Barlow Twins
                  with its standard λ, or λ adapted ─► what z tells of shape (content) and of every style factor

Legend: n images, d dimensions.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unweave import augment as A
from unweave.data.sprites import COUNT, PALETTE, Sprites, StoredSprites
from unweave.errors import UnweaveError
from unweave.evaluation import embed
from unweave.experiments.sprite_training import SpriteTraining
from unweave.experiments.sprites_report import KEY, TABLE, write_report
from unweave.experiments.sprites_scores import score_row
from unweave.experiments.table import Row, Table
from unweave.objectives import BarlowTwins, DisentangledLoss, DualAscent, Fixed, SimCLR, VICReg
from unweave.objectives._base import BaseMethod
from unweave.training import train

MEAN, STD = (0.0233, 0.0210, 0.0184), (0.128, 0.106, 0.105)


@dataclass(frozen=True)
class Strength:
    """How strong the augmentations are, as in the authors' release."""

    zoom: float
    jitter: float
    hue: float
    jitter_p: float
    gray_p: float
    degrees: float
    translate: float

    def transforms(self) -> list[A.Transform]:
        """In the release's order; rotation happens half of the time."""
        return [
            A.RandomPadOrCrop(self.zoom),
            A.RandomTranslation((self.translate, self.translate)),
            A.RandomRotation(self.degrees, p=0.5),
            A.ColorJitter(self.jitter, self.jitter, self.jitter, self.hue, p=self.jitter_p),
            A.RandomGrayscale(p=self.gray_p),
        ]


STRENGTHS = {
    "weak": Strength(zoom=1.5, jitter=0.2, hue=0.1, jitter_p=0.8, gray_p=0.0, degrees=20, translate=0.15),
    "medium": Strength(zoom=2, jitter=0.4, hue=0.3, jitter_p=1.0, gray_p=0.2, degrees=60, translate=0.2),
    "strong": Strength(zoom=3, jitter=0.6, hue=0.5, jitter_p=1.0, gray_p=0.2, degrees=180, translate=0.25),
}


@dataclass(frozen=True)
class Method:
    """A base method, its projector's sizes and how λ is adapted under each rule."""

    base: BaseMethod
    dim: int
    depth: int
    growth: float
    """Of the geometric rule, a step."""
    eta: float
    """η of the paper's rule."""
    tolerance: float


METHODS = {
    "simclr": Method(SimCLR(temperature=0.15), dim=256, depth=2, growth=0.002, eta=1.0, tolerance=1e-3),
    "vicreg": Method(VICReg(), dim=512, depth=3, growth=0.002, eta=100.0, tolerance=1e-3),
    "barlow_twins": Method(BarlowTwins(), dim=512, depth=3, growth=0.002, eta=1.0, tolerance=1e-4),
}
KINDS = (("standard", "fixed"), ("adapted", "geometric"), ("adapted", "paper"))


@dataclass(frozen=True, kw_only=True)
class SpritesConfig(SpriteTraining):
    """How every row is trained and scored."""

    methods: tuple[str, ...] = tuple(METHODS)
    kinds: tuple[tuple[str, str], ...] = KINDS
    strengths: tuple[str, ...] = tuple(STRENGTHS)
    warmup: float = 0.2
    """The share of steps before λ moves."""
    settled: float = 0.7
    """The share of steps after which λ stays."""
    scored: int = 40_000
    """Images held out of training that are embedded; half of them fit the probes, half are scored."""

    def __post_init__(self) -> None:
        for name, given, known in (
            ("methods", self.methods, METHODS),
            ("strengths", self.strengths, STRENGTHS),
        ):
            if unknown := set(given) - set(known):
                raise UnweaveError(f"there are no {name} {sorted(unknown)}; there are {', '.join(known)}")
        if not 100 <= self.scored <= COUNT // 10:
            raise UnweaveError(f"between 100 and {COUNT // 10} images can be scored, not {self.scored}")


QUICK = SpritesConfig(
    methods=("simclr",),
    kinds=(("adapted", "geometric"),),
    strengths=("medium",),
    size=32,
    backbone="small",
    hidden=256,
    batch=128,
    steps=2000,
    scored=8000,
)


@dataclass(frozen=True)
class Named:
    """What tells one row from the others."""

    method: str
    weights: str
    rule: str
    strength: str
    seed: int

    def __str__(self) -> str:
        return f"{self.method} {self.weights} {self.rule} {self.strength}"


def rows(config: SpritesConfig, seed: int, only: str) -> Iterator[Named]:
    """The rows to be made: those whose name holds every word of ``only``."""
    for method, (weights, rule), strength in itertools.product(config.methods, config.kinds, config.strengths):
        named = Named(method, weights, rule, strength, seed)
        if set(only.split()) <= set(str(named).split()):
            yield named


class SeenViews(A.Views):
    """Views in which the sprite can be seen: one that has lost it is drawn again."""

    tries = 2

    def __call__(self, images: Tensor, **how: Any) -> A.Pair:
        """As ``Views``. A GPU is not asked whether any was lost: there every view is drawn ``tries`` times."""
        pair = super().__call__(images, **how)
        a, b = pair.a, pair.b
        for _ in range(self.tries - 1):
            lost_a, lost_b = _lost(a), _lost(b)
            if not images.is_cuda and not (lost_a | lost_b).any():
                break
            again = super().__call__(images, **how)
            a, b = torch.where(lost_a, again.a, a), torch.where(lost_b, again.b, b)
        return A.Pair(a, b, pair.shared)


def _lost(views: Tensor) -> Tensor:
    """Which views are all background, (n, 1, 1, 1)."""
    span = views.amax((2, 3), keepdim=True) - views.amin((2, 3), keepdim=True)
    return span.amax(1, keepdim=True) < 0.02


@cache
def make_views(strength: str) -> SeenViews:
    """One space, content: nothing is shared. The same for every row of a strength: on a GPU they are compiled once."""
    return SeenViews({}, always=[*STRENGTHS[strength].transforms(), A.Normalize(MEAN, STD)])


class World:
    """Which sprites are trained on and which are scored: 90% and (some of) the rest, at random."""

    def __init__(self, config: SpritesConfig, device: str) -> None:
        order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(0))
        self.sprites, self.device = Sprites(config.size), device
        edge = COUNT * 9 // 10
        self.train: StoredSprites | Lazy = (
            StoredSprites(self.sprites, order[:edge], device) if device != "cpu" else Lazy(self.sprites, order[:edge])
        )
        self.held_out = order[edge : edge + config.scored].to(device)

    def factors(self) -> dict[str, Tensor]:
        """Of the images that are scored."""
        return self.sprites.factors(self.held_out)


class Lazy:
    """Some of the sprites, drawn when asked for."""

    def __init__(self, sprites: Sprites, index: Tensor) -> None:
        self._sprites, self._index = sprites, index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self._sprites[self._index[rows]]


def run_sprites(
    out: Path, config: SpritesConfig, *, seed: int = 0, only: str = "", device: str | None = None
) -> list[Row]:
    """Trains and scores what ``out`` does not hold yet; returns all rows."""
    out.mkdir(parents=True, exist_ok=True)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    table = Table(out / TABLE, KEY)
    wanted = list(rows(config, seed, only))
    if not wanted:
        raise UnweaveError(f"no row is called {only!r}; names are made of a method, weights, a rule and a strength")
    todo = [named for named in wanted if tuple(vars(named).values()) not in table.done]
    world = World(config, device) if todo else None
    for number, named in enumerate(todo, 1):
        assert world is not None
        table.add([train_row(named, world, config, out / "runs", f"{number}/{len(todo)} {named}")])
    write_report(out)
    return table.rows


def train_row(named: Named, world: World, config: SpritesConfig, runs: Path, description: str) -> Row:
    """Trains one encoder and asks its embedding for every factor."""
    method, views = METHODS[named.method], make_views(named.strength)
    torch.manual_seed(named.seed)
    encoder = config.encoder(views.spaces, method.dim, method.depth)
    objective = DisentangledLoss(method.base, spaces=views.spaces, weights=weights_rule(named.rule, method, config))
    training = config.train_config(named.seed, world.device)
    run = train(
        world.train,
        views,
        encoder,
        objective,
        training,
        runs / f"{named} {named.seed}".replace(" ", "-"),
        description=description,
    )
    if run.stopped:
        raise KeyboardInterrupt
    z = embed(encoder, lambda index: views.plain(world.sprites[index]), world.held_out)["content"]
    scores = score_row(z.float(), world.factors(), method.base.geometry)
    last = run.metrics[-1]
    return {
        **vars(named),
        **scores,
        "weight": last["content/weight"],
        "constraint": last["content/constraint"],
        "seconds": round(run.seconds, 1),
    }


def weights_rule(rule: str, method: Method, config: SpritesConfig) -> DualAscent:
    """How λ comes about in a row."""
    if rule == "fixed":
        return Fixed()
    moves = {"warmup": round(config.warmup * config.steps), "settle": round(config.settled * config.steps)}
    if rule == "paper":
        return DualAscent(rule="paper", lr=method.eta, tolerance=method.tolerance, min_variance=0.0, **moves)
    return DualAscent(rule="geometric", lr=method.growth, tolerance=method.tolerance, **moves)


@torch.no_grad()
def color_groups(strength: str, draws: int = 2000) -> list[list[int]]:
    """The palette's colours in groups that jitter can join: what even a perfect content space may tell of colour.

    Colours are joined where some jittered version of the one comes near some jittered version of the other.
    """
    jitter = [t for t in STRENGTHS[strength].transforms() if isinstance(t, (A.ColorJitter, A.RandomGrayscale))]
    generator = torch.Generator().manual_seed(0)
    clouds = []
    for color in PALETTE:
        # A sprite on black covers about a tenth of its image: contrast is about the mean of both.
        images = torch.zeros(draws, 3, 5, 5)
        images[:, :, 2, 1:3] = torch.tensor(color).view(3, 1) / 255
        for transform in jitter:
            images = transform(images, generator=generator)
        clouds.append(images[:, :, 2, 1])
    groups: list[list[int]] = []
    for i in range(len(PALETTE)):
        near = [g for g in groups if any(torch.cdist(clouds[i], clouds[j]).min() < 0.02 for j in g)]
        groups = [g for g in groups if g not in near] + [sorted([i, *itertools.chain(*near)])]
    return sorted(groups)
