"""The table of spaces × factors: how well each known factor can be predicted linearly from each embedding space."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unweave.errors import UnweaveError
from unweave.evaluation.features import as_tensor
from unweave.evaluation.probes import ClassProbe, RidgeProbe
from unweave.evaluation.targets import as_targets
from unweave.objectives import effective_rank, variance


@dataclass(frozen=True)
class SpaceScores:
    """Linear scores of every factor from every space, with chance, and each space's variance and effective rank.

    Examples:
        >>> z = torch.randn(100, 4)
        >>> sorted(score_spaces({"content": z}, {"x": z[:, 0]}).as_dict())
        ['chance', 'effective_rank', 'factors', 'scores', 'spaces', 'variance']
    """

    spaces: list[str]
    factors: list[str]
    scores: dict[str, dict[str, float]]
    chance: dict[str, float]
    variance: dict[str, float]
    effective_rank: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@torch.no_grad()
def score_spaces(
    embeddings: Mapping[str, Any],
    factors: Mapping[str, Any],
    *,
    categories: Collection[str] = (),
    normalize: Callable[[Tensor], Tensor] = lambda z: z,
    test_fraction: float = 0.5,
    seed: int = 0,
) -> SpaceScores:
    """Fits linear probes of every factor from every space on random rows and scores them on the others.

    Args:
        embeddings: (n, d) by space, tensors or arrays.
        factors: (n,) by factor, tensors or arrays; those in ``categories`` are scored by accuracy, all others by r².
        normalize: the geometry of the loss (``base.normalize``), in which variance and effective rank are measured.
        test_fraction: the fraction of rows that are scored.
        seed: of the random split.

    Examples:
        >>> z = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
        >>> table = score_spaces({"content": z}, {"x": z[:, 0]})
        >>> round(table.scores["content"]["x"], 2), table.chance
        (1.0, {'x': 0.0})
    """
    if unknown := set(categories) - set(factors):
        raise UnweaveError(f"`categories` {sorted(unknown)} are not factors; there are {sorted(factors)}")
    embeddings = {name: as_tensor(z, "embeddings") for name, z in embeddings.items()}
    factors = {name: _factor(value, name in categories) for name, value in factors.items()}
    rows = {len(value) for value in (*embeddings.values(), *factors.values())}
    if len(rows) != 1:
        raise UnweaveError(f"`embeddings` and `factors` have different numbers of rows: {sorted(rows)}")
    order = torch.randperm(n := rows.pop(), generator=torch.Generator().manual_seed(seed))
    test, fit = order[: round(n * test_fraction)], order[round(n * test_fraction) :]
    scores: dict[str, dict[str, float]] = {space: {} for space in embeddings}
    chance = {}
    for name, value in factors.items():
        chance[name] = _commonest(value[fit], value[test]) if name in categories else 0.0
        for space, z in embeddings.items():
            value = value.to(z.device)
            probe = ClassProbe() if name in categories else RidgeProbe()
            scores[space][name] = probe.fit(z[fit], value[fit]).score(z[test], value[test])
    return SpaceScores(
        spaces=list(embeddings),
        factors=list(factors),
        scores=scores,
        chance=chance,
        variance={space: float(variance(normalize(z.float()))) for space, z in embeddings.items()},
        effective_rank={space: float(effective_rank(normalize(z.float()))) for space, z in embeddings.items()},
    )


def _factor(value: Any, category: bool) -> Tensor:
    """Numbers, or the numbers of classes; texts are classes."""
    if isinstance(value, Tensor) or not category:
        return as_tensor(value, "factors")
    return as_targets(value, "classes", name="factors").values


def _commonest(fit: Tensor, test: Tensor) -> float:
    """The accuracy of always predicting the most common class."""
    return float((test == fit.mode().values).double().mean())


@torch.no_grad()
def compute_embeddings(
    encoder: nn.Module,
    images: Callable[[Tensor], Tensor],
    index: Tensor,
    *,
    batch_size: int = 512,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, Tensor]:
    """h and the embedding in every space of the images with these numbers.

    ``images`` maps an index (n,) to images as the encoder expects them, such as ``views.prepare`` makes.
    ``on_progress`` is called with the number of images of each batch that is done.

    Examples:
        >>> import unweave as uw
        >>> encoder = uw.Encoder(uw.SmallConvNet(16), ("content",), dim=4)
        >>> z = compute_embeddings(encoder, lambda index: torch.rand(len(index), 3, 16, 16), torch.arange(5))
        >>> z["content"].shape
        torch.Size([5, 4])
    """
    was_training = encoder.training
    encoder.eval()
    parts = []
    for rows in index.split(batch_size):
        parts.append(encoder(images(rows)))
        if on_progress:
            on_progress(len(rows))
    encoder.train(was_training)
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
