import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, r2_score
from sklearn.neighbors import KNeighborsRegressor

from unweave.errors import UnweaveError
from unweave.evaluation import KNNProbe, mean_average_precision, mean_class_accuracy, mean_r2


def test_the_mean_accuracy_of_classes_is_scikit_learns():
    true, predicted = torch.randint(5, (200,)), torch.randint(5, (200,))
    expected = balanced_accuracy_score(true.numpy(), predicted.numpy())
    assert mean_class_accuracy(predicted, true) == pytest.approx(expected)


def voc_ap(recall, precision):
    """The 11-point metric in the words of VOC2007's development kit: for t = 0, 0.1, …, 1 the largest precision."""
    pairs = list(zip(precision, recall, strict=True))
    return np.mean([max([p for p, r in pairs if r >= t - 1e-9], default=0) for t in np.linspace(0, 1, 11)])


def test_average_precision_is_that_of_voc_with_difficult_images_left_out():
    scores, present = torch.rand(60, 3, dtype=torch.float64), (torch.rand(60, 3) < 0.3).double()
    present[::7, 1] = torch.nan
    expected = []
    for s, t in zip(scores.T.numpy(), present.T.numpy(), strict=True):
        s, t = s[~np.isnan(t)], t[~np.isnan(t)]
        hits = np.cumsum(t[np.argsort(-s)])
        expected.append(voc_ap(hits / hits[-1], hits / np.arange(1, len(hits) + 1)))
    assert mean_average_precision(scores, present) == pytest.approx(np.mean(expected))
    assert mean_average_precision(present.nan_to_num(0.0), present) == 1


def test_r2_is_scikit_learns_over_the_numbers_that_are_known():
    true, predicted = torch.randn(50, 2).double(), torch.randn(50, 2).double()
    true[:20, 1] = torch.nan
    expected = [r2_score(true[:, 0], predicted[:, 0]), r2_score(true[20:, 1], predicted[20:, 1])]
    assert mean_r2(predicted, true) == pytest.approx(np.mean(expected))


def test_nearest_neighbours_predict_numbers_as_scikit_learns():
    x, y = torch.randn(200, 3), torch.randn(200, 2).double()
    theirs = KNeighborsRegressor(20, metric="cosine", algorithm="brute", weights=lambda d: np.exp((1 - d) / 0.07))
    expected = theirs.fit(x[:150].numpy(), y[:150].numpy()).predict(x[150:].numpy())
    np.testing.assert_allclose(KNNProbe().fit(x[:150], y[:150]).decision(x[150:]).numpy(), expected, atol=1e-4)


@pytest.mark.parametrize(("neighbours", "temperature"), [(1, 0.5), (50, 0.1), (500, 1.0)])
def test_nearest_neighbours_vote_as_in_a_plain_loop(neighbours, temperature):
    """The protocol of Wu et al.: each of the nearest rows adds exp(cosine/τ) to its class."""
    x, y = torch.randn(260, 5).double().numpy(), np.arange(260) % 4
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    probe = KNNProbe(neighbours=neighbours, temperature=temperature).fit(x[:200], y[:200])
    votes = probe.decision(x[200:]).numpy()
    for row, found in zip(unit[200:], votes, strict=True):
        cosines = unit[:200] @ row
        expected = np.zeros(4)
        for near in np.argsort(-cosines)[:neighbours]:
            expected[y[near]] += np.exp(cosines[near] / temperature)
        np.testing.assert_allclose(found / found.sum(), expected / expected.sum(), atol=1e-4)


@pytest.mark.parametrize("settings", [{"neighbours": 0}, {"temperature": 0.0}, {"temperature": float("nan")}])
def test_a_vote_of_nobody_or_without_a_temperature_is_refused(settings):
    with pytest.raises(UnweaveError, match=f"`{next(iter(settings))}` must be"):
        KNNProbe(**settings)


def test_neighbours_are_found_across_blocks(monkeypatch):
    from unweave.evaluation import features

    x, y = torch.randn(120, 4), torch.arange(120) % 3
    whole = KNNProbe().fit(x[:90], y[:90]).decision(x[90:])
    monkeypatch.setattr(features, "BLOCK", 40)
    torch.testing.assert_close(KNNProbe().fit(x[:90], y[:90]).decision(x[90:]), whole)
