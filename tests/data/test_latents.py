import pytest
import torch

from unweave.data import LatentModel, StackedLatents
from unweave.errors import UnweaveError


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def covariance(x):
    return torch.cov(x.T.double())


def test_independent_latents_are_standard_normal():
    content, style = StackedLatents(LatentModel(), (0,)).sample(100_000, generator())
    joint = covariance(torch.cat([content[0], style[0]], 1))
    assert (joint - torch.eye(10)).abs().max() < 0.03


def test_causal_style_is_a_plus_b_times_content():
    latents = StackedLatents(LatentModel(causal=True), (0, 1))
    content, style = latents.sample(50_000, generator())
    for r in (0, 1):
        rest = style[r] - content[r] @ latents.effect[r].T - latents.offset[r]
        assert (covariance(rest) - torch.eye(5)).abs().max() < 0.04
        assert abs(torch.corrcoef(torch.cat([rest, content[r]], 1).T)[:5, 5:]).max() < 0.03
    assert not torch.equal(latents.effect[0], latents.effect[1])


def test_statistical_dependence_has_the_drawn_covariance():
    latents = StackedLatents(LatentModel(statistical=True), (3,))
    content, _ = latents.sample(200_000, generator())
    expected = latents.content_factor[0] @ latents.content_factor[0].T
    assert (covariance(content[0]) - expected).abs().max() < 0.03 * expected.abs().max()


def test_interventions():
    shift, perfect = (StackedLatents(LatentModel(causal=True, intervention=i), (0,)) for i in ("shift", "perfect"))
    _, style = shift.sample(50_000, generator())
    moved = shift.perturb(style, generator(1)) - style
    assert (covariance(moved[0]) - torch.eye(5)).abs().max() < 0.04
    replaced = perfect.perturb(style, generator(1))
    assert abs(torch.corrcoef(torch.cat([replaced[0], style[0]], 1).T)[:5, 5:]).max() < 0.03


def test_the_mixing_can_be_inverted_and_is_well_conditioned():
    latents = StackedLatents(LatentModel(), (0, 1, 2))
    assert torch.linalg.cond(latents.mixing).max() < 6
    assert (latents.mixing.norm(dim=2) - 1).abs().max() < 1e-5
    content, style = latents.sample(100, generator())
    x = latents.observe(content, style)
    for layer in reversed(range(3)):
        x = torch.linalg.solve(latents.mixing[:, layer].mT, x.mT).mT
        x = torch.where(x < 0, x / 0.2, x) if layer else x
    torch.testing.assert_close(x, torch.cat([content, style], -1), atol=1e-3, rtol=0)


def test_an_instance_is_the_same_alone_and_among_others():
    together, alone = StackedLatents(LatentModel(causal=True), (7, 8)), StackedLatents(LatentModel(causal=True), (8,))
    assert torch.equal(together.mixing[1], alone.mixing[0])
    assert torch.equal(together.effect[1], alone.effect[0])


def test_pairs_share_one_style_variable_and_nothing_else():
    latents = StackedLatents(LatentModel(content=2, style=6, variables=3, causal=True), (0, 1))
    _, style = latents.sample(4000, generator())
    shared = torch.arange(4000) % 4
    a, b = latents.pairs(style, shared, generator(1))
    for m in range(3):
        dims = slice(2 * m, 2 * m + 2)
        same = (a[..., dims] == b[..., dims]).all(-1)
        assert torch.equal(same, (shared == m + 1).expand(2, -1))
        apart = shared != m + 1
        moved = torch.stack([(x - style)[0, apart, 2 * m] for x in (a, b)])
        assert abs(torch.corrcoef(moved)[0, 1]) < 0.06


def test_styles_can_cause_each_other():
    latents = StackedLatents(LatentModel(content=2, style=3, chain=True), (0,))
    _, style = latents.sample(50_000, generator())
    links = latents.links[0]
    own = [style[0, :, i] - sum(links[i, k] * style[0, :, k] for k in range(i)) for i in range(3)]
    assert (covariance(torch.stack(own, 1)) - torch.eye(3)).abs().max() < 0.04
    assert abs(torch.corrcoef(style[0].T)[0, 1]) > 0.05


def test_noise_that_is_not_added_has_a_scale_set_by_content():
    latents = StackedLatents(LatentModel(content=2, style=1, causal=True, additive=False), (0,))
    content, style = latents.sample(50_000, generator())
    rest = (style - content @ latents.effect.mT - latents.offset[:, None])[0, :, 0]
    scale = torch.tanh(content @ latents.scale_effect.mT).exp()[0, :, 0]
    assert rest[scale > 1.5].std() > 2 * rest[scale < 0.6].std()


@pytest.mark.parametrize(
    "settings", [{"variables": 2}, {"content": 0}, {"style": 0}, {"slope": 0.0}, {"intervention": "none"}]
)
def test_impossible_models_are_refused_in_one_line(settings):
    with pytest.raises(UnweaveError) as error:
        LatentModel(**settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "model",
    [
        LatentModel(causal=True),
        LatentModel(causal=True, additive=False),
        LatentModel(causal=True, chain=True, statistical=True),
        LatentModel(causal=True, intervention="perfect"),
    ],
    ids=["added", "scaled", "chain", "perfect"],
)
def test_the_rank_given_content_is_uniform_whatever_the_content(model):
    latents = StackedLatents(model, (0, 1))
    content, style = latents.sample(40_000, generator())
    rank = latents.conditional_rank(content, latents.perturb(style, generator(1)))
    for r in (0, 1):
        for part in (content[r, :, 0] > 1, content[r, :, 0] < -1, content[r, :, 1] > 0):
            for column in rank[r][part].T:
                uniform = torch.linspace(0, 1, len(column))
                assert (column.sort().values - uniform).abs().max() < 0.03  # Kolmogorov and Smirnov's distance


def test_a_rounded_mixing_has_no_kink_and_comes_near_the_kinked_one():
    kinked, rounded = (StackedLatents(LatentModel(rounding=width), (0,)) for width in (0.0, 0.02))
    content, style = kinked.sample(2000, generator())
    assert (kinked.observe(content, style) - rounded.observe(content, style)).abs().max() < 0.1

    def second_difference(latents, step):
        place = torch.linspace(-3, 3, 4001).view(1, -1, 1).expand(1, -1, 5)
        x = latents.observe(place, style[:, :1].expand(1, 4001, 5))
        return (x[:, 2:] - 2 * x[:, 1:-1] + x[:, :-2]).abs().max() / step**2

    smooth = StackedLatents(LatentModel(rounding=0.5), (0,))
    assert second_difference(smooth, 6 / 4000) < 30 < second_difference(kinked, 6 / 4000)


def test_a_negative_rounding_is_refused():
    with pytest.raises(UnweaveError, match="rounding"):
        LatentModel(rounding=-1)
