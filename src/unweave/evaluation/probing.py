"""Linear probes and nearest neighbours for the features of several spaces, with one call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from unweave.errors import UnweaveError
from unweave.evaluation.features import Features
from unweave.evaluation.knn import KNNProbe
from unweave.evaluation.linear_probe import PENALTIES, LinearProbe, Metric, choose_metric
from unweave.evaluation.targets import Kind, Targets, as_targets, split_rows


@dataclass(frozen=True)
class ProbeScores:
    """What can be predicted from each space, on rows that were not used to fit.

    Examples:
        >>> x = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
        >>> sorted(probe(x, x[:, 0] > 0).as_dict())
        ['chance', 'cross_validation', 'dimensions', 'fit', 'kind', 'knn', 'linear', 'metric', 'outputs', 'penalty', \
'test']
    """

    kind: Kind
    metric: Metric
    outputs: int
    """Classes, labels, or numbers predicted."""
    fit: int
    """Rows used to fit."""
    test: int
    """Rows scored."""
    chance: float
    """The score of a guess that does not look at the features."""
    linear: dict[str, float]
    """The score of the linear probe, by space."""
    knn: dict[str, float]
    """The score of the nearest neighbours, by space; empty where they were not asked for."""
    penalty: dict[str, float]
    """The penalty chosen, by space."""
    cross_validation: dict[str, float]
    """The score of that penalty on the held-out folds, by space."""
    dimensions: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def probe(
    embeddings: Any,
    labels: Any,
    *,
    test: tuple[Any, Any] | None = None,
    kind: Kind | Literal["auto"] = "auto",
    metric: Metric | Literal["auto"] = "auto",
    knn: bool = True,
    penalties: Sequence[float] = PENALTIES,
    folds: int = 5,
    test_fraction: float = 0.2,
    seed: int = 0,
    device: torch.device | str | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> ProbeScores:
    """How well labels can be predicted from embeddings: a linear probe and nearest neighbours for each space.

    Args:
        embeddings: features (n, d), or features by the name of their space; tensors or arrays, in memory or mapped.
        labels: classes as numbers or texts (n,), several labels (n, k) of 1 and 0, or numbers (n,) or (n, k).
        test: embeddings and labels to score; by default a random part of the rows is held out.
        kind: "classes", "multilabel" or "regression"; "auto" infers it, as ``LinearProbe``.
        metric: as ``LinearProbe``.
        knn: score nearest neighbours too.
        penalties: of the linear probe, chosen by cross-validation.
        folds: of the cross-validation.
        test_fraction: the part that is held out without ``test``.
        seed: of the folds and of that part.
        device: where to compute; by default where the embeddings are.
        on_progress: called with the number of penalties done, over all spaces.

    Examples:
        >>> x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
        >>> scores = probe({"content": x, "style": x[:, 1:]}, [("cat", "dog")[i] for i in (x[:, 0] > 0).long()])
        >>> scores.linear["content"] > 0.9, scores.linear["style"] < 0.7, scores.metric
        (True, True, 'accuracy')
    """
    spaces = dict(embeddings) if isinstance(embeddings, Mapping) else {"features": embeddings}
    if not spaces:
        raise UnweaveError("`embeddings` has no spaces")
    targets = as_targets(labels, kind)
    if test is None:
        fit, held = split_rows(targets, test_fraction, seed)
        rows = {name: Features(x, device) for name, x in spaces.items()}
        for name, x in rows.items():
            _require_rows(name, len(x), len(targets))
        parts: dict[str, tuple[Any, Any]] = {name: (x.take(fit), x.take(held)) for name, x in rows.items()}
        truth = targets.take(held)
        targets = targets.take(fit)
    else:
        others = dict(test[0]) if isinstance(test[0], Mapping) else {"features": test[0]}
        if set(others) != set(spaces):
            raise UnweaveError(f"`test` has the spaces {sorted(others)}, the embeddings have {sorted(spaces)}")
        truth = as_targets(test[1], like=targets, name="test")
        parts = {name: (spaces[name], others[name]) for name in spaces}
    chosen = choose_metric(targets.kind, metric)
    found: dict[str, dict[str, Any]] = {key: {} for key in ("linear", "knn", "penalty", "cross_validation", "dims")}
    for number, (name, (x_fit, x_test)) in enumerate(parts.items()):
        _require_rows(name, len(x_fit), len(targets))
        _require_rows(name, len(x_test), len(truth))

        def advance(done: int, before: int = number * len(penalties)) -> None:
            if on_progress:
                on_progress(before + done)

        linear = LinearProbe(
            metric=chosen, penalties=penalties, folds=folds, seed=seed, device=device, on_progress=advance
        ).fit(x_fit, targets)
        found["linear"][name] = linear.score(x_test, truth)
        found["penalty"][name] = linear.penalty
        found["cross_validation"][name] = linear.cross_validation.get(linear.penalty, float("nan"))
        found["dims"][name] = len(linear.coef)
        if knn:
            found["knn"][name] = KNNProbe(metric=chosen, device=device).fit(x_fit, targets).score(x_test, truth)
    return ProbeScores(
        kind=targets.kind,
        metric=chosen,
        outputs=len(targets.classes) or targets.values.shape[1],
        fit=len(targets),
        test=len(truth),
        chance=chance(targets, truth, chosen),
        linear=found["linear"],
        knn=found["knn"],
        penalty=found["penalty"],
        cross_validation=found["cross_validation"],
        dimensions=found["dims"],
    )


def chance(fit: Targets, test: Targets, metric: Metric) -> float:
    """The score of the most common class, of a random order, or of the mean."""
    if metric == "accuracy":
        return float((test.values == fit.values.mode().values).double().mean())
    if metric == "mean_per_class":
        return 1 / len(test.values.unique())
    if metric == "map":
        present = test.values.nanmean(0)
        return float(present[present > 0].mean())
    return 0.0


def _require_rows(name: str, rows: int, labels: int) -> None:
    if rows != labels:
        raise UnweaveError(
            f"`embeddings` {name} has {rows} rows, there are {labels} labels: one for each row is needed"
        )
