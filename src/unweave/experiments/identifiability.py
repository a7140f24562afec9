"""``unweave reproduce identifiability``: the paper's theorem put to the test, on data whose truth is known.

    c, s ─► pairs (x̃, x̃′) that share c and one s̃_m ─► φ_0 … φ_M ─► invariance, joint entropy ─► what each φ_m tells

Each φ_m is a network of its own. All runs of one shape, whatever their setting, seed or restart, train as one stack.

Legend: r runs, M styles, n samples, d dimensions of x.
"""

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave.data.numerical import LatentModel, Worlds
from unweave.errors import UnweaveError
from unweave.experiments.identifiability_report import write_report
from unweave.experiments.identifiability_scores import score_runs
from unweave.experiments.table import Row, Table
from unweave.experiments.theorem import ABLATIONS, OBJECTIVES, Objective
from unweave.models.stacked import StackedMLP
from unweave.objectives import DualAscent
from unweave.training.metrics import ProgressBar
from unweave.training.repeated import CosineAdam, repeated


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
    rounding: float = 0.25
    """Of the mixing's leaky ReLU: A1 asks for a diffeomorphism."""

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
            rounding=self.rounding,
        )


_A = Setting(meaning="styles independent of content, shift interventions")
_B = Setting(
    meaning="styles caused by content and by each other, perfect interventions", causal=True, chain=True, perfect=True
)
SETTINGS = {
    "a": _A,
    "b": _B,
    "c": Setting(meaning="styles caused by content, shift interventions, noise added", causal=True),
    "c-scaled": Setting(meaning="as c, but noise not added: content scales it", causal=True, additive=False),
    "a-kinked": replace(_A, meaning="as a, mixing by leaky ReLUs: no diffeomorphism (A1)", rounding=0.0),
    "b-kinked": replace(_B, meaning="as b, mixing by leaky ReLUs: no diffeomorphism (A1)", rounding=0.0),
    "a-small": replace(_A, meaning="as a, content space one dimension too small (A1)", extra_content=-1),
    "b-small": replace(_B, meaning="as b, content space one dimension too small (A1)", extra_content=-1),
    "a-large": replace(_A, meaning="as a, content space one dimension too large (A1)", extra_content=1),
    "b-large": replace(_B, meaning="as b, content space one dimension too large (A1)", extra_content=1),
    "a-2d": replace(_A, meaning="as a, styles of 2 dimensions (A3)", style_size=2),
    "b-2d": replace(_B, meaning="as b, styles of 2 dimensions (A3)", style_size=2),
}
INSIDE = ("a", "b", "c", "c-scaled")
OUTSIDE = ("kinked", "small", "large", "2d")
BEST = "ours"
"""Chosen on seeds 100 to 102."""


@dataclass(frozen=True, kw_only=True)
class IdentifiabilityConfig:
    """What is run, and how every run is trained and scored."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    shapes: tuple[tuple[int, int], ...] = ((1, 2), (1, 5), (2, 2), (2, 5), (4, 2), (4, 5), (8, 2), (8, 5))
    """Numbers of styles and dimensions of content, of the best objective in all settings inside the theorem."""
    compared: tuple[tuple[int, int], ...] = ((2, 2), (4, 5))
    """The shapes of all else: other objectives, ablations, settings outside."""
    objectives: tuple[str, ...] = tuple(OBJECTIVES)
    restarts: int = 2
    """Of every run; the one with the lowest loss is reported."""
    hidden: tuple[int, ...] = (256, 256, 256)
    batch: int = 1536
    steps: int = 4000
    lr: float = 3e-3
    tolerance: float = 1e-3
    """What λ is raised for: squared distance of the two views over that of different samples."""
    growth: float = 0.0005
    """λ ← λ·(1 + growth) at each step at which the tolerance is not met."""
    warmup: float = 0.2
    """The share of steps before λ moves."""
    fit: int = 2048
    test: int = 4096
    landmarks: int = 256

    def __post_init__(self) -> None:
        if not self.seeds:
            raise UnweaveError("at least one seed is needed")
        for styles, dim_c in (*self.shapes, *self.compared):
            if styles < 1 or dim_c < 1:
                raise UnweaveError(f"at least 1 style and 1 dimension of content are needed, not {styles} and {dim_c}")
        if unknown := set(self.objectives) - set(OBJECTIVES):
            raise UnweaveError(f"there is no objective {sorted(unknown)}; there are {', '.join(OBJECTIVES)}")
        if self.batch < 10 * max(styles + 1 for styles, _ in self.shapes):
            raise UnweaveError(f"a batch of {self.batch} leaves too few pairs of each kind; take more")


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
    """Runs that train together: of one objective and one shape."""

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
        """(setting, seed), each as often as it is restarted, in a row."""
        named = itertools.product(self.settings, config.seeds)
        return [run for run in named for _ in range(config.restarts)]

    def rows(self, config: IdentifiabilityConfig) -> set[tuple[Any, ...]]:
        """The names of the rows it will give."""
        shape = (self.objective, self.ablation, self.styles, self.dim_c)
        return {(setting, *shape, seed) for setting, seed in self.runs(config)}


KEY = ("setting", "objective", "ablation", "styles", "dim_c", "seed")


def stacks(config: IdentifiabilityConfig) -> list[Stack]:
    """All that is to be run, what matters most first."""
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
    """Trains and scores what ``out`` does not hold yet; returns one row a run."""
    out.mkdir(parents=True, exist_ok=True)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    table = Table(out / "table.json", KEY)
    todo = [stack for stack in stacks(config) if not stack.rows(config) <= table.done]
    with table.filled():
        for number, stack in enumerate(todo, 1):
            table.add(train_stack(stack, config, device, f"{number}/{len(todo)}"))
    write_report(out, table)
    return table.rows


class Data:
    """The worlds of a stack's runs, setting by setting."""

    def __init__(self, stack: Stack, config: IdentifiabilityConfig, device: str) -> None:
        self.spaces, self.all_pairs = stack.styles + 1, stack.ablation == "all pairs"
        self.device = device
        runs = stack.runs(config)
        self.parts = [
            Worlds(SETTINGS[name].model(stack.styles, stack.dim_c), [seed for s, seed in runs if s == name], device)
            for name in stack.settings
        ]

    def pairs(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """x̃ and x̃′, (r, n, d) each; the l-th pair shares content and style variable l mod (M + 1).

        Each pair is made from a sample of its own, or, with all pairs, M + 1 pairs in a row from one and the same.
        """
        a, b = [], []
        repeats = self.spaces if self.all_pairs else 1
        for worlds in self.parts:
            content, style = (x.repeat_interleave(repeats, 1) for x in worlds.sample(n // repeats, generator))
            first, second = worlds.pairs(style, torch.arange(n, device=self.device) % self.spaces, generator)
            a.append(worlds.observe(content, first))
            b.append(worlds.observe(content, second))
        return torch.cat(a), torch.cat(b)


class Networks(torch.nn.Module):
    """One network for each run; its output is φ_0 … φ_M side by side.

    A linear map runs beside the hidden layers. It is what a network finds first, and cannot fold: without it some runs
    end in a content space that is folded on itself, which entropy hardly sees.
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
    objective: Objective, networks: Networks, pairs: tuple[Tensor, Tensor], groups: list[list[int]], all_pairs: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Invariance and constraint of each space, (r, M + 1), and the sum of the negative entropies, (r,)."""
    a, b = ([objective.outputs(z) for z in networks(x)] for x in pairs)
    spaces = len(a)
    own = [(y[:, m::spaces], z[:, m::spaces]) for m, (y, z) in enumerate(zip(a, b, strict=True))]
    invariance = torch.stack([objective.invariance(*pair) for pair in own], 1)
    with torch.no_grad():
        constraint = torch.stack([objective.constraint(*pair) for pair in own], 1)
    if all_pairs:  # several rows stem from one sample: those of the first kind are independent of each other
        a, b = [z[:, ::spaces] for z in a], [z[:, ::spaces] for z in b]
    entropies = [objective.negative_entropy([a[m] for m in group], [b[m] for m in group]) for group in groups]
    return invariance, constraint, torch.stack(entropies).sum(0)


def train_stack(stack: Stack, config: IdentifiabilityConfig, device: str, number: str = "") -> list[Row]:
    """Trains all runs of a stack side by side, and scores the best restart of each."""
    objective, runs = OBJECTIVES[stack.objective], stack.runs(config)
    data = Data(stack, config, device)
    torch.manual_seed(0)
    networks = Networks(stack, len(runs), config.hidden).to(device)
    optimizer = CosineAdam(networks.parameters(), config.lr, config.steps, device)
    rule = DualAscent(rule="geometric", lr=config.growth)
    weights = torch.full((len(runs), data.spaces), objective.weight, device=device)
    alive, tolerances = torch.ones_like(weights, dtype=torch.bool), torch.full_like(weights, config.tolerance)
    constraints, total = torch.zeros_like(weights), torch.zeros((), device=device)
    groups = objective.groups(stack.styles, stack.ablation)
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    n = config.batch // data.spaces * data.spaces
    generator = torch.Generator(device).manual_seed(0)

    def step() -> None:
        invariance, constraint, spread = measure(objective, networks, data.pairs(n, generator), groups, data.all_pairs)
        loss = (weights * invariance).sum() + spread.sum()
        optimizer.minimise(loss)
        constraints.copy_(constraint)
        total.copy_(loss.detach())

    name = f"{number} {stack.objective}, {stack.styles} styles, content of {stack.dim_c}: {len(runs)} runs"
    with ProgressBar(config.steps, 0, name, show=True) as bar:
        take = repeated(step, generator)
        for taken in range(config.steps):
            take()
            optimizer.advance()
            if objective.adapted and taken >= config.warmup * config.steps:
                weights.copy_(rule.step(weights, constraints, alive, tolerances))
            if (taken + 1) % 100 == 0:
                bar.show(float(total) / len(runs))
            bar.advance(taken + 1)
    losses = final_losses(objective, networks, data, groups, weights, config.restarts, n)
    torch.set_float32_matmul_precision(precision)
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
        invariance, _, spread = measure(objective, networks, data.pairs(n, generator), groups, data.all_pairs)
        losses.append((common * invariance).sum(1) + spread)
    return torch.stack(losses).mean(0)
