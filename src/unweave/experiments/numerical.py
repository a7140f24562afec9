"""``unweave reproduce numerical``: only content, whatever the size of the embedding (paper, section 5.1 and figure 2).

    x = f(c, s) and x̃ = f(c, s̃)  ─►  encoder  ─►  SimCLR with distances, λ fixed at 1 or adapted  ─►  r² of c and s

With λ = 1, room that content does not need fills with style; with λ raised until the two views agree, it stays empty.
All runs of one setting, whatever their seed, size or weight, train together as one stack.

Legend: r runs, n samples, d dimensions.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from unweave.data.numerical import LatentModel, Worlds
from unweave.errors import UnweaveError
from unweave.evaluation.kernel_ridge import KernelRidge
from unweave.evaluation.probes import RidgeProbe
from unweave.experiments.table import Row, Table
from unweave.models.stacked import StackedMLP
from unweave.objectives import DualAscent, SimCLR
from unweave.training.metrics import ProgressBar

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
    batch: int = 1024
    steps: int = 6000
    lr: float = 1e-3
    tolerance: float = 1e-4
    """What λ is raised for: squared distance of the two views over that of different samples."""
    growth: float = 0.0016
    """λ ← λ·(1 + growth) at each step at which the tolerance is not met."""
    warmup: float = 0.2
    """The share of steps before λ moves."""
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
    fit=2048,
    test=2048,
    landmarks=512,
)


def run_numerical(out: Path, config: NumericalConfig, *, device: str | None = None) -> list[Row]:
    """Trains and scores what ``out`` does not hold yet; returns one row a run."""
    out.mkdir(parents=True, exist_ok=True)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    table = Table(out / "table.json", KEY)
    for setting in config.settings:
        wanted = list(itertools.product(config.sizes, WEIGHTS, config.seeds))
        if not all((setting, *run) in table.done for run in wanted):
            table.add(train_setting(setting, wanted, config, device))
    write_report(out, table.rows)
    return table.rows


def train_setting(setting: str, runs: list[tuple[int, str, int]], config: NumericalConfig, device: str) -> list[Row]:
    """All runs of a setting as one stack of networks; ``runs`` are (size, weights, seed)."""
    base = SimCLR(temperature=1.0, similarity="euclidean", negatives="other_view", decoupled=False)
    worlds = Worlds(SETTINGS[setting], [seed for _, _, seed in runs], device)
    torch.manual_seed(0)
    largest = max(size for size, _, _ in runs)
    encoder = StackedMLP(len(runs), (10, *config.hidden, largest)).to(device)
    sizes = torch.tensor([size for size, _, _ in runs], device=device)
    used = (torch.arange(largest, device=device) < sizes[:, None]).float()[:, None]  # (r, 1, d)
    adapted = torch.tensor([weights == "adapted" for _, weights, _ in runs], device=device)
    rule = DualAscent(rule="geometric", lr=config.growth, tolerance=config.tolerance)
    weights, tolerances = (
        torch.ones(len(runs), device=device),
        torch.full((len(runs),), config.tolerance, device=device),
    )
    optimizer = torch.optim.Adam(encoder.parameters(), lr=config.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
    constraints, losses = (
        torch.vmap(base.constraint),
        torch.vmap(lambda a, b, w: w * base.invariance(a, b) + base.entropy(a, b)),
    )
    if device != "cpu":
        losses = torch.compile(losses)  # similarities of all samples are large: each pass over them saved counts
    generator = torch.Generator(device).manual_seed(0)
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    with ProgressBar(config.steps, 0, f"{setting}, {len(runs)} runs", show=True) as bar:
        for step in range(config.steps):
            content, style = worlds.sample(config.batch, generator)
            z_a = encoder(worlds.observe(content, style)) * used
            z_b = encoder(worlds.observe(content, worlds.perturb(style, generator))) * used
            loss = losses(z_a, z_b, weights)
            optimizer.zero_grad()
            loss.sum().backward()
            optimizer.step()
            schedule.step()
            if step >= config.warmup * config.steps:
                with torch.no_grad():
                    moved = rule.step(weights, constraints(z_a, z_b), torch.ones_like(adapted), tolerances)
                    weights = torch.where(adapted, moved, weights)
            if (step + 1) % 50 == 0:
                bar.show(float(loss.detach().mean()))
            bar.advance(step + 1)
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
    z = encoder(worlds.observe(content, style)) * used
    invariance = torch.vmap(SimCLR(similarity="euclidean").constraint)(
        z, encoder(worlds.observe(content, worlds.perturb(style, generator))) * used
    )
    causal = SETTINGS[setting].causal
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


def write_report(out: Path, rows: list[Row]) -> None:
    """``figure.svg``, and a line for each setting and weight."""
    draw(out / "figure.svg", rows)
    console = Console()
    for setting in dict.fromkeys(row["setting"] for row in rows):
        for weights in WEIGHTS:
            mine = [row for row in rows if row["setting"] == setting and row["weights"] == weights]
            line = ", ".join(
                f"{size}: {mean(mine, size, 'content_r2'):.2f}/{mean(mine, size, 'style_r2'):.2f}"
                for size in sorted({row["dim_z"] for row in mine})
            )
            console.print(f"{setting}, {weights} λ, content/style r² by size: {line}")


def mean(rows: list[Row], size: int, name: str) -> float:
    """Over seeds."""
    values = [row[name] for row in rows if row["dim_z"] == size]
    return sum(values) / len(values)


def draw(path: Path, rows: list[Row]) -> None:
    """r² against the size of the embedding; a panel a setting, every seed a dot."""
    from matplotlib.figure import Figure

    settings = list(dict.fromkeys(row["setting"] for row in rows))
    drawing = Figure(figsize=(3.6 * len(settings) + 0.6, 3.4), layout="constrained")
    axes = drawing.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    for axis, setting in zip(axes, settings, strict=True):
        for weights, style in (("fixed", "--"), ("adapted", "-")):
            mine = [row for row in rows if row["setting"] == setting and row["weights"] == weights]
            sizes = sorted({row["dim_z"] for row in mine})
            for name, color in (("content_r2", "#7b3fe4"), ("style_r2", "#e8760c")):
                label = f"{name.removesuffix('_r2')}, {weights} λ"
                axis.plot(sizes, [mean(mine, size, name) for size in sizes], style, color=color, label=label)
                axis.plot([r["dim_z"] for r in mine], [r[name] for r in mine], ".", color=color, ms=3, alpha=0.5)
        floor = [row["style_floor"] for row in rows if row["setting"] == setting]
        axis.axhline(sum(floor) / len(floor), color="#999", lw=0.8, ls=":")
        axis.axvline(5, color="#ccc", lw=0.8)
        axis.set_title(setting)
        axis.set_xlabel("size of the embedding")
    axes[0].set_ylabel("r²")
    axes[0].legend(fontsize=8)
    drawing.savefig(path, metadata={"Date": None})
