"""Rules for λ on a small problem whose answer is known: ``python benchmarks/lambda_rules.py --out lambda_rules.json``.

Three contents are seen through a style s that decides how visible they are, as the scale of a sprite does, and a part
of the views does not show them at all, as where the edge cuts a sprite. The two views share s in part, or almost
entirely, as the views of a sprite share its place under weak augmentation. A second style is drawn anew for each view.
A right embedding has content (accuracy 1.00) and neither style (r² 0), by the headline scores of the sprites
experiment: unnormalised embeddings with 1% noise. 25 minutes on one core.
"""

import argparse
import json
import math
import warnings
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn

import unweave as uw
from unweave.models.encoder import output_layer, projector
from unweave.provenance import provenance

PENALTIES = [10.0**k for k in range(-6, 6)]
# method: base, last layer of the projector, first λ, smallest variance, η of the paper's rule
METHODS = {
    "simclr": (uw.SimCLR(0.25), "unit", 0.3, 0.3, 1.0),
    "vicreg": (uw.VICReg(), "linear", 4.0, 0.01, 100.0),
    "barlow_twins": (uw.BarlowTwins(), "standardised", 0.1, 0.3, 100.0),
}
GUARDED, FREE = 1.6, 0.0
"""Least effective rank: that of three contents with a margin, or none."""
# name: power of the distance, largest factor of λ, last layer ("own": the method's), least rank
OURS = {
    "power 2, × 100": (2.0, 100.0, "own", GUARDED),
    "power 1.5, × 100": (1.5, 100.0, "own", GUARDED),
    "power 1, × 100": (1.0, 100.0, "own", GUARDED),
    "power 1, × 1000": (1.0, 1000.0, "own", GUARDED),
    "power 1, × 100, no least rank": (1.0, 100.0, "own", FREE),
    "power 1, × 100, non-negative, no guard": (1.0, 100.0, "nonnegative", FREE),
    "power 1, × 1000, non-negative, no guard": (1.0, 1000.0, "nonnegative", FREE),
}
SHARED = {"in part": (0.25, 1.0), "almost": (0.08, 3.0)}
"""How far the views share s: the standard deviation of its jitter, and how strongly it shows."""


def views(content: Tensor, style: Tensor, lost: float, shared: str, generator: torch.Generator) -> Tensor:
    """A view (n, 8) of each sample: content by its visibility, a jittered style, and a style drawn anew."""
    n = len(content)
    jitter, strength = SHARED[shared]
    jittered = (style + jitter * torch.randn(n, generator=generator)).clamp(-1, 2)
    anew = torch.randn(n, 2, generator=generator)
    visible = 4 * torch.sigmoid(4 * jittered) * (torch.rand(n, generator=generator) > lost)
    return observe(content, visible, strength * jittered, anew, generator)


def observe(content: Tensor, visible: Tensor, style: Tensor, anew: Tensor, generator: torch.Generator) -> Tensor:
    x = torch.zeros(len(content), 8)
    x[:, :3] = visible[:, None] * torch.eye(3)[content] + 0.5 * torch.randn(len(content), 3, generator=generator)
    x[:, 3], x[:, 4:6] = style, anew
    return x


def train(
    objective: uw.DisentangledLoss, output: str, lost: float, shared: str, steps: int, scored: int
) -> dict[str, float]:
    torch.manual_seed(0)
    generator, n, lr = torch.Generator().manual_seed(0), 192, 3e-3
    network = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), projector(128, 128, 2, 16), output_layer(output, 16))
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = lr * (1 + math.cos(math.pi * step / steps)) / 2
        content, style = torch.randint(3, (n,), generator=generator), torch.rand(n, generator=generator)
        a, b = ({"content": network(views(content, style, lost, shared, generator))} for _ in "ab")
        terms = objective(a, b, torch.zeros(n, dtype=torch.long))
        optimizer.zero_grad()
        terms.loss.backward()
        optimizer.step()
        objective.update(terms)
    last = {name: values.item() for name, values in terms.per_space.items()}
    return {
        **score(network.eval(), generator, SHARED[shared][1], scored),
        **{name: last[name] for name in ("lambda", "variance", "effective_rank")},
    }


@torch.no_grad()
def score(network: nn.Module, generator: torch.Generator, strength: float, n: int) -> dict[str, float]:
    content, style = torch.randint(3, (n,), generator=generator), torch.rand(n, generator=generator)
    anew = torch.randn(n, 2, generator=generator)
    z = network(observe(content, 4 * torch.sigmoid(4 * style), strength * style, anew, generator))
    z = z + 0.01 * z.square().mean().sqrt() * torch.randn(z.shape, generator=torch.Generator().manual_seed(0))
    half = n // 2
    return {
        name: uw.LinearProbe(penalties=PENALTIES).fit(z[:half], y[:half]).score(z[half:], y[half:])
        for name, y in (("content", content), ("s", style), ("anew", anew[:, 0]))
    }


def objectives(method: str, steps: int) -> dict[str, tuple[uw.DisentangledLoss, str]]:
    """The objectives to compare, with the last layer of the projector."""
    base, output, start, least, eta = METHODS[method]
    unguarded = uw.CollapseGuard(min_variance=0.0)
    paper = uw.AdditiveAscent(lr=eta, tolerance=1e-3, warmup=steps // 5, stop=steps * 4 // 5)
    found = {
        "standard λ": (uw.DisentangledLoss(base, collapse_guard=unguarded), "linear"),
        "paper's rule": (uw.DisentangledLoss(base, lambda_rule=paper, collapse_guard=unguarded), "linear"),
    }
    for name, (power, factor, layer, rank) in OURS.items():
        rule = uw.DualAscent.over(steps, factor=factor, start=start)
        guard = unguarded if layer == "nonnegative" else uw.CollapseGuard(min_variance=least, min_rank=rank)
        objective = uw.DisentangledLoss(base, lambda_rule=rule, collapse_guard=guard, power=power)
        found[name] = objective, output if layer == "own" else layer
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    steps, scored = (3, 200) if arguments.quick else (2000, 4000)
    warnings.simplefilter("ignore", uw.objectives.CollapseWarning)
    rows = []
    problems = [(0.03, "in part")] if arguments.quick else list(product((0.03, 0.1), SHARED))
    for (lost, shared), method in product(problems, list(METHODS)[: 1 if arguments.quick else None]):
        for name, (objective, output) in objectives(method, steps).items():
            found = train(objective, output, lost, shared, steps, scored)
            rows.append({"lost": lost, "shared": shared, "method": method, "rule": name, **found})
            print(
                ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else str(v) for k, v in rows[-1].items()), flush=True
            )
    settings = {"steps": steps, "scored": scored, "seed": 0, "ours": OURS, "shared": SHARED}
    arguments.out.write_text(json.dumps({**provenance(), "settings": settings, "rows": rows}, indent=1) + "\n")
