"""How often views confuse colors and shapes."""

import pytest
import torch

from unweave.reproduce.sprites.confusion import color_confusion, count, disagreement, joined


def test_disagreement_is_the_share_of_pairs_whose_guesses_differ():
    confusion = torch.tensor([[0.8, 0.2, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]]).double()
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.multinomial(confusion, 50_000, replacement=True, generator=generator) for _ in "ab")
    assert disagreement(confusion, [[0], [1], [2]]) == pytest.approx((a != b).double().mean().item(), abs=0.01)
    assert disagreement(confusion, [[0, 1, 2]]) == pytest.approx(0, abs=1e-6)
    assert disagreement(confusion, [[0], [1, 2]]) == pytest.approx(2 * 0.8 * 0.2 / 3)


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1])
def test_joined_colors_are_confused_in_at_most_the_share(share):
    confusion = color_confusion("weak", draws=300)
    assert confusion.sum(1) == pytest.approx(torch.ones(10).double())
    groups = joined(confusion, share)
    assert sorted(color for group in groups for color in group) == list(range(10))
    assert disagreement(confusion, groups) <= share


def test_views_of_medium_strength_leave_no_group_of_colors_and_weak_ones_do():
    assert len(joined(color_confusion("medium", draws=300), 0.01)) == 1
    assert len(joined(color_confusion("weak", draws=300), 0.01)) >= 3


def test_a_count_has_every_share_and_the_shape():
    found = count("strong", draws=30, steps=1, scored=100)
    assert len(found["color_groups"]) == len(found["group_disagreement"]) == 5
    assert 0 <= found["shape"]["error"] <= 1
