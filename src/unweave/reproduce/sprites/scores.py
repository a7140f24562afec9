"""How well every factor of a sprite can be predicted linearly from an embedding.

A deterministic continuous map can hide a factor at a scale that only rounding limits, so noise decides what counts as
present. The headline scores are of unnormalised embeddings with noise of 1% of their root mean square.

Legend: n images, d dimensions.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave import LinearProbe, Sprites
from unweave.evaluation import PENALTIES
from unweave.objectives import effective_rank, variance

CATEGORIES = {"shape": 3, "color": 10, "scale": 6}
FACTORS = ("shape", "color", "scale", "orientation", "x", "y")
STYLES = FACTORS[1:]
CHANCE = {"shape": 1 / 3, "color": 0.1, "scale": 1 / 6, "orientation": 0.0, "x": 0.0, "y": 0.0}
NOISE = 0.01
"""Standard deviation of the noise, relative to the embedding's root mean square."""
HEART = Sprites.shapes.index("heart")


class SpriteScores:
    """Linear probes of factors (by name, (n,) each): fitted on the first half of the rows, scored on the other.

    The penalty is cross-validated among ``penalties``.
    """

    def __init__(self, factors: dict[str, Tensor], penalties: Sequence[float] = PENALTIES) -> None:
        self.factors, self.penalties = factors, penalties

    def __call__(self, z: Tensor) -> dict[str, float]:
        """From z (n, d): accuracy of shape, color and scale, r² of orientation (for all shapes), x and y."""
        targets = regression_targets(self.factors)
        return {
            name: self._half(z, self.factors[name]) if name in CATEGORIES else self._half(z, targets[name])
            for name in FACTORS
        }

    def one_hot(self, z: Tensor) -> dict[str, float]:
        """r² of every factor, categories as one-hot targets."""
        return {name: self._half(z, y) for name, y in regression_targets(self.factors).items()}

    def own(self, z: Tensor, name: str) -> float:
        """One factor; orientation is the r² of its sine and cosine on hearts, which have no rotational symmetry."""
        if name in CATEGORIES:
            return self._half(z, self.factors[name])
        if name != "orientation":
            return self._half(z, self.factors[name].double()[:, None])
        hearts = self.factors["shape"] == HEART
        angle = self.factors["orientation"][hearts] * (2 * math.pi / 39)
        return self._half(z[hearts], torch.stack([angle.sin(), angle.cos()], 1).double())

    def width(self, z: Tensor) -> float:
        """r² of the square root of a sprite's area: what pixels show of its scale, which differs by shape."""
        width = (Sprites().render(self.factors).amax(1) > 0).sum((1, 2)).sqrt()
        return self._half(z, width.double()[:, None])

    def scale_across_shapes(self, z: Tensor) -> dict[str, dict[str, float]]:
        """Accuracy of scale by probes fitted on one shape and scored on each: is the code the same for all shapes?"""
        half, scale = len(z) // 2, self.factors["scale"]
        of_shape = {name: self.factors["shape"] == i for i, name in enumerate(Sprites.shapes)}
        found = {}
        for name, rows in of_shape.items():
            probe = self._probe("classes").fit(z[:half][rows[:half]], scale[:half][rows[:half]])
            found[name] = {
                other: probe.score(z[half:][at[half:]], scale[half:][at[half:]]) for other, at in of_shape.items()
            }
        return found

    def _half(self, z: Tensor, y: Tensor) -> float:
        half = len(z) // 2
        probe = self._probe("regression" if y.is_floating_point() else "classes")
        return probe.fit(z[:half], y[:half]).score(z[half:], y[half:])

    def _probe(self, kind: Literal["classes", "regression"]) -> LinearProbe:
        return LinearProbe(kind, penalties=self.penalties)


@torch.no_grad()
def score_headline(z: Tensor, scores: SpriteScores, normalize: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """Scores of every factor from z (n, d) with noise, and what else is measured of z."""
    headline = scores(with_noise(z))
    return {
        **headline,
        "style_mean": sum(headline[name] for name in STYLES) / len(STYLES),
        "variance": float(variance(normalize(z))),
        "effective_rank": float(effective_rank(normalize(z))),
        "length": float(z.norm(dim=1).mean()),
    }


@torch.no_grad()
def score_embedding(z: Tensor, scores: SpriteScores, normalize: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """The headline, and beside it the scores of other forms of z (n, d).

    ``noiseless`` of z itself, ``normalised`` of L2-normalised embeddings, ``standardised`` of standardised dimensions;
    ``one_hot`` has r² throughout, with noise.
    """
    return {
        **score_headline(z, scores, normalize),
        "noiseless": scores(z),
        "normalised": scores(F.normalize(z, dim=1)),
        "standardised": scores((z - z.mean(0)) / z.std(0).clamp(min=1e-12)),
        "one_hot": scores.one_hot(with_noise(z)),
    }


def with_noise(z: Tensor) -> Tensor:
    """z (n, d) with Gaussian noise of 1% of its root mean square, from a fixed seed."""
    noise = torch.randn(z.shape, generator=torch.Generator().manual_seed(0)).to(z)
    return z + NOISE * z.square().mean().sqrt() * noise


def regression_targets(factors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Every factor as numbers: one-hot, circular, or unchanged."""
    targets = {name: F.one_hot(factors[name], values).double() for name, values in CATEGORIES.items()}
    # A square looks the same after a quarter of a turn, an ellipse after half a turn.
    order = torch.tensor([4, 2, 1], device=factors["shape"].device)[factors["shape"]]
    angle = factors["orientation"] * (2 * math.pi / 39) * order
    targets["orientation"] = torch.stack([angle.sin(), angle.cos()], 1).double()
    return {**targets, **{name: factors[name].double()[:, None] for name in ("x", "y")}}
