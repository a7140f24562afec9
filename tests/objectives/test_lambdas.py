import math
import warnings

import pytest
import torch

from unweave.errors import UnweaveError
from unweave.objectives import (
    AdditiveAscent,
    CollapseGuard,
    CollapseWarning,
    DisentangledLoss,
    DualAscent,
    FixedWeights,
    GeometricGrowth,
    LossTerms,
    SimCLR,
)
from unweave.objectives.disentangled import CHECK_EVERY

RULES = [
    DualAscent(rate=1.0),
    AdditiveAscent(lr=1.0),
    AdditiveAscent(lr=1.0, can_decrease=True),
    GeometricGrowth(rate=1.0),
]


def move(rule, lambdas=(2.0, 2.0), gaps=(0.5, 0.1), tolerance=0.2):
    return rule.step(torch.tensor(lambdas), torch.tensor(gaps), torch.full((2,), tolerance)).tolist()


def test_each_rule_by_hand():
    assert move(AdditiveAscent(lr=10.0)) == [5.0, 2.0]
    assert move(AdditiveAscent(lr=10.0, can_decrease=True)) == pytest.approx([5.0, 1.0])
    assert move(AdditiveAscent(lr=1000.0, can_decrease=True))[1] == 0
    assert move(GeometricGrowth(rate=0.5)) == [3.0, 2.0]
    assert move(FixedWeights()) == [2.0, 2.0]
    assert move(DualAscent(rate=0.1)) == pytest.approx([2 * 2.5**0.1, 2 * 0.5**0.1])
    assert move(DualAscent(rate=0.1), gaps=(50.0, 0.0)) == pytest.approx([2 * math.exp(0.1), 2 * math.exp(-0.1)])
    assert move(DualAscent(rate=0.1), gaps=(0.2, 0.0), tolerance=0.0) == pytest.approx([2 * math.exp(0.1), 2])
    assert move(AdditiveAscent(lr=1e9, maximum=7.0)) == [7.0, 2.0]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_gap_that_is_not_finite_leaves_the_weight_unchanged(rule):
    for bad in (math.inf, math.nan):
        assert move(rule, gaps=(bad, 0.5))[0] == 2.0


def rest_of_log_ascent(weight, exponent, tolerance=1e-2, steps=6000, factor=1e12):
    """λ after a run in which the gap answers at once: gap = (weight / λ)^exponent."""
    rule = DualAscent.over(steps, factor=factor, tolerance=tolerance)
    value = torch.ones(1)
    for update in range(1, steps + 1):
        if rule.changes_at(update):
            value = rule.step(value, (weight / value) ** exponent, torch.tensor([tolerance]))
    return value.item()


@pytest.mark.parametrize("weight", [1e-3, 1.0, 10.0])
@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_dual_ascent_rests_where_the_gap_is_the_tolerance_whatever_the_scale_and_from_either_side(weight, exponent):
    expected = weight * 1e-2 ** (-1 / exponent)
    assert rest_of_log_ascent(weight, exponent) == pytest.approx(expected, rel=0.02)


def test_dual_ascent_over_a_run_changes_the_weight_by_at_most_its_factor_whatever_the_length():
    for steps in (1000, 3000):
        assert rest_of_log_ascent(1e9, 1.0, steps=steps, factor=30.0) == pytest.approx(30.0, rel=1e-3)
    assert rest_of_log_ascent(1e9, 1.0, steps=10, factor=30.0) == pytest.approx(math.exp(6 * 0.01))  # 6 of 10 steps


def test_dual_ascent_reduces_the_weight_of_a_space_that_collapsed():
    assert move(DualAscent(rate=0.5), gaps=(0.0, 0.0))[0] < 2


def test_a_rule_changes_the_weights_within_its_window_at_its_interval():
    def updates(**window):
        return [update for update in range(1, 9) if DualAscent(**window).changes_at(update)]

    assert updates() == list(range(1, 9))
    assert updates(warmup=3, interval=2) == [4, 6, 8]
    assert updates(warmup=2, stop=5) == [3, 4, 5]
    assert updates(stop=0) == []


@pytest.mark.parametrize("shrink", [0.0, 0.5])
def test_the_guard_stops_the_growth_of_a_collapsed_space_and_shrinks_its_weight_no_further_than_its_start(shrink):
    guard = CollapseGuard(shrink=shrink)
    before, proposed, start = torch.tensor([8.0, 8.0, 3.0]), torch.tensor([9.0, 9.0, 9.0]), torch.full((3,), 2.0)
    found = guard.limit(before, proposed, torch.tensor([True, False, True]), start)
    assert found.tolist() == [8 * (1 - shrink), 9, max(2, 3 * (1 - shrink))]


def test_a_space_is_collapsed_below_either_threshold():
    guard = CollapseGuard(min_variance=0.1, min_rank=1.5)
    assert guard.collapsed(torch.tensor([0.05, 0.5, 0.5]), torch.tensor([3.0, 1.0, 3.0])).tolist() == [
        True,
        True,
        False,
    ]


def terms(spaces, gap=0.5, variance=1.0, rank=3.0):
    measured = {"invariance_gap": gap, "variance": variance, "effective_rank": rank}
    return LossTerms(
        torch.zeros(()), spaces, per_space={name: torch.full((len(spaces),), value) for name, value in measured.items()}
    )


def test_warm_up_and_interval():
    rule = AdditiveAscent(lr=1.0, tolerance=0.0, warmup=3, interval=2)
    objective = DisentangledLoss(SimCLR(), lambda_rule=rule)
    seen = []
    for _ in range(8):
        objective.update(terms(("content",)))
        seen.append(objective.lambdas.item())
    assert seen == [1, 1, 1, 1.5, 1.5, 2, 2, 2.5]


def test_weights_are_part_of_the_state():
    make = lambda: DisentangledLoss(SimCLR(), lambda_rule=AdditiveAscent(lr=1.0, tolerance=0.0, warmup=3))  # noqa: E731
    one, two = make(), make()
    for _ in range(5):
        one.update(terms(("content",)))
    two.load_state_dict(one.state_dict())
    assert two.lambdas.item() == one.lambdas.item() == 2
    two.update(terms(("content",)))
    assert two.lambdas.item() == 2.5


def test_forward_never_changes_the_weights():
    objective = DisentangledLoss(SimCLR(), lambda_rule=AdditiveAscent(lr=1.0))
    z = {"content": torch.randn(8, 4)}
    objective(z, {"content": torch.randn(8, 4)}, torch.zeros(8, dtype=torch.long))
    assert objective.lambdas.item() == 1


@pytest.mark.parametrize("rule", [DualAscent(), FixedWeights()], ids=["adapted", "fixed"])
def test_a_collapse_and_its_end_are_reported_once_each_time(rule):
    objective = DisentangledLoss(SimCLR(), lambda_rule=rule)

    def updates(variance):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3 * CHECK_EVERY):
                objective.update(terms(("content",), variance=variance))
        return [str(w.message) for w in caught if w.category is CollapseWarning]

    [first] = updates(0.01)
    assert updates(0.01) == []
    restored = DisentangledLoss(SimCLR(), lambda_rule=rule)
    restored.load_state_dict(objective.state_dict())
    objective = restored  # a resumed run does not repeat the warning, and reports the recovery
    assert updates(0.01) == []
    [recovered] = updates(1.0)
    [again] = updates(0.01)
    assert "content" in first
    assert "recovered" in recovered
    assert "collapse" in again


def test_a_collapsed_spaces_weight_falls_to_its_first_value_and_no_further():
    rule = DualAscent(start=0.2, rate=0.05, tolerance=1e-9)
    objective = DisentangledLoss(SimCLR(), lambda_rule=rule, collapse_guard=CollapseGuard(min_variance=0.5))
    for _ in range(60):
        objective.update(terms(("content",), gap=0.5, variance=1.0))
    assert objective.lambdas.item() > 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        for _ in range(400):
            objective.update(terms(("content",), gap=0.5, variance=0.1))
    assert objective.lambdas.item() == pytest.approx(0.2)


def small_run(guard, steps=800):
    """Three clusters seen through noise of their own in each view, so that no tolerance is ever met; and a style."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    rule = AdditiveAscent(lr=5.0, tolerance=1e-3, warmup=100)
    objective = DisentangledLoss(SimCLR(0.15), lambda_rule=rule, collapse_guard=guard)
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


@pytest.mark.usefixtures("one_thread")
def test_without_a_guard_a_fast_growing_weight_collapses_the_space_and_with_it_not():
    """A constant is perfectly invariant, and has no gradient that would spread it again."""
    unguarded = small_run(CollapseGuard(min_variance=0.0)).per_space
    assert unguarded["variance"].item() < 0.001
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        guarded = small_run(CollapseGuard()).per_space
    assert guarded["variance"].item() > 0.02
    assert guarded["effective_rank"].item() > 1.1


@pytest.mark.parametrize(
    ("build", "argument"),
    [
        (lambda: AdditiveAscent(lr=-1.0), "lr"),
        (lambda: AdditiveAscent(lr=math.nan), "lr"),
        (lambda: DualAscent(rate=-1.0), "rate"),
        (lambda: GeometricGrowth(rate=math.inf), "rate"),
        (lambda: DualAscent(tolerance=-0.1), "tolerance"),
        (lambda: DualAscent(interval=0), "interval"),
        (lambda: DualAscent(start={"content": -1.0}), "start"),
        (lambda: FixedWeights(start=math.nan), "start"),
        (lambda: DualAscent(warmup=5, stop=3), "stop"),
        (lambda: CollapseGuard(shrink=1.5), "shrink"),
    ],
)
def test_bad_settings_are_refused_by_the_name_of_the_argument(build, argument):
    with pytest.raises(UnweaveError, match=f"`{argument}`") as error:
        build()
    assert "\n" not in str(error.value)


def test_a_guard_that_limits_the_weight_early_does_not_warn_as_early():
    guard = CollapseGuard(min_variance=0.4)
    variances, ranks = torch.tensor([0.2, 0.05, 0.9]), torch.full((3,), 9.0)
    assert guard.collapsed(variances, ranks).tolist() == [True, True, False]
    assert guard.reported(variances, ranks).tolist() == [False, True, False]
    assert not CollapseGuard(min_variance=0.0).reported(variances, ranks).any()
