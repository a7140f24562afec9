"""``unweave reproduce sprites --part spaces``: content and five style spaces at once, which the paper does not show.

    sprites ─► pairs that share shape and one of color, scale, orientation, x, y ─► content and five style spaces
            ─► what every space tells of every factor

The augmentations can meet the theorem's assumptions: each covers its factor's whole range and leaves the others alone.
``latents`` draws the factor anew and renders the sprite again (perfect interventions); ``pixels`` finds the sprite in
the image and turns, scales, moves and recolours it about its own centre.

Legend: n images, M groups.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave import augment as A
from unweave.augment._resample import warp
from unweave.constants import constant
from unweave.data.sprites import COUNT, PALETTE, SIZES, Sprites
from unweave.errors import UnweaveError
from unweave.evaluation import embed
from unweave.evaluation.dci import dci
from unweave.experiments.sprite_training import SpriteTraining
from unweave.experiments.sprite_views import MEAN, STD
from unweave.experiments.sprites_report import SPACES as FILE
from unweave.experiments.sprites_report import SPACES_KEY, write_report
from unweave.experiments.sprites_scores import CATEGORIES, half_score, scale_across_shapes, width_score
from unweave.experiments.table import Row, Table
from unweave.objectives import (
    BarlowTwins,
    DisentangledLoss,
    DualAscent,
    SimCLR,
    VICReg,
    effective_rank,
    variance,
)
from unweave.objectives._base import BaseMethod
from unweave.training import train

GROUPS = ("color", "scale", "orientation", "x", "y")
SPACES = ("content", *GROUPS)
COLUMNS = ("shape", *GROUPS)
Mode = Literal["latents", "pixels"]


class SpriteViews:
    """Pairs of views of sprites given by their factors (n, 6), in the order of ``COLUMNS``.

    Stands where ``Views`` does in training: the l-th pair of the global batch shares group l mod (M + 1).
    """

    spaces = SPACES

    def __init__(self, size: int, mode: Mode) -> None:
        self.mode, self._sprites = mode, Sprites(size)
        self._normalize = A.Normalize(MEAN, STD)

    def __call__(
        self,
        factors: Tensor,
        *,
        generator: torch.Generator | None = None,
        start: int = 0,
        total: int | None = None,
    ) -> A.Pair:
        """Two views of each sprite."""
        n = len(factors)
        total = start + n if total is None else total
        source = factors.device if generator is None else generator.device
        u = torch.rand(total, 2, len(GROUPS), generator=generator, device=source)[start : start + n].to(factors.device)
        shared = torch.arange(start, start + n) % len(SPACES)
        kinds = torch.arange(start, start + n, device=u.device) % len(SPACES)
        same = kinds[:, None] == torch.arange(1, len(SPACES), device=u.device)
        first, second = u[:, 0], torch.where(same, u[:, 0], u[:, 1])
        return A.Pair(self._view(factors, first), self._view(factors, second), shared)

    def plain(self, factors: Tensor) -> Tensor:
        """The sprites as they are."""
        return self._ready(self.render(factors))

    def render(self, factors: Tensor) -> Tensor:
        """uint8 images; colour and shape are whole numbers."""
        named = dict(zip(COLUMNS, factors.unbind(1), strict=True))
        return self._sprites.render({**named, "shape": named["shape"].long(), "color": named["color"].long()})

    def _view(self, factors: Tensor, u: Tensor) -> Tensor:
        if self.mode == "latents":
            return self._ready(self.render(torch.cat([factors[:, :1], draw_factors(u)], 1)))
        return self._ready(about_the_sprite(self.render(factors).float() / 255, u))

    def _ready(self, images: Tensor) -> Tensor:
        images = images.float() / 255 if images.dtype == torch.uint8 else images
        on = {"on": torch.ones(len(images), dtype=torch.bool, device=images.device)}
        return self._normalize.apply(images, on)

    def __repr__(self) -> str:
        return f"SpriteViews(size={self._sprites.size}, mode={self.mode!r})"


def draw_factors(u: Tensor) -> Tensor:
    """Uniform numbers (n, 5) to factors in the order of ``GROUPS``, each over all its range, between its steps too."""
    color = (u[:, 0] * len(PALETTE)).floor().clamp(max=len(PALETTE) - 1)
    scale, turn, x, y = u[:, 1] * 5, u[:, 2] * 39, u[:, 3] * 31, u[:, 4] * 31
    return torch.stack([color, scale, turn, x, y], 1)


NARROWEST, WIDEST = 7.0, 20.5
"""Square roots of areas, in pixels of 64, between which a sprite's is set: the smallest heart has 7.4, the largest
square 20.
"""


def about_the_sprite(images: Tensor, u: Tensor) -> Tensor:
    """Images (n, 3, s, s) whose sprite is turned and scaled about its own centre, moved and painted in another colour.

    Place, size and colour are set, not changed: wherever the sprite was, x and y become what ``u`` says. Its edges
    are as hard as those of the images given, which will be scored.
    """
    size = images.shape[-1]
    mask = (images.amax(1) > 0.05).float()
    place = torch.arange(size, device=images.device) - (size - 1) / 2
    area = mask.sum((1, 2)).clamp(min=1)
    center_x, center_y = (mask.sum(1) * place).sum(1) / area, (mask.sum(2) * place).sum(1) / area
    zoom = (size / 64) * (NARROWEST + (WIDEST - NARROWEST) * u[:, 1]) / area.sqrt()
    angle = u[:, 2] * (2 * math.pi)
    to_x, to_y = ((value - 0.5) * (size / 2) for value in (u[:, 3], u[:, 4]))
    cos, sin = angle.cos() / zoom, angle.sin() / zoom
    zero, one = torch.zeros_like(cos), torch.ones_like(cos)
    # From a pixel of the view: back from its place, back from turn and size, to where the sprite was.
    matrix = torch.stack(
        [
            torch.stack([cos, -sin, center_x - cos * to_x + sin * to_y], 1),
            torch.stack([sin, cos, center_y - sin * to_x - cos * to_y], 1),
            torch.stack([zero, zero, one], 1),
        ],
        1,
    )
    # Jitter turns hue but leaves saturation and value, which tell the palette's colours apart: paint instead.
    brightest = images.amax((1, 2, 3), keepdim=True).clamp(min=1e-6)
    light = (warp((images / brightest).amax(1, keepdim=True), matrix, "bilinear") > 0.5).float()
    palette = constant(PALETTE, images.device) / 255
    return light * palette[draw_factors(u)[:, 0].long()][:, :, None, None]


class SpriteFactors:
    """Sprites by their factors, (n, 6) float: what ``SpriteViews`` renders."""

    def __init__(self, index: Tensor, device: str) -> None:
        named = Sprites(8).factors(index)
        self._rows = torch.stack([named[name].float() for name in COLUMNS], 1).to(device)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self._rows[rows]


INDEPENDENCE = {"color": 60.0, "scale": 60.0, "orientation": 5.0, "x": 60.0, "y": 60.0}
"""Of every style space from content: a space that holds the sprite's area would tell shape as well as scale. But a
square's turn is one of 90 degrees, a heart's one of 360: angles spread alike for all shapes are not the heart's own. On
seeds 101 and 102 a heart's orientation was told to 0.81 and 0.77 at 10, to 0.88 and 0.84 at 5; at 60, before
the scale space had ends, to 0.58 on seed 101.
"""


@dataclass(frozen=True)
class Recipe:
    """A base method and what goes with it."""

    base: BaseMethod
    dims: dict[str, int]
    weights: DualAscent
    independence: Mapping[str, float] = field(default_factory=lambda: INDEPENDENCE)
    content_pairs: Literal["own", "all"] = "all"
    ends: tuple[str, ...] = ()
    """The spaces with ends."""
    lr: float = 1e-3


ABLATIONS = ("none", "per-space entropy", "no content entropy", "no independence", "no ends", "fixed weights", "plain")


@dataclass(frozen=True, kw_only=True)
class SpacesConfig(SpriteTraining):
    """How every row is trained and scored."""

    methods: tuple[str, ...] = ("simclr", "vicreg", "barlow_twins")
    ablations: tuple[str, ...] = ABLATIONS
    ablated: str = "simclr"
    """The base method the ablations are of."""
    mode: Mode = "latents"
    temperature: float = 0.4
    """SimCLR's: wider than .15, which winds a line about its sphere so that a linear probe loses it."""
    hidden: int = 512
    batch: int = 512
    steps: int = 9000
    scored: int = 20_000
    forest: int = 4000
    """Images that DCI's forests see."""

    def __post_init__(self) -> None:
        if unknown := set(self.methods) - set(recipes(self)):
            raise UnweaveError(f"there are no methods {sorted(unknown)}; there are {', '.join(recipes(self))}")
        if self.mode not in ("latents", "pixels"):
            raise UnweaveError(f"mode is 'latents' or 'pixels', not {self.mode!r}")


def recipes(config: SpacesConfig) -> dict[str, Recipe]:
    """Our settings for each base method.

    At λ = 1 a space whose factor the network cannot see yet shrinks to a point, and may stay there: λ starts below.
    A line on a sphere of few dimensions winds about it, and a linear probe loses x: places and angles have many.
    A joint hinge or covariance is a mean over all spaces, so that VICReg's λ is to be smaller too. Barlow
    Twins' λ begins at a tenth of its own, and its correlations, of 53 dimensions where it is used to thousands, count
    four times as much: at .0051 the color space told scale (.33), on the features of a trained network.
    No pair shares its scale but not its shape. On SimCLR's sphere scale closed to a ring, and a heart's was one step
    behind a square's (seed 100: .78 of all scales told, 1.00 of each shape's by itself); with ends, 1.00.
    """
    small = {"content": 4, "color": 9, "scale": 8, "orientation": 16, "x": 8, "y": 8}
    wide = {"content": 3, "color": 8, "scale": 16, "orientation": 32, "x": 32, "y": 32}

    def rule(start: float, tolerance: float) -> DualAscent:
        moves = {"warmup": config.steps * 4 // 10, "settle": config.steps * 8 // 10}
        return DualAscent(rule="geometric", lr=6 / config.steps, tolerance=tolerance, start=start, **moves)

    simclr = SimCLR(temperature=config.temperature, joint_temperature=config.temperature / len(SPACES))
    return {
        "simclr": Recipe(simclr, wide, rule(0.5, 0.003), ends=("scale",), lr=1.4e-3),
        "vicreg": Recipe(VICReg(), small, rule(1.0, 0.01), lr=7e-4),
        "barlow_twins": Recipe(BarlowTwins(off_diagonal_weight=0.02, power=1), small, rule(0.1, 0.001)),
    }


QUICK = SpacesConfig(
    # To see that it runs: color, x and y come apart (.97 and more); at 32 pixels this network does not find the shapes.
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


def make_objective(recipe: Recipe, ablation: str) -> DisentangledLoss:
    """Ours, or less one part; ``plain`` is the paper's own: λ from 1, content's invariance on its own pairs, one
    temperature, independence not asked for and no space with ends (``spaces_with_ends``).
    """
    base, weights, pairs = recipe.base, recipe.weights, recipe.content_pairs
    independence = recipe.independence if ablation not in ("no independence", "plain") else 0.0
    if ablation == "fixed weights":
        weights = replace(weights, rule="fixed", start=None)  # independence begins when it does in the others
    if ablation == "plain":
        pairs, weights = "own", replace(weights, start=None)
        if isinstance(base, SimCLR):
            base = SimCLR(temperature=0.15)
    return DisentangledLoss(
        base,
        spaces=SPACES,
        weights=weights,
        content_pairs=pairs,
        entropies={"per-space entropy": "each", "no content entropy": "joint"}.get(ablation, "both"),  # type: ignore[arg-type]
        independence=independence,
    )


def spaces_with_ends(recipe: Recipe, ablation: str) -> tuple[str, ...]:
    """The recipe's, but for the ablations that do without."""
    return () if ablation in ("no ends", "plain") else recipe.ends


def wanted(config: SpacesConfig, seed: int, only: str) -> Iterator[tuple[str, str, str, int]]:
    """The rows to be made."""
    for method in config.methods:
        for ablation in config.ablations if method == config.ablated else config.ablations[:1]:
            if set(only.split()) <= {method, *ablation.split(), config.mode}:
                yield method, ablation, config.mode, seed


def run_spaces(
    out: Path, config: SpacesConfig, *, seed: int = 0, only: str = "", device: str | None = None
) -> list[Row]:
    """Trains and scores what ``out`` does not hold yet; returns all rows of ``spaces.json``."""
    out.mkdir(parents=True, exist_ok=True)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    table = Table(out / FILE, SPACES_KEY)
    todo = [name for name in wanted(config, seed, only) if name not in table.done]
    order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(0))
    train_index, held_out = order[: COUNT * 9 // 10], order[COUNT * 9 // 10 :][: config.scored]
    with table.filled():
        for number, (method, ablation, _, _) in enumerate(todo, 1):
            words = f"{number}/{len(todo)} {method}, {ablation}"
            table.add([train_spaces(method, ablation, config, seed, train_index, held_out, device, out, words)])
    write_report(out)
    return table.rows


def train_spaces(
    method: str,
    ablation: str,
    config: SpacesConfig,
    seed: int,
    train_index: Tensor,
    held_out: Tensor,
    device: str,
    out: Path,
    description: str,
) -> Row:
    """One encoder with six spaces, and what each tells."""
    recipe, views = recipes(config)[method], SpriteViews(config.size, config.mode)
    torch.manual_seed(seed)
    encoder = config.encoder(SPACES, recipe.dims, ends=spaces_with_ends(recipe, ablation))
    training = config.train_config(seed, device, recipe.lr)
    folder = out / "runs" / f"{method} {ablation} {config.mode} {seed}".replace(" ", "-")
    source = SpriteFactors(train_index, device)
    run = train(source, views, encoder, make_objective(recipe, ablation), training, folder, description=description)  # type: ignore[arg-type]
    if run.stopped:
        raise KeyboardInterrupt
    test = SpriteFactors(held_out, device)
    z = embed(encoder, lambda rows: views.plain(test[rows]), torch.arange(len(test), device=device))
    factors = Sprites(8).factors(held_out.to(device))
    return {
        "method": method,
        "ablation": ablation,
        "mode": config.mode,
        "seed": seed,
        **score_spaces_of_sprites({name: z[name].float() for name in SPACES}, factors, recipe.base, config.forest),
        "seconds_training": round(run.seconds, 1),
    }


@torch.no_grad()
def score_spaces_of_sprites(
    z: dict[str, Tensor], factors: dict[str, Tensor], base: BaseMethod, forest: int
) -> dict[str, Any]:
    """Spaces × factors as in the demo, by plain probes; orientation on hearts alone, by sine and cosine.

    Every space is probed as the base method's loss sees it; ``raw`` has the scores of the embeddings as they come.
    """
    raw = {space: {name: half_score(features, factors, name) for name in COLUMNS} for space, features in z.items()}
    alive = {space: base.geometry(features) for space, features in z.items()}
    z = {space: as_seen(features, base) for space, features in z.items()}
    scores = {space: {name: half_score(features, factors, name) for name in COLUMNS} for space, features in z.items()}
    chance = {name: 1 / CATEGORIES[name] if name in CATEGORIES else 0.0 for name in COLUMNS}
    found = dci(
        {s: f[:forest] for s, f in z.items()}, {name: factors[name][:forest] // _coarse(name) for name in COLUMNS}
    )
    return {
        "spaces": list(z),
        "factors": list(COLUMNS),
        "scores": scores,
        "raw": raw,
        "chance": chance,
        "scale_across_shapes": scale_across_shapes(z["scale"], factors),
        "width": width_score(z["scale"], factors),
        "variance": {s: float(variance(f)) for s, f in alive.items()},
        "effective_rank": {s: float(effective_rank(f)) for s, f in alive.items()},
        "dci": {
            "disentanglement": found.disentanglement,
            "completeness": found.completeness,
            "informativeness": found.informativeness,
        },
        "dci_importance": found.importance,
    }


def as_seen(z: Tensor, base: BaseMethod) -> Tensor:
    """z (n, d) as the loss sees it: SimCLR's at unit length, Barlow Twins' standardised, VICReg's as it is."""
    return F.normalize(z, dim=1) if isinstance(base, SimCLR) else base.geometry(z)


def _coarse(name: str) -> int:
    """Places and angles in eight classes each, so that a forest of some thousand images can learn them."""
    return 1 if name in CATEGORIES else SIZES[name] // 8
