"""A count of what pixels hold of scale: ``python -m unweave.reproduce.sprite_spaces.pixel_scale``.

A space that is learned from pairs of views holds what the views share. With pixel transforms that is the width of the
sprite, the square root of its area, or any function of it that the other terms of the objective prefer. The count gives
the accuracy of the best classifier of scale, and of shape, from such codes of untransformed sprites; both should be
compared with the requirements on the scale space (scale at least 0.90, shape at most 0.43).

Legend: n sprites.
"""

import math

import torch
from torch import Tensor

from unweave import Sprites
from unweave.report import number
from unweave.reproduce.results import markdown
from unweave.reproduce.sprite_spaces.views import ZOOM
from unweave.reproduce.sprites.scores import with_noise

NEIGHBOURS = 40
STRIDE = 455_663
"""Prime to the number of sprites: multiples visit all values of every factor equally often."""


def widths(index: Tensor, size: int = 64) -> Tensor:
    """The square root of the area of each sprite, in pixels: (n,)."""
    sprites = Sprites(size)
    return torch.cat([(sprites[rows].amax(1) > 0).sum((1, 2)) for rows in index.split(1000)]).double().sqrt()


def quantiles(width: Tensor, shape: Tensor) -> Tensor:
    """Of each width, its place from 0 to 1 among all zoomed widths of its shape.

    This is what a scale space holds that fills its range and is independent of content, where sizes are changed by
    factors with a common distribution.
    """
    low, high = (math.log(value) for value in ZOOM)
    place = torch.empty_like(width)
    for value in shape.unique():
        log = width[shape == value].log()
        sizes, inverse, counts = log.unique(return_inverse=True, return_counts=True)
        below = ((sizes[:, None] - sizes - low) / (high - low)).clamp(
            0, 1
        )  # the part of each size's zooms below another
        place[shape == value] = (below @ counts.double() / len(log))[inverse]
    return place


def accuracy(code: Tensor, labels: Tensor) -> float:
    """Of a vote of the nearest neighbours of a code (n,), the first half of the rows against the other.

    It approaches the best possible accuracy of any function of the code, as n grows.
    """
    half = len(code) // 2
    known, order = code[:half].sort()
    place = torch.searchsorted(known, code[half:]).clamp(NEIGHBOURS, half - NEIGHBOURS - 1)
    votes = labels[:half][order][place[:, None] + torch.arange(-NEIGHBOURS, NEIGHBOURS + 1)]
    return float((votes.mode(1).values == labels[half:]).double().mean())


def count(n: int = 40_000) -> dict[str, dict[str, float]]:
    """Accuracies of scale and shape from each code with noise of 1% of its root mean square, as in all scores."""
    index = torch.arange(n) * STRIDE % Sprites.count
    factors, width = Sprites(8).factors(index), widths(index)
    codes = {
        "width, as pixel transforms set it": width,
        "width and shape": width + 100 * factors["shape"],
        "quantile of the width among those of its shape": quantiles(width, factors["shape"]),
    }
    noisy = {name: with_noise(code[:, None])[:, 0] for name, code in codes.items()}
    noisy["width and shape"] = noisy["width, as pixel transforms set it"] + 100 * factors["shape"]
    return {
        name: {factor: accuracy(code, factors[factor]) for factor in ("scale", "shape")} for name, code in noisy.items()
    }


if __name__ == "__main__":
    body = [[name, *(number(found[factor]) for factor in ("scale", "shape"))] for name, found in count().items()]
    print(markdown(["code", "scale (chance 0.17)", "shape (chance 0.33)"], body))
