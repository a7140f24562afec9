"""How well every factor of a sprite can be predicted linearly from an embedding.

A deterministic continuous map can hide a factor at a scale that only rounding limits, so noise decides what counts as
present. The headline scores are of unnormalised embeddings with noise of 1% of their root mean square.

Legend: n images, d dimensions.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave import LinearProbe, Sprites
from unweave.objectives import effective_rank, variance

CATEGORIES = {"shape": 3, "color": 10, "scale": 6}
FACTORS = ("shape", "color", "scale", "orientation", "x", "y")
STYLES = FACTORS[1:]
CHANCE = {"shape": 1 / 3, "color": 0.1, "scale": 1 / 6, "orientation": 0.0, "x": 0.0, "y": 0.0}
NOISE = 0.01
"""Standard deviation of the noise, relative to the embedding's root mean square."""
HEART = Sprites.shapes.index("heart")


@torch.no_grad()
def score_embedding(z: Tensor, factors: dict[str, Tensor], normalize: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """Scores of every factor from z (n, d); probes are fitted on the first half of the rows, scored on the other.

    Shape, color and scale are accuracies, orientation, x and y r², by ``LinearProbe``, whose penalty is cross-validated.
    The scores at the top level are the headline: of z with noise. Beside it ``noiseless`` of z, ``normalised`` of
    L2-normalised embeddings and ``standardised`` of standardised dimensions. ``one_hot`` has r² throughout, with noise.
    """
    noisy = with_noise(z)
    headline, targets = factor_scores(noisy, factors), regression_targets(factors)
    return {
        **headline,
        "style_mean": sum(headline[name] for name in STYLES) / len(STYLES),
        "variance": float(variance(normalize(z))),
        "effective_rank": float(effective_rank(normalize(z))),
        "length": float(z.norm(dim=1).mean()),
        "noiseless": factor_scores(z, factors),
        "normalised": factor_scores(F.normalize(z, dim=1), factors),
        "standardised": factor_scores((z - z.mean(0)) / z.std(0).clamp(min=1e-12), factors),
        "one_hot": {name: _half(noisy, y, "regression") for name, y in targets.items()},
    }


def with_noise(z: Tensor) -> Tensor:
    """z (n, d) with Gaussian noise of 1% of its root mean square, from a fixed seed."""
    noise = torch.randn(z.shape, generator=torch.Generator().manual_seed(0)).to(z)
    return z + NOISE * z.square().mean().sqrt() * noise


def factor_scores(z: Tensor, factors: dict[str, Tensor]) -> dict[str, float]:
    """Accuracy of shape, color and scale, r² of orientation, x and y."""
    targets = regression_targets(factors)
    return {
        name: _half(z, factors[name], "classes") if name in CATEGORIES else _half(z, targets[name], "regression")
        for name in FACTORS
    }


def _half(z: Tensor, y: Tensor, kind: Any) -> float:
    half = len(z) // 2
    return LinearProbe(kind).fit(z[:half], y[:half]).score(z[half:], y[half:])


def regression_targets(factors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Every factor as numbers: one-hot, circular, or unchanged."""
    targets = {name: F.one_hot(factors[name], values).double() for name, values in CATEGORIES.items()}
    # A square looks the same after a quarter of a turn, an ellipse after half a turn.
    order = torch.tensor([4, 2, 1], device=factors["shape"].device)[factors["shape"]]
    angle = factors["orientation"] * (2 * math.pi / 39) * order
    targets["orientation"] = torch.stack([angle.sin(), angle.cos()], 1).double()
    return {**targets, **{name: factors[name].double()[:, None] for name in ("x", "y")}}


def factor_score(z: Tensor, factors: dict[str, Tensor], name: str) -> float:
    """One factor: accuracy of categories, r² of positions.

    Orientation is the r² of its sine and cosine on hearts, which have no rotational symmetry.
    """
    if name in CATEGORIES:
        return _half(z, factors[name], "classes")
    if name != "orientation":
        return _half(z, factors[name].double()[:, None], "regression")
    hearts = factors["shape"] == HEART
    angle = factors["orientation"][hearts] * (2 * math.pi / 39)
    return _half(z[hearts], torch.stack([angle.sin(), angle.cos()], 1).double(), "regression")


def width_score(z: Tensor, factors: dict[str, Tensor]) -> float:
    """r² of the square root of a sprite's area: what pixels show of its scale, which differs by shape."""
    width = (Sprites().render(factors).amax(1) > 0).sum((1, 2)).sqrt()
    return _half(z, width.double()[:, None], "regression")


def scale_across_shapes(z: Tensor, factors: dict[str, Tensor]) -> dict[str, dict[str, float]]:
    """Accuracy of scale by probes that are fitted on one shape and scored on each: is the code the same for all shapes?

    Of z (n, d), the first half of the rows fitting, the other half scored.
    """
    half, scale = len(z) // 2, factors["scale"]
    of_shape = {name: factors["shape"] == i for i, name in enumerate(Sprites.shapes)}
    found = {}
    for name, rows in of_shape.items():
        probe = LinearProbe("classes").fit(z[:half][rows[:half]], scale[:half][rows[:half]])
        found[name] = {
            other: probe.score(z[half:][at[half:]], scale[half:][at[half:]]) for other, at in of_shape.items()
        }
    return found
