"""r² of content and of every style predicted from each φ_m, on augmented data.

Legend: r runs, M styles, n samples, k targets.
"""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave.data import StackedLatents
from unweave.evaluation import KernelRidge, mcc
from unweave.reproduce.identifiability.objectives import OBJECTIVES
from unweave.reproduce.results import Row

if TYPE_CHECKING:
    from unweave.reproduce.identifiability.run import Data, IdentifiabilityConfig, Networks, Stack

CHUNK = 64
"""Regressions solved at a time."""


@torch.no_grad()
def score_runs(
    stack: "Stack",
    runs: list[tuple[str, int]],
    data: "Data",
    networks: "Networks",
    lambdas: Tensor,
    losses: Tensor,
    config: "IdentifiabilityConfig",
) -> list[Row]:
    """One row for each setting and seed, of the restart with the lowest loss."""
    best = losses.view(-1, config.restarts).argmin(1) + torch.arange(
        0, len(runs), config.restarts, device=losses.device
    )
    n = config.fit + config.test
    generator = torch.Generator(lambdas.device).manual_seed(1)
    latents = [_sample(part, n, generator) for part in data.parts]
    x, content, style, rank = (torch.cat(parts) for parts in zip(*latents, strict=True))
    spaces = [OBJECTIVES[stack.objective].outputs(z)[best] for z in networks(x)]
    content, style, rank = content[best], style[best], rank[best]
    variables = style.chunk(stack.styles, -1)
    targets = torch.cat([content, style, rank], -1)
    scores, floors = _r2(spaces, targets, config), _r2([content, *variables], targets, config)

    rows = []
    for i, run in enumerate(best.tolist()):
        setting, seed = runs[run]
        own, leak = _own_and_leak(scores[i], floors[i], content.shape[-1], stack.styles)
        exogenous = scores[i, 1:, content.shape[-1] + style.shape[-1] :].unflatten(1, (stack.styles, -1)).mean(-1)
        rows.append(
            {
                "setting": setting,
                "objective": stack.objective,
                "ablation": stack.ablation,
                "styles": stack.styles,
                "dim_c": stack.dim_c,
                "seed": seed,
                "content_r2": float(own[0]),
                "diagonal": float(own[1:].mean()),
                "leak": leak,
                "exogenous": float(exogenous.diagonal().mean()),
                "mcc": mcc(torch.cat([z[i] for z in spaces[1:]], -1), style[i]),
                "diagonal_worst": float(own[1:].min()),
                "r2": [
                    [round(v, 3) for v in row] for row in scores[i, :, : content.shape[-1] + style.shape[-1]].tolist()
                ],
                "variance": [round(float(z[i].var(0).mean()), 6) for z in spaces],
                "lambda": [round(v, 2) for v in lambdas[run].tolist()],
                "losses": [round(v, 4) for v in losses.view(-1, config.restarts)[i].tolist()],
            }
        )
    return rows


def _sample(latents: StackedLatents, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x̃ = f(c, s̃), c, s̃ and the rank of s̃ given c."""
    content, style = latents.sample(n, generator)
    style = latents.perturb(style, generator)
    return latents.observe(content, style), content, style, latents.conditional_rank(content, style)


def _r2(features: list[Tensor], targets: Tensor, config: "IdentifiabilityConfig") -> Tensor:
    """r² of every target (r, n, k) from each of the features (r, n, d_m): (r, M + 1, k)."""
    widest = max(z.shape[-1] for z in features)
    x = torch.stack([F.pad(z, (0, widest - z.shape[-1])) for z in features], 1).flatten(0, 1)
    y = targets[:, None].expand(-1, len(features), -1, -1).flatten(0, 1)
    scores = []
    for part, goal in zip(x.split(CHUNK), y.split(CHUNK), strict=True):
        probe = KernelRidge(landmarks=config.landmarks).fit(part[:, : config.fit], goal[:, : config.fit])
        scores.append(probe.scores(part[:, config.fit :], goal[:, config.fit :]).cpu())
    return torch.cat(scores).unflatten(0, (-1, len(features)))


def _own_and_leak(scores: Tensor, floors: Tensor, dim_c: int, styles: int) -> tuple[Tensor, float]:
    """r² of each space's own variable, averaged over its dimensions, (M + 1,), and the largest leak.

    A leak is the r² of a dimension that is not a space's own, minus the r² of predicting it from the true own variable.
    """
    size = (scores.shape[-1] - dim_c) // (2 * styles)  # styles, and their ranks after them
    variable = torch.cat([torch.zeros(dim_c), torch.arange(styles * size) // size + 1])
    own = variable == torch.arange(styles + 1)[:, None]
    scores, floors = scores[:, : len(variable)], floors[:, : len(variable)]
    leak = (scores - floors).masked_fill(own, -torch.inf).max()
    return (scores * own).sum(1) / own.sum(1), float(leak)
