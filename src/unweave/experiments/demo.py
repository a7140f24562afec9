"""``unweave demo``: content, color and spatial spaces of coloured sprites, on two CPU cores in a few minutes.

    sprites of 3 shapes in 8 hues ─► views that turn the hue (color) or move the sprite (spatial)
                                  ─► a small network with three projectors ─► what each space knows of each factor

Measured on 2 cores of a server (see README): about 3 minutes; shape 1.00 from content, hue 1.00 from color, place 0.97
from spatial, and next to nothing of one in the others.
"""

import colorsys
import json
import math
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from unweave import augment as A
from unweave.data.sprites import SHAPES, Factors, Sprites
from unweave.evaluation import SpaceScores, embed, score_spaces
from unweave.experiments import report
from unweave.experiments.provenance import provenance
from unweave.models import Encoder, SmallConvNet
from unweave.objectives import DisentangledLoss, DualAscent, SimCLR
from unweave.training import Run, TrainConfig, train

SIZE = 32
HUES = 8
PALETTE = tuple(
    tuple(round(255 * channel) for channel in colorsys.hsv_to_rgb(hue / HUES, 0.85, 0.95)) for hue in range(HUES)
)
NORMALIZE = A.Normalize((0.1,) * 3, (0.25,) * 3)
CATEGORIES = ("shape", "color")
FACTORS = ("shape", "color", "x", "y")


class World:
    """Sprites larger than dSprites' own, anywhere in the middle of the image: n of them, drawn from a seed."""

    def __init__(self, n: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)

        def uniform(low: float, high: float) -> Tensor:
            return low + (high - low) * torch.rand(n, generator=generator)

        self.factors: Factors = {
            "shape": torch.randint(len(SHAPES), (n,), generator=generator),
            "color": torch.randint(HUES, (n,), generator=generator),
            "scale": uniform(7, 11),
            "orientation": torch.zeros(n),
            "x": uniform(6, 25),
            "y": uniform(6, 25),
        }
        self._sprites = Sprites(SIZE, palette=PALETTE)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.factors["shape"])

    def __getitem__(self, index: Tensor) -> Tensor:
        return self._sprites.render({name: value[index] for name, value in self.factors.items()})


def make_views() -> A.Views:
    """Two groups: one turns the hue right round, the other moves, turns and scales."""
    return A.Views(
        {
            "color": [A.ColorJitter(brightness=0.2, saturation=0.2, hue=0.5)],
            "spatial": [A.RandomZoom((0.8, 1.25)), A.RandomRotation(180), A.RandomTranslation((0.2, 0.2))],
        },
        always=[NORMALIZE],
    )


def run_demo(out: Path, *, seed: int = 0, quick: bool = False) -> SpaceScores:
    """Trains, scores and reports; everything is written to ``out``."""
    started = time.perf_counter()
    console = Console()
    views = make_views()
    steps = 30 if quick else 3600
    torch.manual_seed(seed)
    encoder = Encoder(
        SmallConvNet(SIZE),
        views.spaces,
        # As small as what each is to hold: three shapes, a circle of hues, place and size.
        dim={"content": 3, "color": 4, "spatial": 24},
        hidden=128,
    )
    base = SimCLR(temperature=0.15, joint_temperature=0.1)
    objective = DisentangledLoss(
        base,
        spaces=views.spaces,
        # λ waits until content has found the shapes: pressed earlier, the space collapses.
        weights=DualAscent(rule="geometric", lr=0.0015, tolerance=0.005, warmup=steps // 3),
        content_pairs="all",
    )
    config = TrainConfig(
        steps=steps,
        batch_size=128,
        lr=1.5e-3,
        seed=seed,
        log_every=10 if quick else 40,
        checkpoint_every=400,
        accelerator="cpu",
    )
    images, held_out = World(100_000, seed=1), World(400 if quick else 4000, seed=2)
    run = train(images, views, encoder, objective, config, out, description="unweave demo")
    if run.stopped:
        raise KeyboardInterrupt  # by SIGTERM: what half a run has learned is not to be scored

    z = embed(encoder, lambda index: views.plain(held_out[index]), torch.arange(len(held_out)))
    factors = {name: held_out.factors[name] for name in FACTORS}
    table = score_spaces(z, factors, categories=CATEGORIES, geometry=base.geometry, seed=seed)
    (out / "report.html").write_text(make_report(table, run, views, held_out, z))
    draw_figure(out / "figure.png", table, views, held_out, z)
    seconds = time.perf_counter() - started
    spaces = {**table.as_dict(), "seconds": round(seconds, 1), "seed": seed, **provenance()}
    (out / "spaces.json").write_text(json.dumps(spaces, indent=1) + "\n")
    print_table(console, table)
    console.print(f"{seconds:.0f} seconds. Look at {out / 'report.html'}")
    return table


def print_table(console: Console, table: SpaceScores) -> None:
    """Spaces × factors, chance beside it."""
    shown = Table(title="what each space tells (accuracy of shape and color, r² of x and y)")
    for column in ("space", *table.factors, "variance", "effective rank"):
        shown.add_column(column, justify="left" if column == "space" else "right")
    for space in table.spaces:
        scores = [report.number(table.scores[space][factor]) for factor in table.factors]
        shown.add_row(space, *scores, f"{table.variance[space]:.2f}", f"{table.effective_rank[space]:.1f}")
    shown.add_section()
    shown.add_row("chance", *(f"{table.chance[factor]:.2f}" for factor in table.factors), "", "", style="dim")
    console.print(shown)


def neighbours(z: Tensor, queries: Tensor, count: int) -> Tensor:
    """The ``count`` rows most similar to each query by cosine, the query itself first (queries, 1 + count)."""
    unit = torch.nn.functional.normalize(z, dim=1)
    similarity = unit[queries] @ unit.T
    similarity[torch.arange(len(queries)), queries] = math.inf
    return similarity.topk(count + 1, 1).indices


def make_report(table: SpaceScores, run: Run, views: A.Views, world: World, z: dict[str, Tensor]) -> str:
    """The whole of ``report.html``."""
    spaces = views.spaces
    lead = (
        "From images without labels, and two groups of augmentations, three embedding spaces were learned: "
        + ", ".join(report.tag(spaces, space) for space in spaces)
        + ". Each is to know one thing and to be blind to the rest."
    )
    panels = {
        "constraint": ("missing invariance", True),
        "weight": ("weight λ", True),
        "variance": ("variance", False),
        "effective_rank": ("effective rank", False),
    }
    about = provenance()
    made = f"{about['hardware']} · trained in {run.seconds:.0f} s · <code>{about['command']}</code> · " + ", ".join(
        f"{name} {version}" for name, version in about["versions"].items()
    )
    sections = [
        (
            "What each space tells",
            "<p>Scores of linear probes on images the training did not see: accuracy for shape and color, r² for the "
            "place x, y. <em>h</em> is the network before its projectors. A space that has collapsed would have "
            "variance 0. That spatial tells the shape as well is a leak of content that this objective leaves open: "
            "hue and place are apart, shape and place are not.</p>" + report.heat_map(table, spaces),
        ),
        (
            "Nearest neighbours",
            "<p>The first column is the query, the others its nearest images in each space: the same shape in "
            "content, the same hue in color, the same place in spatial.</p>" + _neighbour_rows(spaces, world, z),
        ),
        (
            "The pairs it learned from",
            "<p>Each image becomes a pair of views. What the two share is all that a space can keep.</p>"
            + _pair_rows(views, world),
        ),
        (
            "How it went",
            "<p>λ presses each space towards invariance, and grows until what is missing falls below the tolerance. "
            "Variance and effective rank show that none collapsed.</p>" + report.curves(run.metrics, spaces, panels),
        ),
        ("How it was made", f'<p class="quiet">{made}</p>'),
    ]
    return report.page("unweave: style, kept apart", lead, sections)


def neighbour_images(spaces: tuple[str, ...], world: World, z: dict[str, Tensor], count: int) -> dict[str, Tensor]:
    """In each space, one query of each shape and its nearest images (shapes, 1 + count, c, h, w) in [0, 1]."""
    shape = world.factors["shape"]
    queries = torch.tensor([int((shape == kind).nonzero()[3 + kind]) for kind in range(len(SHAPES))])
    return {
        space: torch.stack([world[row] for row in neighbours(z[space], queries, count)]).float() / 255
        for space in spaces
    }


def _neighbour_rows(spaces: tuple[str, ...], world: World, z: dict[str, Tensor]) -> str:
    figures = [
        report.figure(report.tag(spaces, space), report.image_grid(images))
        for space, images in neighbour_images(spaces, world, z, count=7).items()
    ]
    return f'<div class="row">{"".join(figures)}</div>'


def view_pairs(views: A.Views, world: World, columns: int = 6) -> dict[str, Tensor]:
    """For each kind of pair: images and their two views (3, columns, c, h, w) in [0, 1]."""
    kinds = len(views.spaces)
    images = world[torch.arange(columns * kinds)]
    pair = views(images, generator=torch.Generator().manual_seed(4))
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (NORMALIZE.mean, NORMALIZE.std))
    shown = {}
    for kind, space in enumerate(views.spaces):
        rows = pair.shared == kind
        shown[space] = torch.stack(
            [images[rows].float() / 255, *(view[rows] * std + mean for view in (pair.a, pair.b))]
        )
    return shown


def _pair_rows(views: A.Views, world: World) -> str:
    figures = []
    for space, images in view_pairs(views, world).items():
        shares = "no parameters: only content" if space == "content" else f"the parameters of {space}"
        caption = f"{report.tag(views.spaces, space)}: image, view a, view b; the views share {shares}"
        figures.append(report.figure(caption, report.image_grid(images)))
    return f'<div class="row">{"".join(figures)}</div>'


def draw_figure(path: Path, table: SpaceScores, views: A.Views, world: World, z: dict[str, Tensor]) -> None:
    """The same in one picture, for a README: scores, pairs and neighbours."""
    from matplotlib.figure import Figure

    spaces = views.spaces
    drawing = Figure(figsize=(13, 3.9), layout="constrained")
    grid = drawing.add_gridspec(2, len(spaces) + 1, width_ratios=[1.1, *[1] * len(spaces)])
    heat = drawing.add_subplot(grid[:, 0])
    scores = torch.tensor([[table.scores[s][f] for f in table.factors] for s in spaces])
    chance = torch.tensor([table.chance[f] for f in table.factors])
    heat.imshow(((scores - chance) / (1 - chance)).clamp(0, 1).numpy(), cmap="Blues", vmin=0, vmax=1.1, aspect="auto")
    for i in range(len(spaces)):
        for j in range(len(table.factors)):
            ink = "white" if scores[i, j] > 0.6 else "black"
            heat.text(j, i, report.number(float(scores[i, j])), ha="center", va="center", color=ink)
    labels = [f"{factor}\n{table.chance[factor]:.2f}" for factor in table.factors]
    heat.set_xticks(range(len(table.factors)), labels)
    heat.set_yticks(range(len(spaces)), spaces)
    heat.set_xlabel("the lower number is chance", fontsize=8)
    heat.set_title("what each space tells", fontsize=11)
    pairs = view_pairs(views, world)
    near = neighbour_images(spaces, world, z, count=5)
    for column, space in enumerate(spaces, start=1):
        shares = "share content alone" if space == "content" else f"share {space} too"
        for row, images, title in (
            (0, pairs[space], f"image, view a, view b: {shares}"),
            (1, near[space], f"query and nearest by {space}"),
        ):
            axis = drawing.add_subplot(grid[row, column])
            rows, columns, c, h, w = images.shape
            padded = torch.nn.functional.pad(images, (1, 1, 1, 1), value=0.4)
            shown = padded.permute(0, 3, 1, 4, 2).reshape(rows * (h + 2), columns * (w + 2), c)
            axis.imshow(shown.clamp(0, 1).numpy())
            axis.set_title(title, fontsize=10, color=report.color_of(spaces, space))
            axis.axis("off")
    drawing.savefig(path, dpi=110)
