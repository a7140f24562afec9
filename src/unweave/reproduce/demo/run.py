"""The demo.

sprites of 3 shapes in 8 hues ─► views that change the hue (color) or the position (spatial)
                              ─► a small network with three projectors ─► scores of each factor from each space
"""

import json
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from unweave import (
    DisentangledLoss,
    Encoder,
    GeometricGrowth,
    Independence,
    LaunchConfig,
    OptimConfig,
    SimCLR,
    SmallConvNet,
    TrainConfig,
    Views,
    load,
    score_spaces,
    train,
)
from unweave import augment as A
from unweave.describe import describe
from unweave.evaluation import SpaceScores, compute_embeddings
from unweave.provenance import provenance
from unweave.report import ReportImages, make_report, number, write_report
from unweave.reproduce.demo.report import draw_figure, one_of_each_shape
from unweave.reproduce.demo.sprites import HUES, SIZE, DemoSprites

CATEGORIES = ("shape", "color")
FACTORS = ("shape", "color", "x", "y")
STEPS = 3200
REPORTED = 1000
"""Held-out sprites that the report measures."""


def make_views() -> Views:
    """Two groups: one shifts the hue by any angle, the other moves, rotates and scales."""
    return Views(
        {
            "color": [A.ColorJitter(brightness=0.2, saturation=0.2, hue=0.5)],
            "spatial": [A.RandomZoom((0.9, 1.1)), A.RandomRotation(180), A.RandomTranslation((0.2, 0.2))],
        },
        ungrouped=[A.Normalize((0.1,) * 3, (0.25,) * 3)],
    )


def make_encoder(views: Views) -> Encoder:
    """Spaces as small as what they encode: three shapes, a circle of hues, position and size."""
    dims = {"content": 2, "color": 5, "spatial": 6}
    return Encoder(SmallConvNet(SIZE, pooled=True), views.spaces, dim=dims, hidden=128)


def make_objective(views: Views, steps: int) -> DisentangledLoss:
    """λ grows after content has been learned: earlier growth would collapse the content space.

    The independence term removes shape from the style spaces, which invariance alone leaves in the spatial space.
    """
    warmup = steps // 4
    tolerance = {"content": 0.001, "color": 0.005, "spatial": 0.005}
    return DisentangledLoss(
        SimCLR(temperature=0.3, joint_temperature=0.2),
        spaces=views.spaces,
        lambda_rule=GeometricGrowth(rate=0.0017, tolerance=tolerance, warmup=warmup),
        content_pairs="all",
        independence=Independence(weight=10.0, start=warmup, ramp=warmup),
    )


def run_demo(out: Path, *, seed: int = 0, quick: bool = False) -> SpaceScores:
    """Trains, scores and reports; writes everything to ``out``."""
    started = time.perf_counter()
    steps = 30 if quick else STEPS
    views = make_views()
    torch.manual_seed(seed)
    encoder = make_encoder(views)
    objective = make_objective(views, steps)
    config = TrainConfig(
        steps=steps,
        batch_size=128,
        seed=seed,
        log_every=10 if quick else 40,
        checkpoint_every=400,
        optim=OptimConfig(lr=1.5e-3, warmup=50 / STEPS),
        launch=LaunchConfig(accelerator="cpu", precision="32-true"),  # the same on every CPU
    )
    images, held_out = DemoSprites(100_000, seed=1), DemoSprites(400 if quick else 4000, seed=2)
    run = train(images, views, encoder, objective, config, out, description="unweave demo")
    if run.stopped:
        raise KeyboardInterrupt  # stopped by SIGTERM: an unfinished run is not scored

    z = compute_embeddings(encoder, lambda index: views.prepare(held_out[index]), torch.arange(len(held_out)))
    factors = {name: held_out.factors[name] for name in FACTORS}
    scores = score_spaces(z, factors, categories=CATEGORIES, normalize=objective.base.normalize, seed=seed)
    pixels = held_out[torch.arange(min(REPORTED, len(held_out)))]
    seen = ReportImages(pixels, pixels)
    report = make_report(load(out), views, seen, metrics=run.metrics, queries=one_of_each_shape(held_out))
    write_report(out, report, provenance=provenance(), scores=scores)
    draw_figure(out / "figure.png", scores, views, held_out, z)
    seconds = time.perf_counter() - started
    settings = {
        "images": {"training": len(images), "held out": len(held_out), "size": SIZE, "hues": HUES},
        "views": describe(views),
        "encoder": describe(encoder),
        "objective": describe(objective),
        "training": describe(config),
    }
    result = {**scores.as_dict(), "seconds": round(seconds, 1), "seed": seed, "settings": settings, **provenance()}
    (out / "spaces.json").write_text(json.dumps(result, indent=1) + "\n")
    console = Console()
    print_table(console, scores)
    console.print(report.verdict)
    console.print(f"{seconds:.0f} seconds. Open {out / 'report.html'}")
    return scores


def print_table(console: Console, scores: SpaceScores) -> None:
    """Spaces × factors, with chance."""
    shown = Table(title="how well each factor is predicted (accuracy of shape and color, r² of x and y)")
    for column in ("space", *scores.factors, "variance", "effective rank"):
        shown.add_column(column, justify="left" if column == "space" else "right")
    for space in scores.spaces:
        cells = [number(scores.scores[space][factor]) for factor in scores.factors]
        shown.add_row(space, *cells, f"{scores.variance[space]:.2f}", f"{scores.effective_rank[space]:.1f}")
    shown.add_section()
    shown.add_row("chance", *(f"{scores.chance[factor]:.2f}" for factor in scores.factors), "", "", style="dim")
    console.print(shown)
