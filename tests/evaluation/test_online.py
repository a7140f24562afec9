import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

import unweave as uw
import unweave.augment as A
from unweave.errors import UnweaveError
from unweave.evaluation import OnlineProbe, knn_accuracy


def test_the_vote_is_scikit_learns():
    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 5, (400,), generator=rng) * 3  # classes need not be 0, 1, 2, …
    z = torch.randn(400, 6, generator=rng) + torch.randn(15, 6, generator=rng)[labels]
    theirs = KNeighborsClassifier(20, metric="cosine", algorithm="brute", weights=lambda d: np.exp((1 - d) / 0.07))
    expected = theirs.fit(z[:250].numpy(), labels[:250].numpy()).score(z[250:].numpy(), labels[250:].numpy())
    assert 0.3 < expected < 1
    assert knn_accuracy(z[:250], labels[:250], z[250:], labels[250:]) == pytest.approx(expected)


class Brightness(torch.nn.Module):
    """Knows how bright an image is in one space, nothing in the other."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, images):
        bright = images.mean((1, 2, 3))[:, None]
        noise = torch.rand(len(images), 2, generator=torch.Generator().manual_seed(len(images)))
        return {"bright": torch.cat([bright, 1 - bright], 1) * self.scale, "noise": noise}


@pytest.mark.parametrize("kind", ["knn", "linear"])
def test_a_space_that_knows_scores_and_one_that_does_not_is_at_chance(kind):
    labels = torch.arange(200) % 2
    images = (labels * 200)[:, None, None, None].expand(200, 3, 4, 4).to(torch.uint8)
    probe = OnlineProbe(images, labels, uw.Views({}, ungrouped=[A.Normalize((0,) * 3, (1,) * 3)]), kind=kind, every=7)
    assert probe.every == 7
    scores = probe(Brightness())
    assert scores[f"{kind}/bright"] == 1
    assert 0.3 < scores[f"{kind}/noise"] < 0.7


def test_too_few_images_are_refused():
    with pytest.raises(UnweaveError, match="20 images of 2 classes"):
        OnlineProbe(torch.zeros(30, 3, 4, 4), torch.zeros(30), uw.Views({}), kind="knn", every=1)
