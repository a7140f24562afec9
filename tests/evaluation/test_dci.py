import numpy as np
import pytest
import torch
from scipy.stats import entropy

from unweave.errors import UnweaveError
from unweave.evaluation import dci, mcc, score_spaces
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
    table = np.array([[1.0, 0.0], [0.5, 0.5]])
    assert np.allclose(_entropy(table, axis=1), [0.0, 1.0])


def test_scores_are_those_of_the_definition_from_the_importances():
    """Eastwood and Williams 2018: 1 − entropy of a row (column) of R in base k (d), weighted by its share of R."""
    true = torch.stack([torch.randint(4, (600,)) for _ in range(3)], 1)
    mixing = torch.tensor([[1.0, 0, 0, 0.5], [0, 1.0, 0, 0.5], [0, 0, 1.0, 0]])
    found = dci((true.float() @ mixing + 0.5 * torch.randn(600, 4)).numpy(), true.numpy())
    r = np.array(found.importance)
    assert r.shape == (4, 3)
    codes = [1 - entropy(row, base=3) for row in r]
    assert found.disentanglement == pytest.approx(np.average(codes, weights=r.sum(1)), abs=1e-3)
    factors = [1 - entropy(column, base=4) for column in r.T]
    assert found.completeness == pytest.approx(np.average(factors, weights=r.sum(0)), abs=1e-3)


def test_arrays_tensors_and_texts_give_the_same():
    true, z = torch.randint(3, (300,)), torch.randn(300, 2)
    z[:, 0] += 3 * true
    names = np.array(["a", "b", "c"])[true]
    tensors = dci({"x": z[:, :1], "y": z[:, 1:]}, {"shape": true})
    assert dci({"x": z[:, :1].numpy(), "y": z[:, 1:].numpy()}, {"shape": names}) == tensors
    assert dci(z.numpy(), true[:, None].numpy()) == tensors
    assert mcc(z.numpy(), z.numpy().astype(np.float64)) == pytest.approx(1)
    table = score_spaces({"x": z}, {"shape": true, "at": z[:, 1]}, categories=("shape",))
    arrays = score_spaces({"x": z.numpy()}, {"shape": names, "at": z[:, 1].numpy()}, categories=("shape",))
    assert arrays == table


def test_a_constant_code_is_neither_disentangled_nor_complete():
    found = dci({"a": np.zeros((100, 2)), "b": np.zeros((100, 1))}, {"shape": np.arange(100) % 2})
    assert (found.disentanglement, found.completeness) == (0, 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: dci({"a": torch.zeros(10, 1)}, {"x": torch.zeros(9)}),
        lambda: dci({"a": torch.rand(10, 1)}, {"x": torch.arange(9) % 2}),
        lambda: dci(torch.full((10, 1), torch.nan), torch.arange(10)[:, None] % 2),
        lambda: dci({"a": torch.rand(10, 1)}, {"x": torch.rand(10)}),
        lambda: mcc(torch.rand(10, 2), torch.rand(9, 2)),
        lambda: mcc(torch.rand(10), torch.rand(10)),
        lambda: mcc(np.array([["a"]]), np.array([[1.0]])),
    ],
)
def test_bad_input_is_one_line(call):
    with pytest.raises(UnweaveError) as error:
        call()
    assert "\n" not in str(error.value)
