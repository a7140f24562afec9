"""``unweave reproduce identifiability``: the paper's theorem put to the test, on data whose truth is known.

    c, s ─► pairs (x̃, x̃′) that share c and one s̃_m ─► φ_0 … φ_M ─► invariance, joint entropy ─► what each φ_m tells

Each φ_m is a network of its own. All runs of one shape, whatever their setting, seed or restart, train as one stack.

Legend: r runs, M styles, n samples, d dimensions of x.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave.data.numerical import LatentModel, Worlds
from unweave.errors import UnweaveError
from unweave.experiments.identifiability_scores import score_runs
from unweave.experiments.table import Row, Table
from unweave.experiments.theorem import OBJECTIVES, Objective
from unweave.models.stacked import StackedMLP
from unweave.objectives import DualAscent
from unweave.training.metrics import ProgressBar


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A kind of world, and how far the spaces' sizes are from its own."""

    meaning: str
    causal: bool = False
    chain: bool = False
    additive: bool = True
    perfect: bool = False
    style_size: int = 1
    extra_content: int = 0

    def model(self, styles: int, dim_c: int) -> LatentModel:
        """The worlds."""
        return LatentModel(
            content=dim_c,
            style=styles * self.style_size,
            variables=styles,
            causal=self.causal,
            chain=self.chain,
            additive=self.additive,
            intervention="perfect" if self.perfect else "shift",
        )


_A = Setting(meaning="styles independent of content, shift interventions")
_B = Setting(
    meaning="styles caused by content and by each other, perfect interventions", causal=True, chain=True, perfect=True
)
SETTINGS = {
    "a": _A,
    "b": _B,
    "c": Setting(meaning="styles caused by content, shift interventions, additive noise", causal=True),
    "c-nonadditive": Setting(meaning="the same, noise scaled by content", causal=True, additive=False),
    "a-2d-styles": replace(_A, meaning="as a, styles of 2 dimensions", style_size=2),
    "b-2d-styles": replace(_B, meaning="as b, styles of 2 dimensions", style_size=2),
    "a-small-content": replace(_A, meaning="as a, content space 1 too small", extra_content=-1),
    "b-small-content": replace(_B, meaning="as b, content space 1 too small", extra_content=-1),
    "a-large-content": replace(_A, meaning="as a, content space 1 too large", extra_content=1),
    "b-large-content": replace(_B, meaning="as b, content space 1 too large", extra_content=1),
}
INSIDE = ("a", "b", "c", "c-nonadditive")
OUTSIDE = tuple(name for name in SETTINGS if name not in INSIDE)
BEST = "gaussian"


@dataclass(frozen=True, kw_only=True)
class IdentifiabilityConfig:
    """What is run, and how every run is trained and scored."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    styles: tuple[int, ...] = (1, 2, 4, 8)
    dims_c: tuple[int, ...] = (2, 5)
    objectives: tuple[str, ...] = tuple(OBJECTIVES)
    restarts: int = 3
    """Of the best objective; the one with the lowest loss is reported. Others are run once."""
    hidden: tuple[int, ...] = (128, 128, 128)
    batch: int = 2000
    steps: int = 4000
    lr: float = 2e-3
    tolerance: float = 1e-3
    growth: float = 0.001
    warmup: float = 0.2
    """The share of steps before λ moves."""
    fit: int = 2048
    test: int = 4096
    landmarks: int = 256

    def __post_init__(self) -> None:
        if not self.seeds or not self.styles or min(self.styles) < 1:
            raise UnweaveError(f"at least one seed and one style are needed: seeds {self.seeds}, styles {self.styles}")
        if not self.dims_c or min(self.dims_c) < 1:
            raise UnweaveError(f"content has at least 1 dimension: {self.dims_c}")
        if unknown := set(self.objectives) - set(OBJECTIVES):
            raise UnweaveError(f"there is no objective {sorted(unknown)}; there are {', '.join(OBJECTIVES)}")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Runs that train together: of one objective and one shape."""

    objective: str
    ablation: str
    styles: int
    dim_c: int
    style_size: int
    content_size: int
    settings: tuple[str, ...]
    restarts: int

    def runs(self, config: IdentifiabilityConfig) -> list[tuple[str, int]]:
        """(setting, seed), each ``restarts`` times in a row."""
        named = itertools.product(self.settings, config.seeds)
        return [run for run in named for _ in range(self.restarts)]


KEY = ("setting", "objective", "ablation", "styles", "dim_c", "seed")


def stacks(config: IdentifiabilityConfig) -> Iterator[Stack]:
    """All that is to be run."""
    for styles, dim_c in itertools.product(config.styles, config.dims_c):
        shape = {"styles": styles, "dim_c": dim_c}
        for objective in config.objectives:
            restarts = config.restarts if objective == BEST else 1
            yield Stack(
                objective=objective, ablation="none", style_size=1, content_size=dim_c, settings=INSIDE,
                restarts=restarts, **shape,
            )  # fmt: skip


class Data:
    """The worlds of a stack's runs, setting by setting."""

    def __init__(self, stack: Stack, config: IdentifiabilityConfig, device: str) -> None:
        self.styles, self.all_pairs = stack.styles, stack.ablation == "all pairs"
        runs = stack.runs(config)
        self.parts = [
            Worlds(SETTINGS[name].model(stack.styles, stack.dim_c), [seed for s, seed in runs if s == name], device)
            for name in stack.settings
        ]

    def views(self, n: int, shared: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """x̃ and x̃′ of n samples (r, n, d), which share the style variables ``shared`` (n,) names."""
        a, b = [], []
        for worlds in self.parts:
            content, style = worlds.sample(n, generator)
            first, second = worlds.pairs(style, shared, generator)
            a.append(worlds.observe(content, first))
            b.append(worlds.observe(content, second))
        return torch.cat(a), torch.cat(b)

    def pairs(self, n: int, generator: torch.Generator) -> "Pairs":
        """A batch of n samples: the l-th is of kind l mod (M + 1), or all are of every kind."""
        spaces = self.styles + 1
        kinds = torch.arange(n) % spaces
        if not self.all_pairs:
            a, b = self.views(n, kinds, generator)
            own = [torch.stack([x[:, m::spaces] for m in range(spaces)], 1) for x in (a, b)]
            return Pairs(a, b, *own)
        content_and_style = [worlds.sample(n, generator) for worlds in self.parts]
        first, second = [], []
        for m in range(spaces):
            sides: tuple[list[Tensor], list[Tensor]] = [], []
            for worlds, (content, style) in zip(self.parts, content_and_style, strict=True):
                for side, perturbed in zip(sides, worlds.pairs(style, torch.full((n,), m), generator), strict=True):
                    side.append(worlds.observe(content, perturbed))
            first.append(torch.cat(sides[0]))
            second.append(torch.cat(sides[1]))
        return Pairs(first[0], second[0], torch.stack(first, 1), torch.stack(second, 1))


@dataclass(frozen=True)
class Pairs:
    """Observations for entropies, (r, n, d), and the pairs that each space's invariance sees, (r, M + 1, k, d)."""

    a: Tensor
    b: Tensor
    own_a: Tensor
    own_b: Tensor


class Networks(torch.nn.Module):
    """φ_0 … φ_M of every run."""

    def __init__(self, stack: Stack, runs: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.runs, self.spaces = runs, stack.styles + 1
        self.sizes = [stack.content_size, *[stack.style_size] * stack.styles]
        inputs = stack.dim_c + stack.styles * stack.style_size
        self.networks = StackedMLP(runs * self.spaces, (inputs, *hidden, max(self.sizes)), F.silu)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Every space (r, n, d_m) of observations (r, n, d), or of each space's own (r, M + 1, n, d)."""
        if x.ndim == 3:
            x = x[:, None].expand(-1, self.spaces, -1, -1)
        z = self.networks(x.flatten(0, 1)).unflatten(0, (self.runs, self.spaces))
        return [z[:, m, :, :size] for m, size in enumerate(self.sizes)]


def measure(
    objective: Objective, networks: Networks, pairs: Pairs, groups: list[list[int]]
) -> tuple[Tensor, Tensor, Tensor]:
    """Invariance and constraint of each space, (r, M + 1), and the sum of the negative entropies, (r,)."""

    def outputs(x: Tensor) -> list[Tensor]:
        return [objective.outputs(z) for z in networks(x)]

    own = list(zip(outputs(pairs.own_a), outputs(pairs.own_b), strict=True))
    invariance = torch.stack([objective.invariance(*pair) for pair in own], 1)
    with torch.no_grad():
        constraint = torch.stack([objective.constraint(*pair) for pair in own], 1)
    a = outputs(pairs.a)
    b = outputs(pairs.b) if objective.both_views else a
    entropies = [objective.negative_entropy([a[m] for m in group], [b[m] for m in group]) for group in groups]
    return invariance, constraint, torch.stack(entropies).sum(0)


def train_stack(stack: Stack, config: IdentifiabilityConfig, device: str) -> list[Row]:
    """Trains all runs of a stack side by side, and scores the best restart of each."""
    objective, runs = OBJECTIVES[stack.objective], stack.runs(config)
    data = Data(stack, config, device)
    torch.manual_seed(0)
    networks = Networks(stack, len(runs), config.hidden).to(device)
    optimizer = torch.optim.Adam(networks.parameters(), lr=config.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
    rule = DualAscent(rule="geometric", lr=config.growth)
    weights = torch.full((len(runs), networks.spaces), objective.weight, device=device)
    tolerances = torch.full_like(weights, config.tolerance)
    groups = objective.groups(stack.styles, stack.ablation)
    n = config.batch // networks.spaces * networks.spaces
    generator = torch.Generator(device).manual_seed(0)
    name = f"{stack.objective}, {stack.ablation}, {stack.styles} styles, content {stack.dim_c}: {len(runs)} runs"
    with ProgressBar(config.steps, 0, name, show=True) as bar:
        for step in range(config.steps):
            invariance, constraint, spread = measure(objective, networks, data.pairs(n, generator), groups)
            loss = (weights * invariance).sum(1) + spread
            optimizer.zero_grad()
            loss.sum().backward()
            optimizer.step()
            schedule.step()
            if objective.adapted and step >= config.warmup * config.steps:
                weights = rule.step(weights, constraint, torch.ones_like(weights, dtype=torch.bool), tolerances)
            if (step + 1) % 100 == 0:
                bar.show(float(loss.detach().mean()))
            bar.advance(step + 1)
    losses = final_losses(objective, networks, data, groups, weights, stack.restarts, n)
    return score_runs(stack, runs, data, networks, weights, losses, config)


@torch.no_grad()
def final_losses(
    objective: Objective,
    networks: Networks,
    data: Data,
    groups: list[list[int]],
    weights: Tensor,
    restarts: int,
    n: int,
) -> Tensor:
    """Loss of each run on fresh samples, (r,), with weights that all restarts of a run have in common: their means."""
    common = weights.unflatten(0, (-1, restarts)).mean(1, keepdim=True).expand(-1, restarts, -1).flatten(0, 1)
    generator = torch.Generator(weights.device).manual_seed(2)
    losses = []
    for _ in range(10):
        invariance, _, spread = measure(objective, networks, data.pairs(n, generator), groups)
        losses.append((common * invariance).sum(1) + spread)
    return torch.stack(losses).mean(0)
