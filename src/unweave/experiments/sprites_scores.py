"""What an embedding of sprites tells of every factor: as the paper scores it, and as one ought to.

Legend: n images, d dimensions.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave.data.sprites import SHAPES, Sprites
from unweave.evaluation.plain import LogisticRegression, Ridge
from unweave.evaluation.probes import ClassProbe, RidgeProbe
from unweave.objectives import effective_rank, variance

CATEGORIES = {"shape": 3, "color": 10, "scale": 6}
FACTORS = ("shape", "color", "scale", "orientation", "x", "y")
STYLES = FACTORS[1:]
NOISE = 0.01
"""Of the features' own size, in the third way of probing."""


@torch.no_grad()
def score_row(z: Tensor, factors: dict[str, Tensor], geometry: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """Every factor from z (n, d), the first half of the rows fitting, the other half scored, in four ways.

    At unit length, with scikit-learn's default penalties; the same at the length it happens to have (``raw``);
    standardised; and with noise of 1% of its size. SimCLR and Barlow Twins do not see a length: theirs comes out in the
    hundreds, and a fixed penalty hears the more the longer an embedding is. Shape, color and scale are accuracies,
    orientation, x and y r². ``one_hot`` has r² throughout: of one-hot targets, and of sine and cosine of the
    orientation times the order of the shape's symmetry.
    """
    unit = F.normalize(z, dim=1)
    size = (z - z.mean(0)).square().mean().sqrt()
    noise = torch.randn(z.shape, generator=torch.Generator().manual_seed(0)).to(z)
    standardised, noisy = (z - z.mean(0)) / z.std(0).clamp(min=1e-12), z + NOISE * size * noise
    plain = _scores(unit, factors, LogisticRegression, Ridge)
    return {
        **plain,
        "style_mean": sum(plain[name] for name in STYLES) / len(STYLES),
        "variance": float(variance(geometry(z))),
        "effective_rank": float(effective_rank(geometry(z))),
        "length": float(z.norm(dim=1).mean()),
        "raw": _scores(z, factors, LogisticRegression, Ridge),
        "standardised": _scores(standardised, factors, ClassProbe, RidgeProbe),
        "noisy": _scores(noisy, factors, ClassProbe, RidgeProbe),
        "one_hot": {name: _half(unit, y, Ridge()) for name, y in regression_targets(factors).items()},
    }


def _scores(z: Tensor, factors: dict[str, Tensor], classify: Any, regress: Any) -> dict[str, float]:
    return {
        name: _half(z, factors[name], classify())
        if name in CATEGORIES
        else _half(z, factors[name].double()[:, None], regress())
        for name in FACTORS
    }


def _half(z: Tensor, y: Tensor, probe: Any) -> float:
    half = len(z) // 2
    return float(probe.fit(z[:half], y[:half]).score(z[half:], y[half:]))


def regression_targets(factors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Every factor as numbers: one-hot, circular, or as it is."""
    targets = {name: F.one_hot(factors[name], values).double() for name, values in CATEGORIES.items()}
    # A square looks the same after a quarter of a turn, an ellipse after half of one.
    order = torch.tensor([4, 2, 1], device=factors["shape"].device)[factors["shape"]]
    angle = factors["orientation"] * (2 * math.pi / 39) * order
    targets["orientation"] = torch.stack([angle.sin(), angle.cos()], 1).double()
    return {**targets, **{name: factors[name].double()[:, None] for name in ("x", "y")}}


HEART = SHAPES.index("heart")


def half_score(z: Tensor, factors: dict[str, Tensor], name: str) -> float:
    """One factor from z by a plain probe: accuracy of categories; r² of places, and of a heart's sine and cosine."""
    if name in CATEGORIES:
        return _half(z, factors[name], LogisticRegression())
    if name != "orientation":
        return _half(z, factors[name].double()[:, None], Ridge())
    hearts = factors["shape"] == HEART
    angle = factors["orientation"][hearts] * (2 * math.pi / 39)
    return _half(z[hearts], torch.stack([angle.sin(), angle.cos()], 1).double(), Ridge())


def width_score(z: Tensor, factors: dict[str, Tensor]) -> float:
    """r² of the square root of a sprite's area: what an image shows of its scale, another for each shape."""
    width = (Sprites().render(factors).amax(1) > 0).sum((1, 2)).sqrt()
    return _half(z, width.double()[:, None], Ridge())


def scale_across_shapes(z: Tensor, factors: dict[str, Tensor]) -> dict[str, dict[str, float]]:
    """Accuracy of scale by plain probes, each fitted on one shape, scored on all: does a scale mean the same for each?

    Of z (n, d), the first half of the rows fitting, the other half scored.
    """
    half, scale = len(z) // 2, factors["scale"]
    of_shape = {name: factors["shape"] == i for i, name in enumerate(SHAPES)}
    found = {}
    for name, rows in of_shape.items():
        probe = LogisticRegression().fit(z[:half][rows[:half]], scale[:half][rows[:half]])
        found[name] = {
            other: float(probe.score(z[half:][at[half:]], scale[half:][at[half:]])) for other, at in of_shape.items()
        }
    return found
