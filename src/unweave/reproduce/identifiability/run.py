"""The identifiability experiment.

    c, s ─► pairs (x̃, x̃′) that share c and one s̃_m ─► φ_0 … φ_M ─► invariance, joint entropy ─► r² of c and s̃_m

All runs of one shape, whatever their setting, seed or restart, train as one stack.

Legend: r runs, M styles, n samples, d dimensions of x.
"""

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave import GeometricGrowth, UnweaveError
from unweave.augment import pair_kinds
from unweave.data import StackedLatents
from unweave.reproduce.identifiability.objectives import ABLATIONS, OBJECTIVES, StackedObjective
from unweave.reproduce.identifiability.report import write_report
from unweave.reproduce.identifiability.scores import score_runs
from unweave.reproduce.identifiability.settings import INSIDE, OUTSIDE, SETTINGS
from unweave.reproduce.results import ResultsTable, Row
from unweave.reproduce.stacked import StackedMLP, train_stacked

BEST = "ours"
"""The main objective, chosen on seeds that are not reported."""


@dataclass(frozen=True, kw_only=True)
class IdentifiabilityConfig:
    """Which runs there are, and how each is trained and scored."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    shapes: tuple[tuple[int, int], ...] = ((1, 2), (1, 5), (2, 2), (2, 5), (4, 2), (4, 5), (8, 2), (8, 5))
    """Numbers of styles and of content dimensions for the main objective, in all settings inside the theorem."""
    compared: tuple[tuple[int, int], ...] = ((2, 2), (4, 5))
    """The same for other objectives, ablations and settings outside."""
    objectives: tuple[str, ...] = tuple(OBJECTIVES)
    restarts: int = 2
    """Restarts of every run; the one with the lowest loss is reported."""
    hidden: tuple[int, ...] = (256, 256, 256)
    batch: int = 1536
    steps: int = 4000
    lr: float = 3e-3
    tolerance: float = 1e-3
    """The accepted squared distance of two views, relative to that of different samples."""
    growth: float = 0.0005
    """λ ← λ·(1 + growth) at each step at which the distance is larger."""
    warmup: float = 0.2
    """The fraction of steps before λ changes."""
    fit: int = 2048
    test: int = 4096
    landmarks: int = 256

    def __post_init__(self) -> None:
        if not self.seeds:
            raise UnweaveError("`seeds` is empty")
        for styles, dim_c in (*self.shapes, *self.compared):
            if styles < 1 or dim_c < 1:
                raise UnweaveError(
                    f"`shapes` must have at least 1 style and 1 dimension of content, not {styles} and {dim_c}"
                )
        if unknown := set(self.objectives) - set(OBJECTIVES):
            raise UnweaveError(f"`objectives` {sorted(unknown)} do not exist; there are {', '.join(OBJECTIVES)}")
        if self.batch < 10 * max(styles + 1 for styles, _ in self.shapes):
            raise UnweaveError(f"`batch` {self.batch} leaves too few pairs of each kind; use a larger one")


QUICK = IdentifiabilityConfig(
    seeds=(0,),
    shapes=((2, 2),),
    compared=(),
    restarts=1,
    hidden=(64, 64),
    batch=768,
    steps=1500,
    lr=5e-3,
    growth=0.001,
    fit=1000,
    test=1000,
    landmarks=200,
)


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Runs of one objective and one shape, which train together."""

    objective: str = BEST
    ablation: str = "none"
    styles: int
    dim_c: int
    settings: tuple[str, ...] = INSIDE

    @property
    def style_size(self) -> int:
        """Dimensions of each style space."""
        return SETTINGS[self.settings[0]].style_size

    @property
    def content_size(self) -> int:
        """Dimensions of the content space."""
        return self.dim_c + SETTINGS[self.settings[0]].extra_content

    def runs(self, config: IdentifiabilityConfig) -> list[tuple[str, int]]:
        """(setting, seed), repeated for each restart."""
        named = itertools.product(self.settings, config.seeds)
        return [run for run in named for _ in range(config.restarts)]

    def rows(self, config: IdentifiabilityConfig) -> set[tuple[Any, ...]]:
        """The names of its rows."""
        shape = (self.objective, self.ablation, self.styles, self.dim_c)
        return {(setting, *shape, seed) for setting, seed in self.runs(config)}


KEY = ("setting", "objective", "ablation", "styles", "dim_c", "seed")


def stacks(config: IdentifiabilityConfig) -> list[Stack]:
    """All stacks, the most important first."""
    main = [Stack(styles=styles, dim_c=dim_c) for styles, dim_c in config.shapes]
    base = [Stack(styles=styles, dim_c=dim_c) for styles, dim_c in config.compared]
    inside = [replace(stack, settings=("a", "b")) for stack in base]
    return [
        *main,
        *(replace(stack, ablation=name) for stack in inside for name in ABLATIONS[1:]),
        *(replace(stack, settings=(f"a-{name}", f"b-{name}")) for stack in base for name in OUTSIDE),
        *(replace(stack, objective=name) for stack in base for name in config.objectives if name != BEST),
        *(replace(stack, objective="simclr", ablation=name) for stack in inside[:1] for name in ABLATIONS[1:4]),
    ]


def run_identifiability(out: Path, config: IdentifiabilityConfig, *, device: str | None = None) -> list[Row]:
    """Trains and scores what ``out`` does not contain yet; returns all rows."""
    out.mkdir(parents=True, exist_ok=True)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    table = ResultsTable(out / "table.json", KEY, config)
    todo = [stack for stack in stacks(config) if not stack.rows(config) <= table.done]
    with table.counting():
        for number, stack in enumerate(todo, 1):
            table.add(train_stack(stack, config, device, f"{number}/{len(todo)}"))
    write_report(out, table)
    return table.rows


class Data:
    """The latent data of a stack's runs, setting by setting."""

    def __init__(self, stack: Stack, config: IdentifiabilityConfig, device: str) -> None:
        self.spaces, self.all_pairs = stack.styles + 1, stack.ablation == "all pairs"
        self.device = device
        runs = stack.runs(config)
        self.parts = [
            StackedLatents(
                SETTINGS[name].model(stack.styles, stack.dim_c), [seed for s, seed in runs if s == name], device
            )
            for name in stack.settings
        ]

    def pairs(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """x̃ and x̃′, (r, n, d) each; the l-th pair shares content and style variable l mod (M + 1).

        Each pair is made from another sample, or, with all pairs, M + 1 pairs in a row from the same one.
        """
        a, b = [], []
        repeats = self.spaces if self.all_pairs else 1
        shared = pair_kinds(n, self.spaces - 1, device=self.device)
        for latents in self.parts:
            content, style = (x.repeat_interleave(repeats, 1) for x in latents.sample(n // repeats, generator))
            first, second = latents.pairs(style, shared, generator)
            a.append(latents.observe(content, first))
            b.append(latents.observe(content, second))
        return torch.cat(a), torch.cat(b)


class Networks(torch.nn.Module):
    """One network for each run, whose outputs are φ_0 … φ_M.

    Notes:
        A linear map is added to the hidden layers. It is learned first and is injective; without it some runs end with
        a content space that is folded onto itself, which the entropy estimate hardly penalises.
    """

    def __init__(self, stack: Stack, runs: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.sizes = [stack.content_size, *[stack.style_size] * stack.styles]
        inputs = stack.dim_c + stack.styles * stack.style_size
        self.networks = StackedMLP(runs, (inputs, *hidden, sum(self.sizes)), F.silu)
        self.linear = StackedMLP(runs, (inputs, sum(self.sizes)))

    def forward(self, x: Tensor) -> list[Tensor]:
        """Every space (r, n, d_m) of observations (r, n, d)."""
        return list((self.linear(x) + self.networks(x)).split(self.sizes, -1))


def measure(
    objective: StackedObjective,
    networks: Networks,
    pairs: tuple[Tensor, Tensor],
    groups: list[list[int]],
    all_pairs: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Invariance and invariance gap of each space, (r, M + 1), and the sum of the negative entropies, (r,)."""
    a, b = ([objective.outputs(z) for z in networks(x)] for x in pairs)
    spaces = len(a)
    own = [(y[:, m::spaces], z[:, m::spaces]) for m, (y, z) in enumerate(zip(a, b, strict=True))]
    invariance = torch.stack([objective.invariance(*pair) for pair in own], 1)
    with torch.no_grad():
        gaps = torch.stack([objective.invariance_gap(*pair) for pair in own], 1)
    if all_pairs:  # several rows come from one sample: those of the first kind are independent
        a, b = [z[:, ::spaces] for z in a], [z[:, ::spaces] for z in b]
    entropies = [objective.negative_entropy([a[m] for m in group], [b[m] for m in group]) for group in groups]
    return invariance, gaps, torch.stack(entropies).sum(0)


def train_stack(stack: Stack, config: IdentifiabilityConfig, device: str, number: str = "") -> list[Row]:
    """Trains all runs of a stack side by side, and scores the best restart of each."""
    objective, runs = OBJECTIVES[stack.objective], stack.runs(config)
    data = Data(stack, config, device)
    torch.manual_seed(0)
    networks = Networks(stack, len(runs), config.hidden).to(device)
    lambdas = torch.full((len(runs), data.spaces), objective.weight, device=device)
    groups = objective.groups(stack.styles, stack.ablation)
    n = config.batch // data.spaces * data.spaces
    generator = torch.Generator(device).manual_seed(0)

    def step() -> tuple[Tensor, Tensor]:
        invariance, gaps, spread = measure(objective, networks, data.pairs(n, generator), groups, data.all_pairs)
        return (lambdas * invariance).sum() + spread.sum(), gaps

    warmup = round(config.warmup * config.steps)
    train_stacked(
        step,
        networks,
        lambdas,
        GeometricGrowth(rate=config.growth, tolerance=config.tolerance, warmup=warmup),
        torch.full_like(lambdas, objective.adapted, dtype=torch.bool),
        steps=config.steps,
        lr=config.lr,
        generator=generator,
        description=f"{number} {stack.objective}, {stack.styles} styles, content of {stack.dim_c}: {len(runs)} runs",
    )
    losses = final_losses(objective, networks, data, groups, lambdas, config.restarts, n)
    return score_runs(stack, runs, data, networks, lambdas, losses, config)


@torch.no_grad()
def final_losses(
    objective: StackedObjective,
    networks: Networks,
    data: Data,
    groups: list[list[int]],
    lambdas: Tensor,
    restarts: int,
    n: int,
) -> Tensor:
    """The loss of each run on new samples, (r,), with the mean λ of all restarts of a run."""
    common = lambdas.unflatten(0, (-1, restarts)).mean(1, keepdim=True).expand(-1, restarts, -1).flatten(0, 1)
    generator = torch.Generator(lambdas.device).manual_seed(2)
    losses = []
    for _ in range(10):
        invariance, _, spread = measure(objective, networks, data.pairs(n, generator), groups, data.all_pairs)
        losses.append((common * invariance).sum(1) + spread)
    return torch.stack(losses).mean(0)
