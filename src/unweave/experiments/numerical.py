"""``unweave reproduce numerical``: only content, whatever the size of the embedding (paper, section 5.1).

    x = f(c, s) and x̃ = f(c, s̃)  ─►  encoder  ─►  SimCLR with distances, λ fixed at 1 or adapted  ─►  r² of c and s

With λ = 1, room that content does not need fills with style; with λ raised until the two views agree, it stays empty.
All runs of one setting, whatever their seed, size or weight, train together as one stack.

Legend: r runs, n samples, d dimensions.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from unweave.data.numerical import LatentModel, Worlds
from unweave.errors import UnweaveError
from unweave.evaluation.kernel_ridge import KernelRidge
from unweave.evaluation.probes import RidgeProbe
from unweave.experiments.numerical_report import write_report
from unweave.experiments.table import Row, Table
from unweave.models.stacked import StackedMLP
from unweave.objectives import DualAscent, SimCLR
from unweave.training.metrics import ProgressBar
from unweave.training.repeated import CosineAdam, repeated


@dataclass(frozen=True)
class Setting:
    """A kind of world, and how hard λ is pressed there."""

    model: LatentModel
    stricter: float = 1.0
    """The tolerance is divided by this."""
    steeper: float = 1.0
    """The growth of λ is multiplied by this."""


SETTINGS = {
    "independent": Setting(LatentModel()),
    # Perturbations with a covariance from a Wishart distribution hardly move some directions of style.
    "statistical": Setting(LatentModel(statistical=True), stricter=10, steeper=1.5),
    "causal": Setting(LatentModel(causal=True)),
    "both": Setting(LatentModel(statistical=True, causal=True), stricter=10, steeper=1.5),
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
    tolerance: float = 1e-3
    """What λ is raised for: squared distance of the two views over that of different samples."""
    growth: float = 0.0008
    """λ ← λ·(1 + growth) at each step at which the tolerance is not met."""
    warmup: float = 0.2
    """The share of steps before λ moves."""
    settled: float = 0.6
    """The share of steps after which λ stays."""
    fit: int = 5 * 4096
    test: int = 10 * 4096
    landmarks: int = 2048

    def __post_init__(self) -> None:
        if unknown := set(self.settings) - set(SETTINGS):
            raise UnweaveError(f"there is no setting {sorted(unknown)}; there are {', '.join(SETTINGS)}")
        if not self.sizes or min(self.sizes) < 1:
            raise UnweaveError(f"an embedding has at least 1 dimension: {self.sizes}")
        if not self.seeds:
            raise UnweaveError("at least one seed is needed")


QUICK = NumericalConfig(
    settings=("independent",),
    sizes=(5, 15, 50),
    seeds=(0, 1),
    hidden=(128, 128),
    batch=512,
    steps=2200,
    lr=3e-3,
    growth=0.003,
    warmup=0.4,
    settled=1.0,
    fit=2048,
    test=2048,
    landmarks=512,
)


def run_numerical(out: Path, config: NumericalConfig, *, device: str | None = None) -> list[Row]:
    """Trains and scores what ``out`` does not hold yet; returns one row a run."""
    out.mkdir(parents=True, exist_ok=True)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    table = Table(out / "table.json", KEY)
    with table.filled():
        for setting in config.settings:
            wanted = list(itertools.product(config.sizes, WEIGHTS, config.seeds))
            if not all((setting, *run) in table.done for run in wanted):
                table.add(train_setting(setting, wanted, config, device))
    write_report(out, table)
    return table.rows


def train_setting(setting: str, runs: list[tuple[int, str, int]], config: NumericalConfig, device: str) -> list[Row]:
    """All runs of a setting as one stack of networks; ``runs`` are (size, weights, seed)."""
    base = SimCLR(temperature=1.0, similarity="euclidean", negatives="other_view", decoupled=False)
    worlds = Worlds(SETTINGS[setting].model, [seed for _, _, seed in runs], device)
    torch.manual_seed(0)
    largest = max(size for size, _, _ in runs)
    encoder = StackedMLP(len(runs), (10, *config.hidden, largest)).to(device)
    sizes = torch.tensor([size for size, _, _ in runs], device=device)
    used = (torch.arange(largest, device=device) < sizes[:, None]).float()[:, None]  # (r, 1, d)
    adapted = torch.tensor([weights == "adapted" for _, weights, _ in runs], device=device)
    rule = DualAscent(rule="geometric", lr=config.growth * SETTINGS[setting].steeper)
    weights = torch.ones(len(runs), device=device)
    alive, tolerances = (
        torch.ones_like(adapted),
        torch.full_like(weights, config.tolerance / SETTINGS[setting].stricter),
    )
    constraints, total = torch.zeros_like(weights), torch.zeros((), device=device)
    optimizer = CosineAdam(encoder.parameters(), config.lr, config.steps, device)
    losses = torch.vmap(lambda a, b, weight: weight * base.invariance(a, b) + base.entropy(a, b))
    if device != "cpu":
        losses = torch.compile(losses)  # similarities of all samples are large: each pass over them saved counts
    generator = torch.Generator(device).manual_seed(0)

    def step() -> None:
        content, style = worlds.sample(config.batch, generator)
        z_a = encoder(worlds.observe(content, style)) * used
        z_b = encoder(worlds.observe(content, worlds.perturb(style, generator))) * used
        loss = losses(z_a, z_b, weights).sum()
        optimizer.minimise(loss)
        constraints.copy_(torch.vmap(base.constraint)(z_a.detach(), z_b.detach()))
        total.copy_(loss.detach())

    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    with ProgressBar(config.steps, 0, f"{setting}, {len(runs)} runs", show=True) as bar:
        take = repeated(step, generator)
        for taken in range(config.steps):
            take()
            optimizer.advance()
            if config.warmup <= taken / config.steps < config.settled:
                moved = rule.step(weights, constraints, alive, tolerances)
                weights.copy_(torch.where(adapted, moved, weights))
            if (taken + 1) % 50 == 0:
                bar.show(float(total) / len(runs))
            bar.advance(taken + 1)
    torch.set_float32_matmul_precision(precision)
    return score_setting(setting, runs, worlds, encoder, used, weights, config)


@torch.no_grad()
def score_setting(
    setting: str,
    runs: list[tuple[int, str, int]],
    worlds: Worlds,
    encoder: StackedMLP,
    used: Tensor,
    weights: Tensor,
    config: NumericalConfig,
) -> list[Row]:
    """r² of content and style from every run's embedding of fresh data; kernel ridge, and linear beside it."""
    generator = torch.Generator(used.device).manual_seed(1)
    content, style = worlds.sample(config.fit + config.test, generator)
    perturbed = worlds.perturb(style, generator)
    z, z_perturbed = (encoder(worlds.observe(content, s)) * used for s in (style, perturbed))
    invariance = torch.vmap(SimCLR(similarity="euclidean").constraint)(z, z_perturbed)
    least = _least_perturbed(style, perturbed)
    causal = SETTINGS[setting].model.causal
    told = _r2(z, content, style, config)
    known = _r2(content, content, style, config) if causal else [(1.0, 0.0)] * len(runs)
    rows = []
    for i, (size, weight, seed) in enumerate(runs):
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
                "weights": weight,
                "seed": seed,
                "content_r2": told[i][0],
                "style_r2": told[i][1],
                "style_floor": known[i][1],
                "content_linear_r2": linear[0],
                "style_linear_r2": linear[1],
                "weight": float(weights[i]),
                "constraint": float(invariance[i]),
                "least_perturbed": least[i],
            }
        )
    return rows


def _r2(features: Tensor, content: Tensor, style: Tensor, config: NumericalConfig) -> list[tuple[float, float]]:
    """Kernel-ridge r² of content and of style from each run's features (r, n, d); columns of zeros do no harm."""
    targets, found = torch.cat([content, style], -1), []
    for x, y in zip(features.split(CHUNK), targets.split(CHUNK), strict=True):
        probe = KernelRidge(landmarks=config.landmarks).fit(x[:, : config.fit], y[:, : config.fit])
        r2 = probe.scores(x[:, config.fit :], y[:, config.fit :])
        parts = r2.split([content.shape[-1], style.shape[-1]], -1)
        found += list(zip(*(part.mean(-1).tolist() for part in parts), strict=True))
    return found


def _least_perturbed(style: Tensor, perturbed: Tensor) -> list[float]:
    """Of the style direction that the perturbation moves least: squared move over squared distance of two samples."""
    moved, all_ = (perturbed - style).double(), torch.cat([style, perturbed], 1).double()
    within, total = (x.mT @ x / x.shape[1] for x in (moved, all_ - all_.mean(1, keepdim=True)))
    whiten = torch.linalg.inv(torch.linalg.cholesky(2 * total))
    return torch.linalg.eigvalsh(whiten @ within @ whiten.mT)[:, 0].tolist()
