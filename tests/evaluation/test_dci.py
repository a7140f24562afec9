import torch

from unweave.evaluation import dci
from unweave.evaluation.disentanglement import _entropy


def factors(n=1500):
    return {name: torch.randint(5, (n,)) for name in ("shape", "color", "place")}


def test_a_space_for_each_factor_is_perfect():
    true = factors()
    found = dci({name: value[:, None].float() for name, value in true.items()}, true)
    assert min(found.disentanglement, found.completeness, found.informativeness) > 0.95


def test_spaces_that_mix_all_factors_are_informative_but_neither_disentangled_nor_complete():
    true = factors()
    all_of_them = torch.stack(list(true.values()), 1).float()
    found = dci({"a": all_of_them, "b": all_of_them.flip(1), "c": all_of_them}, true)
    assert found.informativeness > 0.95
    assert found.disentanglement < 0.2
    assert found.completeness < 0.2


def test_one_factor_spread_over_all_spaces_lowers_completeness_alone():
    true = factors()
    place = true["place"][:, None].float()
    code = {"a": place, "b": place + 0, "c": place * 2}
    found = dci(code, {"place": true["place"]})
    assert found.completeness < 0.1


def test_noise_tells_nothing():
    true = factors()
    assert dci({"a": torch.randn(1500, 4), "b": torch.randn(1500, 4)}, true).informativeness < 0.3


def test_entropy_worked_by_hand():
    import numpy as np

    table = np.array([[1.0, 0.0], [0.5, 0.5]])
    assert np.allclose(_entropy(table, axis=1), [0.0, 1.0])
