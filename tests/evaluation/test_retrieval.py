"""Scores of a search are those of scikit-learn and of definitions by hand, also for equal scores."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from unweave.errors import UnweaveError
from unweave.evaluation import (
    average_precision,
    cosine_scores,
    expected_average_precision,
    precision_at,
    same_label,
    score_retrieval,
)
from unweave.evaluation import retrieval as module


@pytest.mark.parametrize("levels", [None, 5, 1], ids=["distinct scores", "many equal scores", "all equal"])
def test_average_precision_is_scikit_learns(levels):
    scores, relevant = torch.randn(20, 80), torch.rand(20, 80) < 0.2
    if levels is not None:
        scores = (scores * levels).round() if levels > 1 else torch.zeros_like(scores)
    expected = [average_precision_score(r, s) for r, s in zip(relevant.numpy(), scores.numpy(), strict=True)]
    np.testing.assert_allclose(average_precision(scores, relevant), expected, atol=1e-12)


def test_precision_counts_the_relevant_among_the_first():
    # In order of the scores: relevant, not, relevant, relevant, not.
    scores = torch.tensor([[0.1, 0.9, 0.5, 0.7, 0.6]])
    relevant = torch.tensor([[False, True, True, False, True]])
    assert [precision_at(scores, relevant, k).item() for k in (1, 2, 3, 4, 5)] == pytest.approx(
        [1, 1 / 2, 2 / 3, 3 / 4, 3 / 5]
    )


def test_precision_is_the_expectation_where_scores_are_equal():
    """The first place is certain; three images, two of them relevant, compete for the second."""
    scores = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]])
    relevant = torch.tensor([[False, True, True, False, True]])
    assert precision_at(scores, relevant, 2).item() == pytest.approx((0 + 2 / 3) / 2)


@pytest.mark.parametrize("count", [1, 4, 12])
def test_chance_is_the_mean_over_random_orders(count):
    scores, relevant = torch.rand(20_000, 12), torch.arange(12).expand(20_000, -1) < count
    expected = average_precision(scores, relevant).mean().item()
    assert expected_average_precision(torch.tensor([count]), 12).item() == pytest.approx(expected, abs=5e-3)


def test_every_image_searches_the_others_and_those_without_an_answer_are_left_out():
    z, labels = torch.randn(50, 4), torch.arange(50) % 5
    labels[7] = 99
    found = score_retrieval(cosine_scores(z), same_label(labels), 50, k=10)
    similarity = torch.nn.functional.normalize(z, dim=1)
    similarity = (similarity @ similarity.T).numpy()
    precision, average = [], []
    for i in [i for i in range(50) if i != 7]:
        others = np.delete(np.arange(50), i)
        relevant = (labels[others] == labels[i]).numpy()
        precision.append(relevant[np.argsort(-similarity[i, others])[:10]].mean())
        average.append(average_precision_score(relevant, similarity[i, others]))
    np.testing.assert_allclose(found.precision, precision)
    np.testing.assert_allclose(found.average_precision, average, atol=1e-6)
    assert (found.queries, found.searched) == (49, 49)
    assert found.relevant.tolist() == [8 if i % 5 == 2 else 9 for i in range(50) if i != 7]


def test_blocks_of_queries_do_not_change_the_scores(monkeypatch):
    z, labels = torch.randn(40, 3), torch.randint(4, (40,))
    whole = score_retrieval(cosine_scores(z), same_label(labels), 40)
    monkeypatch.setattr(module, "BLOCK", 7 * 40)
    parts = score_retrieval(cosine_scores(z), same_label(labels), 40)
    torch.testing.assert_close(parts.average_precision, whole.average_precision)
    torch.testing.assert_close(parts.precision, whole.precision)


def test_a_collapsed_space_has_the_scores_of_chance():
    labels = torch.arange(60) // 6
    found = score_retrieval(cosine_scores(torch.ones(60, 3)), same_label(labels), 60)
    assert found.mean_precision == pytest.approx(found.chance_precision)
    assert found.mean_average_precision == pytest.approx(5 / 59)


def test_too_few_images_and_no_answers_are_errors():
    with pytest.raises(UnweaveError, match="`k`"):
        score_retrieval(cosine_scores(torch.randn(10, 2)), same_label(torch.zeros(10)), 10, k=10)
    with pytest.raises(UnweaveError, match="relevant"):
        score_retrieval(cosine_scores(torch.randn(10, 2)), same_label(torch.arange(10)), 10, k=2)
