"""How often views confuse colors and shapes: ``python -m unweave.reproduce.sprites.confusion --out confusion.json``.

An objective on pairs of views keeps what the two views of an image rarely disagree about. This estimates, for each
strength, in how many pairs the best guesses from the two views differ: guesses of shape, and of the group that a color
belongs to. Colors are joined into groups until the guesses differ in less than a given share of the pairs. Of two
factors the one with more disagreement is lost first as λ grows. About 20 minutes on 2 CPU cores.

Legend: n views, k colors or groups.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave import SmallConvNet, Sprites
from unweave import augment as A
from unweave.console import ProgressBar
from unweave.files import write_text
from unweave.provenance import provenance
from unweave.reproduce.sprite_training import split_sprites
from unweave.reproduce.sprites.views import STRENGTHS, color_groups, sprite_views

SHARES = (0.001, 0.003, 0.01, 0.03, 0.1)
"""Of pairs in which groups of colors may differ."""
NEIGHBOURS = 25
BATCH = 128
LAYERS = ((16, 2), (32, 1), (32, 2), (64, 1), (64, 2))
"""Width and stride of the convolutions of the network that names the shape."""


@torch.no_grad()
def color_confusion(strength: str, draws: int) -> Tensor:
    """The color that the neighbours of a jittered one vote for: (k, k), a row of probabilities for each color."""
    jitter = [t for t in STRENGTHS[strength].transforms() if isinstance(t, (A.ColorJitter, A.RandomGrayscale))]
    generator = torch.Generator().manual_seed(0)
    seen = []
    for color in Sprites.default_palette:
        images = torch.zeros(2 * draws, 3, 5, 5)  # a sprite covers about a tenth of its image
        images[:, :, 2, 1:3] = torch.tensor(color).view(3, 1) / 255
        for transform in jitter:
            images = transform(images, generator=generator)
        seen.append(images[:, :, 2, 1])
    known, asked = (torch.cat([views[half::2] for views in seen]) for half in (0, 1))
    k = len(seen)
    labels = torch.arange(k).repeat_interleave(draws)
    guesses = torch.cat(
        [
            F.one_hot(labels[torch.cdist(part, known).topk(NEIGHBOURS, largest=False).indices], k).sum(1).argmax(1)
            for part in asked.split(2000)
        ]
    )
    return torch.stack([F.one_hot(guesses[labels == color], k).double().mean(0) for color in range(k)])


def disagreement(confusion: Tensor, groups: list[list[int]]) -> float:
    """The share of pairs of views of one color whose guesses are in different groups."""
    of_groups = torch.stack([confusion[:, group].sum(1) for group in groups], 1)  # (k, groups)
    return float((1 - of_groups.square().sum(1)).mean())


def joined(confusion: Tensor, share: float) -> list[list[int]]:
    """Colors, joined two groups at a time, those first whose union lowers the disagreement most, until it is small.

    Examples:
        >>> joined(torch.tensor([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.0, 0.0, 1.0]]).double(), 0.05)
        [[0, 1], [2]]
    """
    groups = [[color] for color in range(len(confusion))]
    while disagreement(confusion, groups) > share:
        unions = [
            [*(group for group in groups if group not in (a, b)), sorted(a + b)]
            for place, a in enumerate(groups)
            for b in groups[:place]
        ]
        groups = min(unions, key=lambda union: disagreement(confusion, union))
    return sorted(groups)


def shape_confusion(
    strength: str, kind: str = "release", *, steps: int, scored: int, seed: int = 0
) -> dict[str, float]:
    """A network that is trained to name the shape in views; how often it is wrong, and differs between two views."""
    views, sprites = sprite_views(strength, kind), Sprites(64)
    train_index, held_out = split_sprites(scored)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    backbone = SmallConvNet(64, LAYERS, pooled=True)
    network = torch.nn.Sequential(backbone, torch.nn.Linear(backbone.num_features, len(Sprites.shapes)))
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    with ProgressBar(steps, 0, f"shape, {strength}", show=True) as bar:
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = 2e-3 * (1 + math.cos(math.pi * step / steps)) / 2
            rows = train_index[torch.randint(len(train_index), (BATCH,), generator=generator)]
            pair = views(sprites[rows], generator=generator)
            shape = sprites.factors(rows)["shape"]
            with torch.autocast("cpu", torch.bfloat16):
                guesses = network(torch.cat([pair.a, pair.b]))
            loss = F.cross_entropy(guesses.float(), shape.repeat(2))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.advance(step + 1)
    return _differences(network.eval(), views, sprites, held_out, generator)


@torch.no_grad()
def _differences(network: Any, views: Any, sprites: Sprites, index: Tensor, generator: Any) -> dict[str, float]:
    wrong = differing = 0
    for rows in index.split(500):
        pair = views(sprites[rows], generator=generator)
        a, b = network(pair.a).argmax(1), network(pair.b).argmax(1)
        differing += int((a != b).sum())
        wrong += int((a != sprites.factors(rows)["shape"]).sum())
    return {"error": wrong / len(index), "disagreement": differing / len(index)}


def count(
    strength: str, kind: str = "release", *, draws: int = 6000, steps: int = 2500, scored: int = 20_000
) -> dict[str, Any]:
    """What views of this strength confuse."""
    confusion = color_confusion(strength, draws)
    alone = [[color] for color in range(len(confusion))]
    groups = {str(share): joined(confusion, share) for share in SHARES}
    return {
        "strength": strength,
        "views": kind,
        "color_disagreement": round(disagreement(confusion, alone), 5),
        "color_groups": groups,
        "group_disagreement": {share: round(disagreement(confusion, found), 5) for share, found in groups.items()},
        "groups_by_contact": color_groups(strength),
        "shape": {
            name: round(value, 5) for name, value in shape_confusion(strength, kind, steps=steps, scored=scored).items()
        },
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--views", choices=("release", "whole"), default="release")
    parser.add_argument("--quick", action="store_true", help="a test")
    arguments = parser.parse_args()
    settings = (
        {"draws": 60, "steps": 2, "scored": 100}
        if arguments.quick
        else {"draws": 6000, "steps": 2500, "scored": 20_000}
    )
    started, rows = time.perf_counter(), []
    for strength in STRENGTHS:
        rows.append(count(strength, arguments.views, **settings))
        print(rows[-1], flush=True)
        seconds = round(time.perf_counter() - started, 1)
        report = {
            **provenance(),
            "settings": {**settings, "neighbours": NEIGHBOURS, "batch": BATCH, "layers": LAYERS, "seed": 0},
            "seconds": seconds,
        }
        write_text(arguments.out, json.dumps({**report, "rows": rows}, indent=1) + "\n")
