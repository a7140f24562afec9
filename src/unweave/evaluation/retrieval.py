"""Scores of a search: precision among the first k, and average precision.

Legend: m queries, n images that are searched, d dimensions.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unweave.errors import UnweaveError

Rows = Callable[[slice], Tensor]
"""Rows of a matrix (n, n) that is too large to keep: a slice of queries to (m, n)."""
BLOCK = 2**22
"""Pairs of images that are scored at a time."""


def precision_at(scores: Tensor, relevant: Tensor, k: int) -> Tensor:
    """The share of relevant images among the k with the largest scores, for each query (m,).

    Args:
        scores: (m, n); −∞ where an image is not searched.
        relevant: (m, n) of booleans.
        k: how many images are found.

    Notes:
        Where images with equal scores compete for the last places, this is the expectation over their orders.

    Examples:
        >>> scores = torch.tensor([[0.9, 0.8, 0.7, 0.6]])
        >>> precision_at(scores, torch.tensor([[True, False, True, True]]), 2)
        tensor([0.5000], dtype=torch.float64)
    """
    return _Ranking(scores, relevant).precision_at(k)


def average_precision(scores: Tensor, relevant: Tensor) -> Tensor:
    """The mean over a query's relevant images of the precision at the rank of each, for each query (m,).

    It is scikit-learn's ``average_precision_score``, also where scores are equal, and not the interpolated one of
    ``mean_average_precision``. A query without relevant images has NaN. Arguments are those of ``precision_at``.

    Examples:
        >>> scores = torch.tensor([[0.9, 0.8, 0.7, 0.6]])
        >>> average_precision(scores, torch.tensor([[True, False, True, False]]))  # (1/1 + 2/3) / 2
        tensor([0.8333], dtype=torch.float64)
    """
    return _Ranking(scores, relevant).average_precision()


class _Ranking:
    """The scores of each query in order. Ranks are found by bisection, for the relevant images alone."""

    def __init__(self, scores: Tensor, relevant: Tensor) -> None:
        self._n, self._count = scores.shape[1], relevant.sum(1)
        self._rising = _sorted(scores)
        most = int(self._count.max()) if len(scores) else 0
        self._hits = scores.where(relevant, -torch.inf).topk(most, 1).values  # falling
        self._known = torch.arange(most, device=scores.device) < self._count[:, None]

    def precision_at(self, k: int) -> Tensor:
        last = self._rising[:, self._n - k, None].contiguous()
        below, not_above = (torch.searchsorted(self._rising, last, right=right) for right in (False, True))
        certain = ((self._hits > last) & self._known).sum(1)
        tied = ((self._hits == last) & self._known).sum(1)
        places = k - (self._n - not_above[:, 0])
        return (certain.double() + places * tied / (not_above - below)[:, 0]) / k

    def average_precision(self) -> Tensor:
        # Images with equal scores have the rank of the last of them.
        rank = self._n - torch.searchsorted(self._rising, self._hits)
        found = self._hits.shape[1] - torch.searchsorted(self._hits.flip(1), self._hits)
        precision = (found.double() / rank).where(self._known, 0.0)
        return precision.sum(1) / self._count


def _sorted(scores: Tensor) -> Tensor:
    """Each row in rising order; numpy, which does not sort indices with it, is several times as fast on a CPU."""
    if scores.device.type == "cpu":
        return torch.from_numpy(np.sort(scores.numpy(), axis=1))
    return scores.sort(1).values


def expected_average_precision(relevant: Tensor, n: int) -> Tensor:
    """The expectation of the average precision where n images are in random order.

    Args:
        relevant: how many of the images are relevant, for each query (m,).
        n: the number of images.

    Notes:
        The image at rank i is relevant with probability r/n, and then each of the i − 1 before it with probability
        (r − 1)/(n − 1). For few relevant images this exceeds r/n, the expectation of the precision.

    Examples:
        >>> expected_average_precision(torch.tensor([1, 2]), 2)  # one relevant image: (1/1 + 1/2) / 2
        tensor([0.7500, 1.0000], dtype=torch.float64)
    """
    harmonic = (1 / torch.arange(1, n + 1, dtype=torch.float64)).sum().item()
    return (harmonic + (relevant.double() - 1) / max(1, n - 1) * (n - harmonic)) / n


@dataclass(frozen=True)
class RetrievalScores:
    """Scores of the queries that have relevant images; see ``score_retrieval``.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> labels = torch.arange(60) % 3
        >>> z = F.one_hot(labels, 3) + 0.1 * torch.randn(60, 3)
        >>> scores = score_retrieval(cosine_scores(z), same_label(labels), 60, k=10)
        >>> round(scores.mean_precision, 2), round(scores.chance_precision, 2), scores.queries
        (1.0, 0.32, 60)
    """

    precision: Tensor
    """At k, (m,)."""
    average_precision: Tensor
    """(m,)."""
    relevant: Tensor
    """The number of relevant images of each query, (m,)."""
    searched: int
    """The number of images that each query searches."""

    @property
    def queries(self) -> int:
        """The number of queries that have relevant images."""
        return len(self.relevant)

    @property
    def mean_precision(self) -> float:
        """The mean precision at k."""
        return float(self.precision.mean())

    @property
    def mean_average_precision(self) -> float:
        """The mean average precision (mAP)."""
        return float(self.average_precision.mean())

    @property
    def chance_precision(self) -> float:
        """The mean precision of a random order."""
        return float(self.relevant.double().mean() / self.searched)

    @property
    def chance_average_precision(self) -> float:
        """The mean average precision of a random order, in expectation."""
        return float(expected_average_precision(self.relevant, self.searched).mean())


def score_retrieval(scores: Rows, relevant: Rows, n: int, *, k: int = 10) -> RetrievalScores:
    """Every one of n images searches the others; queries without relevant images are left out.

    Args:
        scores: the scores of all images for a slice of queries, larger is better, as ``cosine_scores`` gives them.
        relevant: whether images are relevant for a slice of queries, as ``same_label`` gives it.
        n: the number of images.
        k: how many images are found, for the precision.

    Raises:
        UnweaveError: there are fewer than k other images, or no query has a relevant one.

    Examples:
        >>> z, labels = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]), torch.tensor([0, 0, 1, 1])
        >>> score_retrieval(cosine_scores(z), same_label(labels), 4, k=1).mean_precision
        1.0
    """
    if not 1 <= k < n:
        raise UnweaveError(f"`k` must be between 1 and the number of other images, {n - 1}, not {k}")
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    block = max(1, BLOCK // n)
    for start in range(0, n, block):
        part = slice(start, min(start + block, n))
        similarity, true = scores(part).clone(), relevant(part).clone()
        number = torch.arange(len(true), device=true.device)
        similarity[number, number + start], true[number, number + start] = -torch.inf, False  # not itself
        count = true.sum(1)
        some = count > 0
        ranking = _Ranking(similarity[some], true[some])
        found.append((ranking.precision_at(k), ranking.average_precision(), count[some]))
    precision, average, count = (torch.cat(parts).cpu() for parts in zip(*found, strict=True))
    if not len(count):
        raise UnweaveError("no image has a relevant other one")
    return RetrievalScores(precision, average, count, n - 1)


def cosine_scores(z: Tensor) -> Rows:
    """The cosines between vectors (n, d).

    Examples:
        >>> cosine_scores(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))(slice(0, 1))
        tensor([[1., 0.]])
    """
    unit = F.normalize(z.float(), dim=1)
    return lambda part: unit[part] @ unit.T


def same_label(labels: Tensor) -> Rows:
    """Whether labels (n,) are equal.

    Examples:
        >>> same_label(torch.tensor([3, 5, 3]))(slice(0, 1))
        tensor([[ True, False,  True]])
    """
    return lambda part: labels[part, None] == labels
