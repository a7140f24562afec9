"""``unweave reproduce sprites``: content alone, whatever the strength of augmentation (paper, section 5.2).

    ColorDSprites ─► two views, weak, medium or strong ─► ResNet-18 and projector ─► SimCLR, VICReg or Barlow Twins
                  with its standard λ, or λ adapted ─► what z tells of shape (content) and of every style factor

Legend: n images, d dimensions.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from unweave.data.sprites import COUNT, Sprites, StoredSprites
from unweave.errors import UnweaveError
from unweave.evaluation import embed
from unweave.experiments.sprite_training import SpriteTraining
from unweave.experiments.sprite_views import STRENGTHS, make_views
from unweave.experiments.sprites_report import KEY, TABLE, write_report
from unweave.experiments.sprites_scores import score_row
from unweave.experiments.table import Row, Table
from unweave.objectives import BarlowTwins, DisentangledLoss, DualAscent, Fixed, SimCLR, VICReg
from unweave.objectives._base import BaseMethod
from unweave.training import train


@dataclass(frozen=True)
class Near:
    """What ``geometric`` takes in a base method's place, where its own pull, a square's, fades near invariance.

    All but ``strengths``, in which it does, are as in ``Method``.
    """

    base: BaseMethod
    top: float
    tolerance: float = 1e-6
    grows: tuple[float, float] = (0.3, 0.8)
    strengths: tuple[str, ...] = tuple(STRENGTHS)


@dataclass(frozen=True)
class Method:
    """A base method, its projector's sizes and how λ is adapted under each rule."""

    base: BaseMethod
    dim: int
    depth: int
    tolerance: float
    """ε of both rules."""
    eta: float
    """η of the paper's rule."""
    start: float
    """The first λ of ``geometric`` and ``raised``. Below a method's own, more is learned before what is not invariant
    is let go: at its own Barlow Twins found no shape in weak views (.39; raised to it, 1.00).
    """
    top: float
    """The largest λ the collapse-safe rule can come to."""
    floor: float
    """It gives way where the variance falls below this."""
    lr: float = 2e-3
    """VICReg's is lower: at 2e-3 its rank falls from 50 to 3 within the first 50 steps, and it learns hardly at all."""
    grows: tuple[float, float] = (0.3, 0.8)
    """The shares of the steps between which an adapted λ moves. VICReg's is at its top for longer: with 20% of the
    steps left, weak views' color was .33, with 30% .23, squared. SimCLR's, so early, lost shape on one seed (.88).
    """
    near: Near | None = None
    """What is otherwise under ``geometric``."""

    def for_row(self, rule: str, strength: str) -> "Method":
        """As a row takes it."""
        near = self.near
        if near is None or rule != "geometric" or strength not in near.strengths:
            return self
        return replace(self, base=near.base, top=near.top, tolerance=near.tolerance, grows=near.grows, near=None)


METHODS = {
    "simclr": Method(SimCLR(0.25), dim=256, depth=2, tolerance=1e-6, eta=1.0, start=1.0, top=1000.0, floor=0.3),
    "vicreg": Method(
        VICReg(),
        dim=512,
        depth=3,
        tolerance=1e-6,
        eta=100.0,
        start=4.0,
        top=40_000.0,
        floor=0.01,
        lr=7e-4,
        grows=(0.2, 0.7),
        # In weak views, where colors are three groups, the square loses shape or keeps color on some seeds, and a power
        # of 1.5 loses shape on one if λ grows as early. In medium and strong ones, where they are one group, a power of
        # 1.5 finds no shape (.33).
        near=Near(VICReg(power=1.5), top=8000.0, tolerance=1e-7, grows=(0.35, 0.8), strengths=("weak",)),
    ),
    "barlow_twins": Method(
        BarlowTwins(),
        dim=512,
        depth=3,
        tolerance=1e-6,
        eta=100.0,
        start=0.3,
        top=3000.0,
        floor=0.3,
        near=Near(BarlowTwins(power=1), top=3000.0),
    ),
}
RANK = 1.6
"""And where the effective rank does: three shapes span two directions."""
RAISED = (0.3, 0.6)
"""The shares of the steps between which a standard λ is raised to what it is."""
KINDS = (
    ("standard", "raised", "whole"),
    ("adapted", "geometric", "whole"),
    ("adapted", "paper", "whole"),
    ("adapted", "geometric", "release"),
    ("standard", "fixed", "whole"),
    ("adapted", "squared", "whole"),
)
"""Weights, rule, and whether views show the whole sprite or are as the authors' release draws them.

A standard λ is ``fixed`` from the first step on, or ``raised`` to what it is from where the collapse-safe rule begins,
which is ``geometric``, or ``squared`` where it keeps to the method's own invariance.
"""


@dataclass(frozen=True, kw_only=True)
class SpritesConfig(SpriteTraining):
    """How every row is trained and scored."""

    methods: Mapping[str, Method] = field(default_factory=lambda: METHODS)
    kinds: tuple[tuple[str, str, str], ...] = KINDS
    strengths: tuple[str, ...] = tuple(STRENGTHS)
    batch: int = 256
    steps: int = 10_000
    scored: int = COUNT // 10
    """Images held out of training that are embedded; half of them fit the probes, half are scored."""

    def __post_init__(self) -> None:
        if unknown := set(self.strengths) - set(STRENGTHS):
            raise UnweaveError(f"there are no strengths {sorted(unknown)}; there are {', '.join(STRENGTHS)}")
        if not 100 <= self.scored <= COUNT // 10:
            raise UnweaveError(f"between 100 and {COUNT // 10} images can be scored, not {self.scored}")


QUICK = SpritesConfig(
    # With the large network's settings the small one finds no shape: .36, with these .82.
    methods={"simclr": replace(METHODS["simclr"], base=SimCLR(0.15), grows=(0.3, 0.9))},
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
class Named:
    """What tells one row from the others."""

    method: str
    weights: str
    rule: str
    strength: str
    views: str
    seed: int

    def __str__(self) -> str:
        return f"{self.method} {self.weights} {self.rule} {self.strength} {self.views}"


def rows(config: SpritesConfig, seed: int, only: str) -> Iterator[Named]:
    """The rows to be made: those whose name holds every word of ``only``."""
    for method, (weights, rule, views), strength in itertools.product(config.methods, config.kinds, config.strengths):
        named = Named(method, weights, rule, strength, views, seed)
        if rule == "fixed" and config.methods[method].start == config.methods[method].base.weight:
            continue  # it is raised from what it is
        if rule == "squared" and config.methods[method].for_row("geometric", strength) == config.methods[method]:
            continue  # geometric is
        if set(only.split()) <= set(str(named).split()):
            yield named


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
        raise UnweaveError(
            f"no row is called {only!r}; names are made of a method, weights, a rule, a strength and views"
        )
    todo = [named for named in wanted if tuple(vars(named).values()) not in table.done]
    world = World(config, device) if todo else None
    with table.filled():
        for number, named in enumerate(todo, 1):
            assert world is not None
            table.add([train_row(named, world, config, out / "runs", f"{number}/{len(todo)} {named}")])
    write_report(out)
    return table.rows


def train_row(named: Named, world: World, config: SpritesConfig, runs: Path, description: str) -> Row:
    """Trains one encoder and asks its embedding for every factor."""
    method = config.methods[named.method].for_row(named.rule, named.strength)
    views = make_views(named.strength, named.views)
    torch.manual_seed(named.seed)
    encoder = config.encoder(views.spaces, method.dim, method.depth)
    rule = weights_rule(named.rule, method, config)
    objective = DisentangledLoss(method.base, spaces=views.spaces, weights=rule)
    training = config.train_config(named.seed, world.device, method.lr)
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
    first, last = (round(share * config.steps) for share in (RAISED if rule == "raised" else method.grows))
    if rule == "raised":
        own = method.base.weight
        growth = math.log(own / method.start) / max(1, last - first)
        return DualAscent(
            rule="geometric", lr=growth, start=method.start, maximum=own, tolerance=0.0, min_variance=0.0, warmup=first
        )
    moving = DualAscent(rule="paper", lr=method.eta, tolerance=method.tolerance, warmup=first, settle=last)
    if rule == "paper":
        return replace(moving, min_variance=0.0)
    growth = math.log(method.top / method.start) / max(1, last - first)
    guard = replace(moving, min_variance=method.floor, min_rank=RANK)
    return replace(guard, rule="geometric", lr=growth, start=method.start, maximum=method.top)
