import pytest
import torch

import unweave as uw
from unweave.errors import UnweaveError
from unweave.objectives import BarlowTwins, DisentangledLoss, FixedWeights, SimCLR, VICReg

BASES = [SimCLR(0.2), VICReg(), BarlowTwins()]
SPACES = ("content", "color", "spatial")


def embeddings(n=24, dims=(6, 3, 4), seed=0):
    g = torch.Generator().manual_seed(seed)
    return {s: torch.randn(n, d, generator=g).double() for s, d in zip(SPACES, dims, strict=True)}


def shared(n=24, kinds=3):
    return torch.arange(n) % kinds


@pytest.mark.parametrize("base", BASES)
def test_without_styles_it_is_the_base_method_bit_for_bit(base):
    a, b = torch.randn(16, 8), torch.randn(16, 8)
    terms = DisentangledLoss(base)({"content": a}, {"content": b}, torch.zeros(16, dtype=torch.long))
    assert torch.equal(terms.loss, base.loss(a, b))
    assert terms.metrics["joint_entropy"] == 0


@pytest.mark.parametrize("base", BASES)
def test_it_is_equation_3(base):
    """Σ λ_m·inv_m + joint entropy + content entropy, written out."""
    a, b = embeddings(seed=0), embeddings(seed=1)
    weights = {"content": 2.0, "color": 3.0, "spatial": 5.0}
    objective = DisentangledLoss(base, spaces=SPACES, lambda_rule=FixedWeights(start=weights))
    expected = base.entropy(a["content"], b["content"]) + base.joint_entropy([*a.values()], [*b.values()])
    for m, space in enumerate(SPACES):
        own = slice(m, None, 3)
        expected = expected + weights[space] * base.invariance(a[space][own], b[space][own])
    torch.testing.assert_close(objective(a, b, shared()).loss, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("base", BASES)
def test_a_pair_of_another_kind_does_not_touch_a_spaces_invariance(base):
    a, b = embeddings(seed=0), embeddings(seed=1)
    objective = DisentangledLoss(base, spaces=SPACES)
    before = objective(a, b, shared())
    for m, space in enumerate(SPACES):
        changed = {s: z.clone() for s, z in a.items()}
        for s in SPACES:
            changed[s][shared() != m] += torch.randn_like(changed[s][shared() != m])
        after = objective(changed, b, shared())
        assert after.per_space["invariance"][m] == before.per_space["invariance"][m], space
        assert after.per_space["invariance_gap"][m] == before.per_space["invariance_gap"][m], space
        assert after.loss != before.loss


def test_contents_invariance_may_see_all_pairs():
    a, b = embeddings(seed=0), embeddings(seed=1)
    base = SimCLR()
    terms = DisentangledLoss(base, spaces=SPACES, content_pairs="all")(a, b, shared())
    every = terms.per_space["invariance"]
    assert every[0] == base.invariance(a["content"], b["content"])
    own = DisentangledLoss(base, spaces=SPACES)(a, b, shared()).per_space["invariance"]
    assert every[0] != own[0]
    assert torch.equal(every[1:], own[1:])


@pytest.mark.parametrize("base", BASES)
def test_reordering_or_renaming_style_groups_changes_nothing(base):
    a, b = embeddings(seed=0), embeddings(seed=1)
    one = DisentangledLoss(base, spaces=SPACES)(a, b, shared())
    swapped = torch.tensor([0, 2, 1])[shared()]
    two = DisentangledLoss(base, spaces=("content", "spatial", "color"))(a, b, swapped)
    torch.testing.assert_close(one.loss, two.loss, atol=1e-12, rtol=1e-12)
    names = dict(zip(SPACES, ("content", "q", "r"), strict=True))
    renamed = [{names[s]: z for s, z in side.items()} for side in (a, b)]
    three = DisentangledLoss(base, spaces=("content", "q", "r"))(*renamed, shared())
    assert torch.equal(one.loss, three.loss)


@pytest.mark.parametrize("base", BASES)
def test_the_order_of_the_two_views_does_not_matter(base):
    a, b = embeddings(seed=0), embeddings(seed=1)
    objective = DisentangledLoss(base, spaces=SPACES)
    torch.testing.assert_close(objective(a, b, shared()).loss, objective(b, a, shared()).loss)


def test_both_entropies_see_both_views_of_every_image():
    a, b = embeddings(seed=0), embeddings(seed=1)
    for side in (a, b):
        for z in side.values():
            z.requires_grad_()
    terms = DisentangledLoss(SimCLR(), spaces=SPACES, lambda_rule=FixedWeights(start=0.0))(a, b, shared())
    terms.loss.backward()
    for side in (a, b):
        for space, z in side.items():
            assert (z.grad.norm(dim=1) > 0).all(), space


def test_the_loss_is_in_full_precision_under_autocast():
    a, b = ({s: z.float() for s, z in embeddings(seed=i).items()} for i in (0, 1))
    objective = DisentangledLoss(SimCLR(), spaces=SPACES)
    plain = objective(a, b, shared()).loss
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(objective(a, b, shared()).loss, plain)
        low = ({s: z.bfloat16() for s, z in side.items()} for side in (a, b))
        assert objective(*low, shared()).loss.dtype == torch.float32


def test_h_is_ignored_and_terms_become_plain_numbers():
    a, b = embeddings(seed=0), embeddings(seed=1)
    objective = DisentangledLoss(SimCLR(), spaces=SPACES)
    with_h = objective({"h": torch.zeros(24, 2), **a}, {"h": torch.zeros(24, 2), **b}, shared())
    row = with_h.as_dict()
    assert {"loss", "joint_entropy", "color/lambda", "content/effective_rank", "spatial/invariance_gap"} <= set(row)
    assert all(isinstance(value, float) for value in row.values())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda o: o(embeddings(), {"content": torch.zeros(24, 6)}, shared()), "color"),
        (lambda o: o(embeddings(), {**embeddings(), "smell": torch.zeros(24, 2)}, shared()), "smell"),
        (lambda o: o(embeddings(), embeddings(12), shared()), r"\(24, 6\) and \(12, 6\)"),
        (lambda o: o(embeddings(), embeddings(), shared(20)), "20 entries"),
        (lambda o: o(embeddings(), embeddings(), shared(kinds=2)), "'spatial'"),
        (lambda o: o(embeddings(), embeddings(), shared() + 1), "`shared` must be between 0 and 2"),
        (lambda o: o(embeddings(), embeddings(), shared() - 1), "`shared` must be between 0 and 2"),
        (lambda o: DisentangledLoss(SimCLR(), spaces=("color", "content")), "first"),
        (
            lambda o: DisentangledLoss(SimCLR(), spaces=SPACES, lambda_rule=FixedWeights(start={"content": 1.0})),
            "names",
        ),
        (lambda o: DisentangledLoss(SimCLR(), spaces=SPACES, content_pairs="some"), "content_pairs"),
        (lambda o: DisentangledLoss(SimCLR(), lambda_rule=FixedWeights(start=-1.0)), "negative"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, words):
    with pytest.raises(UnweaveError, match=words) as error:
        call(DisentangledLoss(SimCLR(), spaces=SPACES))
    assert "\n" not in str(error.value)


def test_each_choice_of_entropy_written_out():
    spaces = ("content", "color", "place")
    z_a, z_b = ({s: torch.randn(12, 4) for s in spaces} for _ in "ab")
    shared = torch.arange(12) % 3
    base = SimCLR()
    loss = {
        entropy: DisentangledLoss(base, spaces=spaces, entropy=entropy)(z_a, z_b, shared).loss
        for entropy in ("content+joint", "joint", "per-space")
    }
    own = {s: base.entropy(z_a[s], z_b[s]) for s in spaces}
    joint = base.joint_entropy(list(z_a.values()), list(z_b.values()))
    torch.testing.assert_close(loss["content+joint"] - loss["joint"], own["content"])
    torch.testing.assert_close(loss["per-space"] - loss["joint"], sum(own.values()) - joint)
    with pytest.raises(UnweaveError, match="`entropy`"):
        DisentangledLoss(base, spaces=spaces, entropy="odd")


def distance_terms(power, apart, base=None, lambdas=1.0):
    """The terms of pairs whose views are ``apart``, images lying in a square of side 1."""
    z_a = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    z_b = (z_a + torch.tensor(apart, dtype=torch.float64)[:, None]).requires_grad_()
    objective = DisentangledLoss(base or VICReg(), power=power, lambda_rule=FixedWeights(start=lambdas))
    return objective({"content": z_a}, {"content": z_b}, torch.zeros(4, dtype=torch.long)), z_b


def test_the_distance_of_views_to_a_power_by_hand():
    for power in (1.0, 1.5, 2.0):
        terms, _ = distance_terms(power, [0.3, 0.0, 0.1, 0.2])
        mean = (0.3**power + 0.1**power + 0.2**power) / 4
        spread = (2 * terms.per_space["variance"].item()) ** 0.5
        torch.testing.assert_close(terms.per_space["invariance"][0].item(), spread ** (2 - power) * mean)
        torch.testing.assert_close(terms.per_space["invariance_gap"][0].item(), (mean ** (1 / power) / spread) ** 2)
    squared, _ = distance_terms(None, [0.3, 0.0, 0.1, 0.2])
    torch.testing.assert_close(terms.per_space["invariance"], squared.per_space["invariance"])


def test_with_power_1_every_pair_pulls_with_one_force_and_equal_views_with_none():
    def pull(power):
        (with_weight, z), (without, other) = (distance_terms(power, [0.3, 0.0, 0.01, 0.2], lambdas=w) for w in (1e6, 0))
        with_weight.loss.backward()
        without.loss.backward()
        return (z.grad - other.grad).norm(dim=1) / 1e6

    assert pull(1.0)[1] == 0
    assert pull(1.0)[[2, 3]].tolist() == pytest.approx([pull(1.0)[0].item()] * 2, rel=1e-3)
    assert pull(2.0)[2] < 0.04 * pull(2.0)[0]


@pytest.mark.parametrize("base", [VICReg(), SimCLR(1.0, similarity="euclidean", decoupled=False)])
def test_the_distance_to_any_power_grows_as_the_square_of_the_length(base):
    a, b = torch.randn(20, 4), torch.randn(20, 4)
    zero, objective = torch.zeros(20, dtype=torch.long), DisentangledLoss(base, power=1.0)
    one, ten = (objective({"content": s * a}, {"content": s * b}, zero).per_space["invariance"] for s in (1, 10))
    torch.testing.assert_close(ten, 100 * one)


@pytest.mark.parametrize("base", BASES)
def test_the_gap_of_distances_does_not_depend_on_power_or_length_where_all_views_are_equally_far(base):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(400, 8, generator=generator).double()
    away = z + 0.1 * torch.nn.functional.normalize(torch.randn(400, 8, generator=generator).double(), dim=1)
    found = [
        DisentangledLoss(base, power=power)({"content": s * z}, {"content": s * away}, torch.zeros(400).long())
        .per_space["invariance_gap"].item()
        for power in (1.0, 2.0) for s in (1.0, 50.0)
    ]  # fmt: skip
    assert max(found) < 1.3 * min(found)
    assert 0.015**2 < min(found) < 0.05**2  # 0.1 over √(2 · 8), squared


@pytest.mark.parametrize("base", BASES)
def test_under_dual_ascent_the_gap_is_an_entry_of_the_sensitivity_matrix(base):
    a = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
    b = a + 0.5 * torch.randn(300, 8, generator=torch.Generator().manual_seed(1))
    objective = DisentangledLoss(base, lambda_rule=uw.DualAscent())
    found = objective({"content": a}, {"content": b}, torch.zeros(300).long()).per_space["invariance_gap"].item()
    a, b = base.normalize(a), base.normalize(b)
    different = torch.cdist(torch.cat([a, b]), torch.cat([a, b])).square().mean()
    assert found == pytest.approx(((a - b).square().sum(1).mean() / different).item(), rel=1e-4)


def test_under_dual_ascent_the_gap_of_a_style_is_that_of_its_own_pairs():
    a = torch.randn(90, 8, generator=torch.Generator().manual_seed(0))
    kind = torch.arange(90) % 3
    noise = torch.randn(90, 8, generator=torch.Generator().manual_seed(1))
    b = a + torch.tensor([0.5, 0.1, 1.0])[kind][:, None] * noise
    objective = DisentangledLoss(SimCLR(), spaces=SPACES[:3], lambda_rule=uw.DualAscent())
    gaps = objective(dict.fromkeys(SPACES[:3], a), dict.fromkeys(SPACES[:3], b), kind).per_space["invariance_gap"]
    assert gaps[1] < gaps[0] / 4
    assert gaps[0] < gaps[2] / 2


@pytest.mark.parametrize("base", BASES)
def test_noise_hides_from_the_loss_what_is_smaller_and_is_the_same_for_the_same_update(base):
    objective = DisentangledLoss(base, noise=0.1)
    z = torch.randn(64, 8)
    one, two = ({"content": z}, {"content": z}), torch.zeros(64, dtype=torch.long)
    first, again = objective(*one, two), objective(*one, two)
    assert torch.equal(first.loss, again.loss)
    assert (
        first.per_space["invariance_gap"].item()
        < 1e-6
        < DisentangledLoss(base).base.invariance_gap(z, z + 0.1 * torch.randn(64, 8))
    )
    clean = DisentangledLoss(base)(*one, two)
    assert first.per_space["invariance"] > clean.per_space["invariance"] + 1e-6
    assert first.per_space["variance"] == clean.per_space["variance"]
    objective.update(first)
    assert not torch.equal(objective(*one, two).loss, first.loss)


def test_noise_is_standard_normal_and_independent_across_updates_and_streams():
    from unweave.objectives.noise import counted_normal

    draws = [counted_normal((300, 300), torch.tensor(u), s).double() for u, s in ((0, 0), (1, 0), (0, 1), (1, 1))]
    for i, x in enumerate(draws):
        assert abs(x.mean()) < 0.015
        assert abs(x.std() - 1) < 0.01
        assert abs(x.pow(4).mean() - 3) < 0.1
        assert abs((x[1:] * x[:-1]).mean()) < 0.015
        assert all(abs((x * y).mean()) < 0.015 for y in draws[:i])


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("power", [1.0, 1.5])
def test_relative_distances_are_the_ratio_of_mean_distances_by_hand(base, power):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(12, 5, generator=generator).double() for _ in "ab")
    objective = DisentangledLoss(base, power=power, relative=True)
    terms = objective({"content": a}, {"content": b}, torch.zeros(12, dtype=torch.long))
    x, y = base.normalize(a), base.normalize(b)
    within = (x - y).norm(dim=1).pow(power).mean()
    apart = torch.stack([(x[i] - y[(i - k) % 12]).norm() ** power for k in range(1, 5) for i in range(12)]).mean()
    gap = ((within / apart) ** (2 / power)).item()
    assert terms.per_space["invariance_gap"].item() == pytest.approx(gap, rel=1e-3)


def test_the_methods_own_invariance_precedes_the_power():
    generator = torch.Generator().manual_seed(0)
    a, b = ({"content": torch.randn(12, 5, generator=generator)} for _ in "ab")
    zero, found, stages = torch.zeros(12, dtype=torch.long), [], []
    objective = DisentangledLoss(SimCLR(), power=1.0, relative=True, power_start=2)
    for _ in range(4):
        stages.append(objective.stage())
        terms = objective(a, b, zero)
        found.append(terms.per_space["invariance"].item())
        objective.update(terms)
    own = SimCLR().invariance(a["content"], b["content"]).item()
    power = SimCLR().distance_invariance(a["content"], b["content"], 1.0, True).item()
    assert found == pytest.approx([own, own, power, power])
    assert len(set(stages[:2])) == len(set(stages[2:])) == 1  # a captured graph is valid within a stage
    assert stages[1] != stages[2]


def test_relative_distances_have_no_preference_for_rare_outliers():
    """A code that is 0 for all views but a share of them, which two views of an image do not have in common."""

    def cost(share, relative):
        n = 20_000
        generator = torch.Generator().manual_seed(0)
        a, b = ((torch.rand(n, 1, generator=generator) < share).double() for _ in "ab")
        scale = (share * (1 - share)) ** -0.5  # variance 1, whatever the share
        return VICReg().distance_invariance(scale * a, scale * b, 1.0, relative).item()

    assert cost(0.01, False) < 0.3 * cost(0.5, False)
    assert cost(0.01, True) == pytest.approx(cost(0.5, True), rel=0.1)


@pytest.mark.parametrize("base", BASES)
def test_relative_distances_do_not_shrink_an_embedding(base):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(30, 6, generator=generator).double()
    a, b = (z + 0.3 * torch.randn(30, 6, generator=generator).double() for _ in "ab")
    length = torch.ones((), dtype=torch.float64, requires_grad=True)
    spread = base.spread(a, b)
    (base.distance_invariance(length * a, length * b, 1.0, True) / spread**2).backward()
    assert abs(length.grad.item()) < 1e-3


@pytest.mark.parametrize(
    "wrong", [{"power": 0.5}, {"power": 3.0}, {"noise": -0.1}, {"relative": True}, {"power_start": 5}]
)
def test_impossible_powers_and_noise_are_refused(wrong):
    with pytest.raises(UnweaveError, match=f"`{next(iter(wrong))}`"):
        DisentangledLoss(SimCLR(), **wrong)


@pytest.mark.parametrize("base", BASES)
def test_with_a_conditional_entropy_content_learns_as_the_base_method_alone(base):
    def gradients(entropy):
        a, b = ({s: z.requires_grad_() for s, z in embeddings(seed=seed).items()} for seed in (0, 1))
        objective = DisentangledLoss(base, spaces=SPACES, content_pairs="all", entropy=entropy)
        terms = objective(a, b, shared())
        return terms.loss, torch.autograd.grad(terms.loss, [*a.values(), *b.values()])

    a, b = (embeddings(seed=seed)["content"].requires_grad_() for seed in (0, 1))
    alone = torch.autograd.grad(base.loss(a, b), [a, b])
    conditional_loss, conditional = gradients("content+conditional")
    joint_loss, joint = gradients("content+joint")
    assert conditional_loss == joint_loss
    for number, (ours, of_joint) in enumerate(zip(conditional, joint, strict=True)):
        if number % len(SPACES):  # a style space
            torch.testing.assert_close(ours, of_joint)
        else:
            torch.testing.assert_close(ours, alone[number // len(SPACES)])
            assert not torch.allclose(ours, of_joint)


@pytest.mark.parametrize("base", BASES)
def test_with_a_pairwise_entropy_each_style_has_the_conditional_entropy_of_two_spaces(base):
    a, b = ({s: z.requires_grad_() for s, z in embeddings(seed=seed).items()} for seed in (0, 1))
    loss = DisentangledLoss(base, spaces=SPACES, content_pairs="all", entropy="content+pairwise")
    *found, of_b = torch.autograd.grad(loss(a, b, shared()).loss, [*a.values(), b["content"]])
    alone = torch.autograd.grad(base.loss(a["content"], b["content"]), [a["content"], b["content"]])
    torch.testing.assert_close((found[0], of_b), alone)
    for number, style in enumerate(SPACES[1:], 1):
        rows = shared() == number
        invariance = base.invariance_weight * base.invariance(a[style][rows], b[style][rows])
        pair = base.joint_entropy([a["content"], a[style]], [b["content"], b[style]])
        torch.testing.assert_close(found[number], torch.autograd.grad(invariance + pair, a[style])[0])


def test_a_pairwise_entropy_without_contents_similarity_is_one_entropy_for_each_space():
    a, b = embeddings(seed=0), embeddings(seed=1)
    pairwise = DisentangledLoss(SimCLR(0.2, 0.1, joint_content=0.0), spaces=SPACES, entropy="content+pairwise")
    per_space = DisentangledLoss(SimCLR(0.2), spaces=SPACES, entropy="per-space")
    torch.testing.assert_close(pairwise(a, b, shared()).loss, per_space(a, b, shared()).loss)


def test_the_other_view_of_an_image_is_a_negative_of_the_joint_entropy_alone():
    a, b = embeddings(seed=0), embeddings(seed=1)
    with_own, without = SimCLR(0.2, joint_own_view=True), SimCLR(0.2)
    assert with_own.entropy(a["content"], b["content"]) == without.entropy(a["content"], b["content"])
    unit = [torch.cat([torch.nn.functional.normalize(z, dim=1) for z in view.values()], 1) / 3**0.5 for view in (a, b)]
    views = torch.cat(unit)
    scores = (views @ views.T / 0.2).fill_diagonal_(-torch.inf)
    torch.testing.assert_close(with_own.joint_entropy([*a.values()], [*b.values()]), scores.logsumexp(1).mean())
