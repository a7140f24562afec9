"""The numerical experiment.

    x = f(c, s) and x̃ = f(c, s̃)  ─►  encoder  ─►  SimCLR with distances, λ fixed at 1 or adapted  ─►  r² of c and s

With λ = 1, dimensions that content does not need encode style; with λ increased until the two views agree, they do not.
λ is adapted by the same rule in every setting.
All runs of one setting, whatever their seed, size or λ, train together as one stack.

Legend: r runs, n samples, d dimensions.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from unweave import DualAscent, SimCLR, UnweaveError
from unweave.data import LatentModel, StackedLatents
from unweave.evaluation import KernelRidge, RidgeProbe
from unweave.reproduce.numerical.report import write_report
from unweave.reproduce.results import ResultsTable, Row
from unweave.reproduce.stacked import StackedMLP, train_stacked

SETTINGS = {
    "independent": LatentModel(),
    "statistical": LatentModel(statistical=True),
    "causal": LatentModel(causal=True),
    "both": LatentModel(statistical=True, causal=True),
}
SIZES = (3, 5, 8, 10, 15, 20, 30, 50)
WEIGHTS = ("fixed", "adapted")
KEY = ("setting", "dim_z", "weights", "seed")
CHUNK = 8
"""Regressions solved at a time."""


@dataclass(frozen=True, kw_only=True)
class NumericalConfig:
    """How every run is trained and scored."""

    settings: tuple[str, ...] = tuple(SETTINGS)
    sizes: tuple[int, ...] = SIZES
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    hidden: tuple[int, ...] = (100, 500, 500, 500, 500, 100)
    """Widths of the encoder, as in von Kügelgen et al."""
    batch: int = 512
    steps: int = 12_000
    lr: float = 2e-3
    power: float = 2.0
    """Exponent of the distance of two views in the invariance of adapted runs."""
    tolerance: float = 1e-4
    """The accepted squared distance of two views, relative to that of different samples."""
    factor: float = 1000.0
    """The largest change of λ, as a factor."""
    window: tuple[float, float] = (0.2, 0.8)
    """The fractions of the run between which λ changes."""
    fit: int = 5 * 4096
    test: int = 10 * 4096
    landmarks: int = 2048

    def __post_init__(self) -> None:
        if unknown := set(self.settings) - set(SETTINGS):
            raise UnweaveError(f"there is no setting {sorted(unknown)}; there are {', '.join(SETTINGS)}")
        if not self.sizes or min(self.sizes) < 1:
            raise UnweaveError(f"`sizes` must be at least 1: {self.sizes}")
        if not self.seeds:
            raise UnweaveError("`seeds` is empty")


QUICK = NumericalConfig(
    settings=("independent",),
    sizes=(5, 15, 50),
    seeds=(0, 1),
    hidden=(128, 128),
    batch=512,
    steps=2200,
    lr=3e-3,
    fit=2048,
    test=2048,
    landmarks=512,
)


def run_numerical(out: Path, config: NumericalConfig, *, device: str | None = None) -> list[Row]:
    """Trains and scores what ``out`` does not contain yet; returns all rows."""
    out.mkdir(parents=True, exist_ok=True)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    table = ResultsTable(out / "table.json", KEY, config)
    with table.counting():
        for setting in config.settings:
            wanted = list(itertools.product(config.sizes, WEIGHTS, config.seeds))
            if not all((setting, *run) in table.done for run in wanted):
                table.add(train_setting(setting, wanted, config, device))
    write_report(out, table)
    return table.rows


def train_setting(setting: str, runs: list[tuple[int, str, int]], config: NumericalConfig, device: str) -> list[Row]:
    """All runs of a setting as one stack of networks; ``runs`` are (size, weights, seed)."""
    base = SimCLR(temperature=1.0, similarity="euclidean", negatives="other_view", decoupled=False)
    latents = StackedLatents(SETTINGS[setting], [seed for _, _, seed in runs], device)
    torch.manual_seed(0)
    largest = max(size for size, _, _ in runs)
    encoder = StackedMLP(len(runs), (10, *config.hidden, largest)).to(device)
    sizes = torch.tensor([size for size, _, _ in runs], device=device)
    used = (torch.arange(largest, device=device) < sizes[:, None]).float()[:, None]  # (r, 1, d)
    lambdas = torch.ones(len(runs), device=device)
    adapted = torch.tensor([weights == "adapted" for _, weights, _ in runs], device=device)

    def loss(a: Tensor, b: Tensor, weight: Tensor, is_adapted: Tensor) -> Tensor:
        invariance = base.invariance(a, b)
        if config.power != 2:
            invariance = torch.where(is_adapted, base.distance_invariance(a, b, config.power), invariance)
        return weight * invariance + base.entropy(a, b)

    losses = torch.vmap(loss)
    if device != "cpu":
        losses = torch.compile(losses)  # the similarities of all samples are large: fewer passes over them
    generator = torch.Generator(device).manual_seed(0)

    def measure() -> tuple[Tensor, Tensor]:
        content, style = latents.sample(config.batch, generator)
        z_a = encoder(latents.observe(content, style)) * used
        z_b = encoder(latents.observe(content, latents.perturb(style, generator))) * used
        return losses(z_a, z_b, lambdas, adapted).sum(), gaps(z_a.detach(), z_b.detach())

    gaps = torch.vmap(lambda a, b: base.distance_gap(a, b, config.power))
    rule = DualAscent.over(config.steps, factor=config.factor, window=config.window, tolerance=config.tolerance)
    train_stacked(
        measure,
        encoder,
        lambdas,
        rule,
        adapted,
        steps=config.steps,
        lr=config.lr,
        generator=generator,
        description=f"{setting}, {len(runs)} runs",
    )
    return score_setting(setting, runs, latents, encoder, used, lambdas, config)


@torch.no_grad()
def score_setting(
    setting: str,
    runs: list[tuple[int, str, int]],
    latents: StackedLatents,
    encoder: StackedMLP,
    used: Tensor,
    lambdas: Tensor,
    config: NumericalConfig,
) -> list[Row]:
    """r² of content and style from every run's embedding of new data, by kernel ridge and linear regression."""
    generator = torch.Generator(used.device).manual_seed(1)
    content, style = latents.sample(config.fit + config.test, generator)
    perturbed = latents.perturb(style, generator)
    z, z_perturbed = (encoder(latents.observe(content, s)) * used for s in (style, perturbed))
    gaps = torch.vmap(SimCLR(similarity="euclidean").invariance_gap)(z, z_perturbed)
    ratios, directions = perturbed_directions(style, perturbed)
    scores = _r2(z, content, style, config, style @ directions)
    causal = SETTINGS[setting].causal
    floors = _r2(content, content, style, config) if causal else [(1.0, 0.0, [])] * len(runs)
    rows = []
    for i, (size, weights, seed) in enumerate(runs):
        linear = [
            RidgeProbe()
            .fit(z[i, : config.fit, :size], y[i, : config.fit])
            .score(z[i, config.fit :, :size], y[i, config.fit :])
            for y in (content, style)
        ]
        rows.append(
            {
                "setting": setting,
                "dim_z": size,
                "weights": weights,
                "seed": seed,
                "content_r2": scores[i][0],
                "style_r2": scores[i][1],
                "style_floor": floors[i][1],
                "content_linear_r2": linear[0],
                "style_linear_r2": linear[1],
                "lambda": float(lambdas[i]),
                "invariance_gap": float(gaps[i]),
                "perturbed": [round(ratio, 5) for ratio in ratios[i].tolist()],
                "style_r2_by_direction": [round(r2, 5) for r2 in scores[i][2]],
            }
        )
    return rows


def _r2(
    features: Tensor, content: Tensor, style: Tensor, config: NumericalConfig, along: Tensor | None = None
) -> list[tuple[float, float, list[float]]]:
    """Kernel-ridge r² of content and of style from each run's features (r, n, d), whose unused columns are 0.

    The list has the r² of each column of ``along``, such as style along some directions.
    """
    targets, found = torch.cat([content, style, *([] if along is None else [along])], -1), []
    for x, y in zip(features.split(CHUNK), targets.split(CHUNK), strict=True):
        probe = KernelRidge(landmarks=config.landmarks).fit(x[:, : config.fit], y[:, : config.fit])
        r2 = probe.scores(x[:, config.fit :], y[:, config.fit :])
        sizes = (content.shape[-1], style.shape[-1], 0 if along is None else along.shape[-1])
        of_content, of_style, single = r2.split(sizes, -1)
        found += list(zip(of_content.mean(-1).tolist(), of_style.mean(-1).tolist(), single.tolist(), strict=True))
    return found


def perturbed_directions(style: Tensor, perturbed: Tensor) -> tuple[Tensor, Tensor]:
    """Directions of style by how much they are perturbed: their ratios (r, s), ascending, and the directions (r, s, s).

    The ratio is the squared change along a direction over the squared distance of two samples. Directions are columns:
    ``style @ directions`` is uncorrelated, and so are the changes.
    """
    change, both = (perturbed - style).double(), torch.cat([style, perturbed], 1).double()
    within, total = (x.mT @ x / x.shape[1] for x in (change, both - both.mean(1, keepdim=True)))
    whiten = torch.linalg.inv(torch.linalg.cholesky(2 * total))
    ratios, vectors = torch.linalg.eigh(whiten @ within @ whiten.mT)
    return ratios, (whiten.mT @ vectors).to(style)
