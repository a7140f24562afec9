"""How well every factor of a sprite can be predicted from an embedding, by four kinds of probes.

Legend: n images, d dimensions.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave import Sprites
from unweave.evaluation import ClassProbe, LogisticRegression, RidgeProbe, RidgeRegression
from unweave.objectives import effective_rank, variance

CATEGORIES = {"shape": 3, "color": 10, "scale": 6}
FACTORS = ("shape", "color", "scale", "orientation", "x", "y")
STYLES = FACTORS[1:]
CHANCE = {"shape": 1 / 3, "color": 0.1, "scale": 1 / 6, "orientation": 0.0, "x": 0.0, "y": 0.0}
NOISE = 0.01
"""Standard deviation of the noise of the noisy probe, relative to the embedding's."""
HEART = Sprites.shapes.index("heart")


@torch.no_grad()
def score_embedding(z: Tensor, factors: dict[str, Tensor], normalize: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """Scores of every factor from z (n, d); probes are fitted on the first half of the rows, scored on the other.

    Shape, color and scale are accuracies, orientation, x and y r². The scores at the top level are of L2-normalised
    embeddings with scikit-learn's default penalties; ``raw`` of unnormalised ones; ``standardised`` of standardised
    dimensions, and ``noisy`` of embeddings with 1% noise, with a penalty chosen on held-out rows. ``one_hot`` has r²
    throughout: of one-hot targets, and of sine and cosine of the orientation times the order of the shape's symmetry.
    """
    unit = F.normalize(z, dim=1)
    size = (z - z.mean(0)).square().mean().sqrt()
    noise = torch.randn(z.shape, generator=torch.Generator().manual_seed(0)).to(z)
    standardised, noisy = (z - z.mean(0)) / z.std(0).clamp(min=1e-12), z + NOISE * size * noise
    normalised = _scores(unit, factors, LogisticRegression, RidgeRegression)
    return {
        **normalised,
        "style_mean": sum(normalised[name] for name in STYLES) / len(STYLES),
        "variance": float(variance(normalize(z))),
        "effective_rank": float(effective_rank(normalize(z))),
        "length": float(z.norm(dim=1).mean()),
        "raw": _scores(z, factors, LogisticRegression, RidgeRegression),
        "standardised": _scores(standardised, factors, ClassProbe, RidgeProbe),
        "noisy": _scores(noisy, factors, ClassProbe, RidgeProbe),
        "one_hot": {name: _half(unit, y, RidgeRegression()) for name, y in regression_targets(factors).items()},
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
    """Every factor as numbers: one-hot, circular, or unchanged."""
    targets = {name: F.one_hot(factors[name], values).double() for name, values in CATEGORIES.items()}
    # A square looks the same after a quarter of a turn, an ellipse after half a turn.
    order = torch.tensor([4, 2, 1], device=factors["shape"].device)[factors["shape"]]
    angle = factors["orientation"] * (2 * math.pi / 39) * order
    targets["orientation"] = torch.stack([angle.sin(), angle.cos()], 1).double()
    return {**targets, **{name: factors[name].double()[:, None] for name in ("x", "y")}}


def factor_score(z: Tensor, factors: dict[str, Tensor], name: str) -> float:
    """One factor with scikit-learn's default penalties: accuracy of categories, r² of positions.

    Orientation is the r² of its sine and cosine on hearts, which have no rotational symmetry.
    """
    if name in CATEGORIES:
        return _half(z, factors[name], LogisticRegression())
    if name != "orientation":
        return _half(z, factors[name].double()[:, None], RidgeRegression())
    hearts = factors["shape"] == HEART
    angle = factors["orientation"][hearts] * (2 * math.pi / 39)
    return _half(z[hearts], torch.stack([angle.sin(), angle.cos()], 1).double(), RidgeRegression())


def width_score(z: Tensor, factors: dict[str, Tensor]) -> float:
    """r² of the square root of a sprite's area: what pixels show of its scale, which differs by shape."""
    width = (Sprites().render(factors).amax(1) > 0).sum((1, 2)).sqrt()
    return _half(z, width.double()[:, None], RidgeRegression())


def scale_across_shapes(z: Tensor, factors: dict[str, Tensor]) -> dict[str, dict[str, float]]:
    """Accuracy of scale by probes that are fitted on one shape and scored on each: is the code the same for all shapes?

    Of z (n, d), the first half of the rows fitting, the other half scored.
    """
    half, scale = len(z) // 2, factors["scale"]
    of_shape = {name: factors["shape"] == i for i, name in enumerate(Sprites.shapes)}
    found = {}
    for name, rows in of_shape.items():
        probe = LogisticRegression().fit(z[:half][rows[:half]], scale[:half][rows[:half]])
        found[name] = {
            other: float(probe.score(z[half:][at[half:]], scale[half:][at[half:]])) for other, at in of_shape.items()
        }
    return found
