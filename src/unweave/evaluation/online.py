"""How a run is doing, while it runs: what each space tells of the labels, on a few images it can embed in no time.

Legend: n images, k classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unweave.augment import Views
from unweave.errors import UnweaveError
from unweave.evaluation.probes import ClassProbe

NEIGHBOURS = 20
TEMPERATURE = 0.07


def knn_accuracy(fit: Tensor, fit_labels: Tensor, test: Tensor, test_labels: Tensor) -> float:
    """Accuracy of a vote among the nearest rows by cosine, each weighted by exp(similarity/0.07) (Wu et al. 2018)."""
    classes, members = fit_labels.unique(return_inverse=True)
    unit = F.normalize(fit.float(), dim=1)
    right = 0
    for rows, truth in zip(F.normalize(test.float(), dim=1).split(1024), test_labels.split(1024), strict=True):
        similarity, nearest = (rows @ unit.T).topk(min(NEIGHBOURS, len(unit)), 1)
        votes = torch.zeros(len(rows), len(classes), device=rows.device)
        votes.scatter_add_(1, members[nearest], (similarity / TEMPERATURE).exp())
        right += int((classes[votes.argmax(1)] == truth).sum())
    return right / len(test)


class OnlineProbe:
    """Scores h and every space by kNN or a linear probe: a random half of the images is fitted, the other scored.

    Args:
        images: uint8 (n, 3, size, size), at the network's own size.
        labels: (n,)
        views: whose fixed transforms make images ready for the encoder.
        kind: "knn", or "ridge" for the regularised linear classifier of ``ClassProbe``.
        every: steps between two looks.
    """

    def __init__(self, images: Tensor, labels: Tensor, views: Views, *, kind: str, every: int) -> None:
        if len(images) < 20 or len(labels.unique()) < 2:
            raise UnweaveError(
                f"a probe needs 20 images of 2 classes at least, not {len(images)} of {len(labels.unique())}"
            )
        self.every, self._kind = every, kind
        self._images, self._labels, self._views = images, labels, views
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        self._fit, self._test = order.chunk(2)

    def __call__(self, encoder: nn.Module) -> dict[str, float]:
        """``knn/h``, ``knn/content``, …: accuracies between 0 and 1."""
        device = next(encoder.parameters()).device
        parts = [encoder(self._views.plain(rows.to(device))) for rows in self._images.split(256)]
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
