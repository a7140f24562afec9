import torch
from scipy.stats import spearmanr

from unweave.evaluation import mcc


def test_it_is_scipys_spearman_correlation_of_the_best_matching():
    true = torch.randn(400, 2)
    recovered = torch.stack([true[:, 1] + torch.randn(400), -true[:, 0] + 0.5 * torch.randn(400)], 1)
    expected = [abs(spearmanr(recovered[:, i], true[:, 1 - i]).statistic) for i in (0, 1)]
    assert abs(mcc(recovered, true) - sum(expected) / 2) < 1e-9


def test_monotone_maps_and_order_do_not_matter_and_noise_tells_nothing():
    true = torch.randn(2000, 3)
    assert mcc(-true[:, [2, 0, 1]].exp(), true) > 0.999
    assert mcc(torch.randn(2000, 3), true) < 0.1


def test_ties_have_average_ranks_as_in_scipy():
    true = torch.randint(4, (300, 1)).float()
    recovered = true + torch.randint(2, (300, 1))
    assert abs(mcc(recovered, true) - abs(spearmanr(recovered[:, 0], true[:, 0]).statistic)) < 1e-12
