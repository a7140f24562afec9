"""SimCLR as invariance and entropy, without the positive in the denominator.

Legend: n images, d dimensions, τ temperature.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unweave.errors import UnweaveError
from unweave.objectives.base import BaseMethod

Negatives = Literal["all", "other_view"]
Similarity = Literal["cosine", "euclidean"]

BLOCK = 2048
"""Anchors whose similarities are in memory at a time."""


def cosine(z_a: Tensor, z_b: Tensor) -> Tensor:
    """(n,)"""
    return (F.normalize(z_a, dim=1) * F.normalize(z_b, dim=1)).sum(1)


def squared_distance(z_a: Tensor, z_b: Tensor) -> Tensor:
    """(n,)"""
    return (z_a - z_b).square().sum(1)


def contrastive_entropy(
    z_a: Tensor,
    z_b: Tensor,
    temperature: float,
    negatives: Negatives = "all",
    block: int = BLOCK,
    similarity: Similarity = "cosine",
    decoupled: bool = True,
) -> Tensor:
    """mean_i log Σ_j exp(s(z_i, z_j) / τ), j running through the views of images other than i's.

    With ``decoupled=False`` the other view of i's own image is included, as in InfoNCE.

    The similarity s is z_i·z_j, of vectors that the caller has normalised, or −‖z_i − z_j‖². ``negatives="all"``
    compares both views of every image with both views of every other; ``"other_view"``, the form of the paper's
    table 1, compares view a of every image with view b of every other.

    Notes:
        Rows are processed in blocks, whose similarities are recomputed in the backward pass instead of being kept:
        memory grows with 2n·block, not (2n)².
    """
    n = len(z_a)
    anchors, others = (torch.cat([z_a, z_b]),) * 2 if negatives == "all" else (z_a, z_b)
    if len(anchors) <= block:
        return _log_sums(anchors, others, 0, n, temperature, similarity, decoupled).mean()
    how = (n, temperature, similarity, decoupled)
    sums = [
        checkpoint(_log_sums, rows, others, start, *how, use_reentrant=False, preserve_rng_state=False)
        for start, rows in zip(range(0, len(anchors), block), anchors.split(block), strict=True)
    ]
    return torch.cat(sums).mean()


def _log_sums(
    rows: Tensor, others: Tensor, start: int, n: int, temperature: float, similarity: Similarity, decoupled: bool
) -> Tensor:
    scores = rows @ others.T
    if similarity == "euclidean":
        scores = 2 * scores - rows.square().sum(1)[:, None] - others.square().sum(1)
    scores = scores / temperature
    place, other = (torch.arange(k, k + len(x), device=rows.device) for k, x in ((start, rows), (0, others)))
    if decoupled:
        scores = scores.masked_fill(place[:, None] % n == other % n, -math.inf)
    elif len(others) > n:  # a view is not a negative of itself
        scores = scores.masked_fill(place[:, None] == other, -math.inf)
    return scores.logsumexp(1)


@dataclass(frozen=True)
class SimCLR(BaseMethod):
    """inv = −mean cos(z_a, z_b)/τ,  ent = mean log Σ_negatives exp(cos/τ)  (paper, table 1, with τ explicit).

    With weight 1 this is the decoupled contrastive loss. For the joint entropy each space is L2-normalised; they are
    concatenated and divided by √(number of spaces), so that the joint embedding is a unit vector whose similarity is
    the mean of the spaces' similarities, unless ``joint_content`` gives content another weight.

    Examples:
        >>> import torch, unweave as uw
        >>> z = torch.nn.functional.normalize(torch.randn(16, 8), dim=1)
        >>> round(uw.SimCLR(temperature=0.2).invariance(z, z).item(), 3)  # -1/τ at full invariance
        -5.0
    """

    temperature: float = 0.15
    """τ."""
    joint_temperature: float | None = None
    """τ of the joint entropy; the same by default. A mean of similarities is flat, so a smaller one sharpens it."""
    joint_own_view: bool = False
    """Count the other view of the same image as a negative in the joint entropy. The two views have the same content
    and differ in style, so only the style spaces can separate them."""
    joint_content: float = 1.0
    """Weight of content's similarity in the joint one, relative to a style's. A larger one compares images of similar
    content, from which only style separates them; with 0 content is left out."""
    negatives: Negatives = "all"
    """Which views are compared."""
    block: int = BLOCK
    """Anchors whose similarities are in memory at a time."""
    similarity: Similarity = "cosine"
    """"euclidean" replaces the cosine by −‖z_a − z_b‖², for embeddings that fill a space instead of a sphere; nothing
    is normalised. Use it with ``decoupled=False``: without the positive the loss has no lower bound."""
    decoupled: bool = True
    """Leave the positive out of the denominator."""

    def __post_init__(self) -> None:
        for name in ("temperature", "joint_temperature"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UnweaveError(f"SimCLR: `{name}` must be positive, not {value}")
        if not 0 <= self.joint_content < math.inf:
            raise UnweaveError(f"SimCLR: `joint_content` cannot be negative or infinite: {self.joint_content}")
        if self.negatives not in ("all", "other_view"):
            raise UnweaveError(f"SimCLR: `negatives` is 'all' or 'other_view', not {self.negatives!r}")
        if self.similarity not in ("cosine", "euclidean"):
            raise UnweaveError(f"SimCLR: `similarity` is 'cosine' or 'euclidean', not {self.similarity!r}")

    def invariance(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """−mean cos(z_a, z_b)/τ"""
        if self.similarity == "euclidean":
            return squared_distance(z_a, z_b).mean() / self.temperature
        return -cosine(z_a, z_b).mean() / self.temperature

    def invariance_gap(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """1 − mean cos(z_a, z_b); or the squared distance of two views over that of different images."""
        if self.similarity == "euclidean":
            spread = 2 * torch.cat([z_a, z_b]).var(0, correction=0).sum()
            return squared_distance(z_a, z_b).mean() / spread.clamp(min=torch.finfo(z_a.dtype).tiny)
        # Half the squared distance is the same, and keeps its precision near 0.
        return squared_distance(F.normalize(z_a, dim=1), F.normalize(z_b, dim=1)).mean() / 2

    def entropy(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """mean log Σ_negatives exp(cos/τ)"""
        z_a, z_b = self._normalised(z_a), self._normalised(z_b)
        return contrastive_entropy(
            z_a, z_b, self.temperature, self.negatives, self.block, self.similarity, self.decoupled
        )

    def joint_entropy(self, z_a: Sequence[Tensor], z_b: Sequence[Tensor]) -> Tensor:
        """The same of [√κ·z_0/‖z_0‖, z_1/‖z_1‖, …, z_M/‖z_M‖]/√(M + 1), κ = ``joint_content``, at its temperature."""
        a, b = (self._joined(side) for side in (z_a, z_b))
        temperature = self.temperature if self.joint_temperature is None else self.joint_temperature
        decoupled = self.decoupled and not self.joint_own_view
        return contrastive_entropy(a, b, temperature, self.negatives, self.block, self.similarity, decoupled)

    def _joined(self, spaces: Sequence[Tensor]) -> Tensor:
        content, *styles = (self._normalised(z) for z in spaces)
        return torch.cat([math.sqrt(self.joint_content) * content, *styles], 1) / math.sqrt(len(spaces))

    def _normalised(self, z: Tensor) -> Tensor:
        return F.normalize(z, dim=1) if self.similarity == "cosine" else z

    def normalize(self, z: Tensor) -> Tensor:
        """Unit vectors times √d: the mean variance of a dimension is 1 where they are spread evenly, at most 1."""
        return self._normalised(z) * (math.sqrt(z.shape[1]) if self.similarity == "cosine" else 1.0)

    def distance_weight(self, d: int) -> float:
        """1 − cos is half the squared distance of unit vectors."""
        return (0.5 if self.similarity == "cosine" else float(d)) / self.temperature
