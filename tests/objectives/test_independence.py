"""The dependence of a style space on content: against its definition, and as a part of the loss."""

import pytest
import torch

import unweave as uw
from unweave.objectives.independence import dependence


def test_it_is_the_definition_with_centring_matrices():
    x, y = torch.randn(40, 3).double(), torch.randn(40, 2).double()

    def kernel(z):
        d = torch.cdist(z, z).square()
        return torch.exp(-d / d.mean())

    h = torch.eye(40).double() - 1 / 40
    p, q = kernel(x), kernel(y)

    def hsic(k, other):
        return torch.trace(k @ h @ other @ h)

    expected = hsic(p, q) / (hsic(p, p) * hsic(q, q)).sqrt()
    torch.testing.assert_close(dependence(x, y), expected)


def test_what_is_independent_what_only_looks_uncorrelated_and_copies():
    x, y = torch.rand(1500, 1) * 2 - 1, torch.rand(1500, 1)
    assert dependence(x, y) < 0.01
    assert dependence(x, x.square()) > 0.1
    assert dependence(x, 7 * x + 3) == pytest.approx(1, abs=1e-4)


def test_a_space_that_has_collapsed_gives_no_nan():
    x = torch.zeros(20, 3, requires_grad=True)
    value = dependence(x, torch.randn(20, 2))
    value.backward()
    assert value == 0
    assert torch.isfinite(x.grad).all()


SPACES = ("content", "color", "place")


def batch():
    a, b = ({s: torch.randn(30, 4, requires_grad=True) for s in SPACES} for _ in "ab")
    return a, b, torch.arange(30) % 3


def test_it_is_added_to_the_loss_for_every_style_space():
    a, b, shared = batch()
    without = uw.DisentangledLoss(uw.VICReg(), spaces=SPACES)(a, b, shared)
    with_it = uw.DisentangledLoss(uw.VICReg(), spaces=SPACES, independence=2.0)(a, b, shared)
    both = {s: torch.cat([a[s], b[s]]) for s in SPACES}
    parts = [dependence(both[s], both["content"]) for s in SPACES[1:]]
    torch.testing.assert_close(with_it.loss - without.loss, 2 * sum(parts), rtol=1e-3, atol=1e-4)
    assert with_it.dependence.tolist() == pytest.approx([0.0, *(p.item() for p in parts)])
    assert without.dependence is None
    assert "place/dependence" not in without.as_dict()
    assert with_it.as_dict()["place/dependence"] == pytest.approx(parts[1].item())


def test_content_is_not_moved_by_it():
    gradients = []
    a, b, shared = batch()
    for weight in (0.0, 5.0):
        loss = uw.DisentangledLoss(uw.VICReg(), spaces=SPACES, independence=weight)(a, b, shared).loss
        gradients.append(torch.autograd.grad(loss, [a["content"], a["color"]]))
    torch.testing.assert_close(gradients[0][0], gradients[1][0])
    assert not torch.allclose(gradients[0][1], gradients[1][1])


def test_it_begins_when_the_weights_begin_to_move_and_is_whole_after_as_many_steps_again():
    weights = uw.DualAscent(rule="geometric", warmup=4, lr=0.0)
    with_it, without = (
        uw.DisentangledLoss(uw.VICReg(), spaces=SPACES, weights=weights, independence=w).double() for w in (2.0, 0.0)
    )
    a, b, shared = batch()
    a, b = ({s: z.double() for s, z in side.items()} for side in (a, b))
    plain, shares = without(a, b, shared).loss, []
    for _ in range(10):
        terms = with_it(a, b, shared)
        shares.append(0.0 if terms.dependence is None else float((terms.loss - plain) / (2 * terms.dependence.sum())))
        with_it.update(terms)
    assert shares == pytest.approx([0, 0, 0, 0, 0.25, 0.5, 0.75, 1, 1, 1])
    again = uw.DisentangledLoss(uw.VICReg(), spaces=SPACES, weights=weights, independence=2.0).double()
    again.load_state_dict({**with_it.state_dict(), "updates": torch.tensor(5)})
    assert float((again(a, b, shared).loss - plain) / terms.dependence.sum()) == pytest.approx(1)  # half of 2


def test_a_negative_weight_is_refused():
    with pytest.raises(uw.UnweaveError, match="negative"):
        uw.DisentangledLoss(uw.SimCLR(), spaces=SPACES, independence=-1.0)
