import warnings

import pytest
import torch

from unweave.errors import UnweaveError
from unweave.objectives import CollapseWarning, DisentangledLoss, DualAscent, SimCLR
from unweave.objectives.disentangled import WARN_EVERY, Terms

ALIVE = torch.tensor([True, True])


def move(rule, weights=(2.0, 2.0), constraints=(0.5, 0.1), alive=ALIVE, tolerance=0.2):
    return rule.step(torch.tensor(weights), torch.tensor(constraints), alive, torch.full((2,), tolerance)).tolist()


def test_each_rule_by_hand():
    assert move(DualAscent(lr=10.0)) == [5.0, 2.0]
    assert move(DualAscent(rule="signed", lr=10.0)) == pytest.approx([5.0, 1.0])
    assert move(DualAscent(rule="signed", lr=1000.0))[1] == 0
    assert move(DualAscent(rule="geometric", lr=0.5)) == [3.0, 2.0]
    assert move(DualAscent(rule="fixed", lr=10.0)) == [2.0, 2.0]
    assert move(DualAscent(lr=1e9, maximum=7.0)) == [7.0, 2.0]


@pytest.mark.parametrize("rule", ["paper", "signed", "geometric"])
def test_a_weight_does_not_grow_while_its_space_is_near_collapse(rule):
    dead = torch.tensor([False, True])
    assert move(DualAscent(rule=rule, lr=1.0, retreat=0.0), alive=dead)[0] == 2.0
    assert move(DualAscent(rule=rule, lr=1.0, retreat=0.5), alive=dead)[0] == 1.0


def terms(spaces, constraint=0.5, variance=1.0, rank=3.0):
    size, zero = len(spaces), torch.zeros(())
    full = [torch.full((size,), v) for v in (1.0, 0.0, constraint, variance, rank)]
    return Terms(zero, spaces, *full, zero, zero)


def test_warm_up_and_interval():
    objective = DisentangledLoss(SimCLR(), weights=DualAscent(lr=1.0, tolerance=0.0, warmup=3, interval=2))
    seen = []
    for _ in range(8):
        objective.update(terms(("content",)))
        seen.append(objective.weights.item())
    assert seen == [1, 1, 1, 1.5, 1.5, 2, 2, 2.5]


def test_weights_are_in_the_state_and_go_on_from_it():
    make = lambda: DisentangledLoss(SimCLR(), weights=DualAscent(lr=1.0, tolerance=0.0, warmup=3))  # noqa: E731
    one, two = make(), make()
    for _ in range(5):
        one.update(terms(("content",)))
    two.load_state_dict(one.state_dict())
    assert two.weights.item() == one.weights.item() == 2
    two.update(terms(("content",)))
    assert two.weights.item() == 2.5


def test_forward_never_moves_the_weights():
    objective = DisentangledLoss(SimCLR(), weights=DualAscent(lr=1.0))
    z = {"content": torch.randn(8, 4)}
    objective(z, {"content": torch.randn(8, 4)}, torch.zeros(8, dtype=torch.long))
    assert objective.weights.item() == 1


@pytest.mark.parametrize("rule", ["paper", "fixed"])
def test_a_collapse_is_said_aloud_once(rule):
    objective = DisentangledLoss(SimCLR(), weights=DualAscent(rule=rule))

    def updates(variance):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3 * WARN_EVERY):
                objective.update(terms(("content",), variance=variance))
        return [str(w.message) for w in caught if w.category is CollapseWarning]

    first = updates(0.01)
    assert len(first) == 1
    assert "'content' is near collapse (variance 0.01" in first[0]
    assert updates(0.01) == []
    assert updates(1.0) == []
    assert len(updates(0.01)) == 1


def small_run(weights: DualAscent, steps=800):
    """Three clusters seen through noise of their own in each view, so that no tolerance is ever met; and a style."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    objective = DisentangledLoss(SimCLR(0.15), weights=weights)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        content = 2 * torch.eye(3)[torch.randint(3, (96,), generator=generator)]
        a, b = (torch.cat([content, torch.zeros(96, 3)], 1) + torch.randn(96, 6, generator=generator) for _ in "ab")
        terms = objective({"content": net(a)}, {"content": net(b)}, torch.zeros(96, dtype=torch.long))
        optimizer.zero_grad()
        terms.loss.backward()
        optimizer.step()
        objective.update(terms)
    return terms


def test_the_plain_rule_collapses_where_the_guarded_one_survives():
    """Too eager a weight takes a space to one point, which is perfectly invariant and is never left again."""
    eager = {"rule": "paper", "lr": 5.0, "tolerance": 1e-3, "warmup": 100}
    plain = small_run(DualAscent(**eager, min_variance=0.0))
    assert plain.variance.item() < 0.001
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        guarded = small_run(DualAscent(**eager))
    assert guarded.variance.item() > 0.02
    assert guarded.effective_rank.item() > 1.1


@pytest.mark.parametrize(
    "build",
    [
        lambda: DualAscent(rule="newton"),
        lambda: DualAscent(lr=-1.0),
        lambda: DualAscent(tolerance=-0.1),
        lambda: DualAscent(interval=0),
        lambda: DualAscent(start={"content": -1.0}),
        lambda: DualAscent(retreat=1.0),
    ],
)
def test_bad_settings(build):
    with pytest.raises(UnweaveError, match="DualAscent") as error:
        build()
    assert "\n" not in str(error.value)
