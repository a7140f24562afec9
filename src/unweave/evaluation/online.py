"""Evaluation during training: how well the labels can be predicted from each space, on a few thousand images.

Legend: n images.
"""

import torch
from torch import Tensor, nn

from unweave.augment import Views
from unweave.errors import UnweaveError
from unweave.evaluation.knn import knn_accuracy
from unweave.evaluation.probes import ClassProbe


class OnlineProbe:
    """Scores h and every space by kNN or a linear probe, fitted on a random half of the images, scored on the other.

    Args:
        images: uint8 (n, 3, size, size), at the size of the network's input.
        labels: (n,)
        views: whose ``prepare`` makes images ready for the encoder.
        kind: "knn", or "linear" for ``ClassProbe``.
        every: steps between two evaluations.

    Examples:
        >>> import unweave as uw
        >>> images, labels = torch.randint(0, 256, (40, 3, 16, 16), dtype=torch.uint8), torch.arange(40) % 2
        >>> probe = OnlineProbe(images, labels, uw.Views({}), kind="knn", every=100)
        >>> sorted(probe(uw.Encoder(uw.SmallConvNet(16), ("content",), dim=4)))
        ['knn/content', 'knn/h']
    """

    def __init__(self, images: Tensor, labels: Tensor, views: Views, *, kind: str, every: int) -> None:
        if len(images) < 20 or len(labels.unique()) < 2:
            raise UnweaveError(
                f"a probe needs at least 20 images of 2 classes, not {len(images)} of {len(labels.unique())}"
            )
        self.every, self._kind = every, kind
        self._images, self._labels, self._views = images, labels, views
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        self._fit, self._test = order.chunk(2)

    def __call__(self, encoder: nn.Module) -> dict[str, float]:
        """``knn/h``, ``knn/content``, …: accuracies from 0 to 1."""
        device = next(encoder.parameters()).device
        parts = [encoder(self._views.prepare(rows.to(device))) for rows in self._images.split(256)]
        labels = self._labels.to(device)
        fit, test = self._fit.to(device), self._test.to(device)
        scores = {}
        for space in parts[0]:
            z = torch.cat([part[space] for part in parts]).float()
            if self._kind == "knn":
                score = knn_accuracy(z[fit], labels[fit], z[test], labels[test])
            else:
                score = ClassProbe().fit(z[fit], labels[fit]).score(z[test], labels[test])
            scores[f"{self._kind}/{space}"] = score
        return scores
