"""``unweave reproduce sprites``: content alone, whatever the strength of augmentation (paper, section 5.2).

    ColorDSprites ─► two views, weak, medium or strong ─► ResNet-18 and projector ─► SimCLR, VICReg or Barlow Twins
                  with its standard λ, or λ adapted ─► what z tells of shape (content) and of every style factor

Legend: n images, d dimensions.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

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
    steps left, weak views' color was .33, with 30% .23. SimCLR's, so early, lost shape on one seed (.88).
    """
    near: BaseMethod | None = None
    """What ``geometric`` takes in the base method's place, where its own pull, a square's, fades near invariance."""
    near_top: float | None = None
    """The largest λ with it, where it is another."""

    def for_rule(self, rule: str) -> "Method":
        """With the base method, and the top, that a row of the rule has."""
        if rule != "geometric" or self.near is None:
            return self
        return replace(self, base=self.near, top=self.top if self.near_top is None else self.near_top)


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
        near=BarlowTwins(power=1),
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
    steps=3000,
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
        if rule == "squared" and config.methods[method].near is None:
            continue  # geometric is
        if set(only.split()) <= set(str(named).split()):
            yield named


class WholeViews(A.Views):
    """Views in which the whole sprite can be seen: those that would cut it are drawn again.

    In a view that cuts its sprite, or has lost it, the shape cannot always be told, and pairs that do not share their
    content cannot be invariant. Each view is drawn ``tries`` times, and the first that shows all of the sprite is
    taken; if none does, the one that shows the most. Where the sprite comes to lie follows from the parameters alone.
    """

    tries = 8

    def draw_for(
        self, images: Tensor, generator: torch.Generator | None, start: int, total: int
    ) -> tuple[Tensor, Tensor]:
        """Several times, and for each view the draw that shows the most."""
        n, size = len(images), images.shape[-1]
        draws = [super(WholeViews, self).draw_for(images, generator, start, total) for _ in range(self.tries)]
        u, shared = torch.stack([u for u, _ in draws], 1), draws[0][1]  # (2, tries, n, K)
        place, radius = find_sprites(images)
        sides = self.fast_parameters(u.flatten(1, 2), u.new_zeros(()), (size, size))
        chosen = []
        for side, params in zip(u, sides, strict=True):
            matrix = self.moves(params).unflatten(0, (self.tries, n))
            room = (size - 1) / 2 - reach(matrix, place, radius)
            best = torch.where(room >= 0, 1e6 - torch.arange(self.tries, device=u.device)[:, None], room).argmax(0)
            chosen.append(side.gather(0, best[None, :, None].expand(1, n, side.shape[2])).squeeze(0))
        return torch.stack(chosen), shared

    def moves(self, params: list[A.Params]) -> Tensor:
        """All that is done to a view's pixels, one matrix (…, 3, 3) from its pixels to the image's."""
        steps = [(step.a, p) for step, p in zip(self._steps, params, strict=True)]
        matrices = [t.matrix_where_on(p) for t, p in steps if isinstance(t, A.AffineTransform)]
        return functools.reduce(torch.matmul, matrices)


def find_sprites(images: Tensor) -> tuple[Tensor, Tensor]:
    """Where in the image (n, 2), in pixels from its centre, x first, and how large a circle (n,) holds the sprite."""
    size = images.shape[-1]
    mask = images.amax(1) > (0.05 if images.is_floating_point() else 12)
    line = torch.arange(size, device=images.device) - (size - 1) / 2
    span = []
    for seen in (mask.any(1), mask.any(2)):
        low, high = torch.where(seen, line, size).amin(1), torch.where(seen, line, -size).amax(1)
        span.append((low + high) / 2)
    place = torch.stack(span, 1)
    squares = (line - place[:, :1]).square()[:, None] + (line - place[:, 1:]).square()[:, :, None]
    return place, torch.where(mask, squares, 0).amax((1, 2)).sqrt() + 0.5


def reach(matrix: Tensor, place: Tensor, radius: Tensor) -> Tensor:
    """How far from the centre, along x or y, a circle of the image reaches in a view of it: (…, n).

    ``matrix`` (…, n, 3, 3) turns, enlarges and shifts, from the view's pixels to the image's.
    """
    cos, sin = matrix[..., 0, 0], matrix[..., 1, 0]
    x, y = (place - matrix[..., :2, 2]).unbind(-1)
    shrink = cos.square() + sin.square()
    view_x, view_y = (cos * x + sin * y) / shrink, (cos * y - sin * x) / shrink
    return torch.maximum(view_x.abs(), view_y.abs()) + radius / shrink.sqrt()


@cache
def make_views(strength: str, kind: str) -> A.Views:
    """One space, content: nothing is shared. The same for every row of a strength: on a GPU they are compiled once."""
    views = {"whole": WholeViews, "release": A.Views}[kind]
    return views({}, always=[*STRENGTHS[strength].transforms(), A.Normalize(MEAN, STD)])


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
    method, views = config.methods[named.method].for_rule(named.rule), make_views(named.strength, named.views)
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


@cache
@torch.no_grad()
def cut_share(strength: str, kind: str = "release", images: int = 2000) -> float:
    """The share of views whose sprite is cut by the edge, or is not there at all."""
    index = torch.randint(COUNT, (images,), generator=torch.Generator().manual_seed(0))
    views = make_views(strength, kind)(Sprites()[index], generator=torch.Generator().manual_seed(0)).a
    lit = (views - views.amin((2, 3), keepdim=True)).amax(1) > 0.5
    edge = lit[:, [0, -1]].flatten(1).any(1) | lit[:, :, [0, -1]].flatten(1).any(1)
    return (edge | ~lit.flatten(1).any(1)).float().mean().item()


@cache
@torch.no_grad()
def color_groups(strength: str, draws: int = 2000) -> tuple[tuple[int, ...], ...]:
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
    return tuple(sorted(map(tuple, groups)))
