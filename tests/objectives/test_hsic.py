"""The dependence of a style space on content: against its definition, and as a part of the loss."""

import pytest
import torch

import unweave as uw
from unweave.objectives.hsic import _u_centred, centred_kernels, dependence, linear_dependence, whitened


def test_it_is_the_definition_with_centring_matrices():
    x, y = torch.randn(40, 3).double(), torch.randn(40, 2).double()

    def kernel(z, sharpness=1):
        d = torch.cdist(z, z).square()
        return torch.exp(-sharpness * d / d.mean())

    h = torch.eye(40).double() - 1 / 40
    q = kernel(y)

    def hsic(k, other):
        return torch.trace(k @ h @ other @ h)

    expected = [hsic(p, q) / (hsic(p, p) * hsic(q, q)).sqrt() for p in (kernel(x, s) for s in (1, 4, 16))]
    torch.testing.assert_close(dependence(x, y), sum(expected) / 3)


def test_what_is_independent_what_only_looks_uncorrelated_and_copies():
    x, y = torch.rand(1500, 1) * 2 - 1, torch.rand(1500, 1)
    assert dependence(x, y) < 0.01
    assert dependence(x, x.square()) > 0.1
    assert 0.7 < dependence(x, 7 * x + 3) <= 1


def test_dependence_within_a_small_neighbourhood_is_detected():
    u, shape = torch.rand(1000, 1), torch.randint(2, (1000, 1)).float()
    beside = torch.cat([u, 0.1 * shape], 1)  # a long curve, and which side of it
    [wide], [content] = (centred_kernels(z, (1.0,)) for z in (beside, shape))
    wide_alone = (wide * content).sum() / (wide.norm() * content.norm())
    assert dependence(beside, shape) > max(0.1, 2 * wide_alone)
    assert dependence(u, shape) < 0.03


def test_a_collapsed_space_gives_no_nan():
    x = torch.zeros(20, 3, requires_grad=True)
    value = dependence(x, torch.randn(20, 2))
    value.backward()
    assert value == 0
    assert torch.isfinite(x.grad).all()


def test_linear_dependence_is_the_cross_covariance_without_its_bias():
    """E‖C‖² of a finite sample is its true value plus a mean over single rows: many batches have no such bias."""
    mixing, found, biased = torch.randn(60, 8), [], []
    for _ in range(40):
        z, noise = torch.randn(120, 60), torch.randn(120, 8)
        found.append(linear_dependence(z, noise).item())
        centred = z - z.mean(0)
        k, other = centred @ centred.T, noise @ noise.T
        biased.append(((k * other).sum() / (k.norm() * other.norm())).item())
        assert linear_dependence(z, z @ mixing) > 0.3
    assert abs(sum(found) / 40) < 0.005 < 0.1 < min(biased)


def test_linear_dependence_ignores_products_of_views_of_one_image():
    """Two views of one image are alike in both spaces, whether or not the spaces depend on each other."""
    z, other = (torch.randn(200, 20).repeat(2, 1) for _ in "ab")
    assert linear_dependence(z, other) > 0.02
    assert abs(linear_dependence(z, other, views=2)) < 0.02


@pytest.mark.parametrize(("images", "views"), [(4, 1), (9, 1), (5, 2), (16, 2)])
def test_u_centring_leaves_rows_that_sum_to_zero_and_nothing_between_views_of_one_image(images, views):
    z = torch.randn(views * images, 3).double()
    number = torch.arange(len(z)) % images
    different = number[:, None] != number
    found = _u_centred(z @ z.T, different, views)
    torch.testing.assert_close(found.sum(1), torch.zeros(len(z)).double())
    assert not found[~different].any()
    shift = (z + torch.randn(3).double()) @ (z + torch.randn(3).double()).T  # g_ij changes by a_i + a_j at most
    a = torch.randn(len(z), 1).double()
    torch.testing.assert_close(_u_centred(shift + a + a.T, different, views), _u_centred(shift, different, views))


@pytest.mark.parametrize("images", [8, 32, 64])
def test_in_small_batches_independent_spaces_have_no_dependence_on_average(images):
    found = []
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        style, content = (
            z.repeat(2, 1) + 0.3 * torch.randn(2 * images, 128, generator=generator)
            for z in torch.randn(2, images, 128, generator=generator)
        )
        found.append(linear_dependence(style, whitened(content), views=2))
    found = torch.stack(found)
    assert abs(found.mean()) < 3 * found.std() / len(found) ** 0.5 + 0.005


BASES = [uw.SimCLR(), uw.VICReg(), uw.BarlowTwins()]


@pytest.mark.parametrize("base", BASES, ids=lambda base: type(base).__name__)
@pytest.mark.parametrize("kernel", ["gaussian", "linear", "whitened"])
def test_a_collapsed_style_has_a_bounded_gradient_from_it(base, kernel):
    """Rounding, divided by its own size, would have a gradient of any size."""
    constant = torch.full((32, 16), 0.1)
    a, b = ({"content": torch.randn(32, 16), "x": constant.clone().requires_grad_()} for _ in "ab")
    term = uw.Independence(weight=30.0, kernel=kernel)
    losses = [
        uw.DisentangledLoss(base, spaces=("content", "x"), independence=chosen)(a, b, torch.arange(32) % 2).loss
        for chosen in (term, None)
    ]
    with_it, without = (torch.autograd.grad(loss, a["x"], retain_graph=True)[0] for loss in losses)
    assert (with_it - without).abs().max() < 1e4
    assert torch.isfinite(with_it).all()


SPACES = ("content", "color", "place")


def batch():
    a, b = ({s: torch.randn(30, 4, requires_grad=True) for s in SPACES} for _ in "ab")
    return a, b, torch.arange(30) % 3


def test_it_is_added_to_the_loss_for_every_style_space():
    a, b, shared = batch()
    without = uw.DisentangledLoss(uw.VICReg(), spaces=SPACES)(a, b, shared)
    with_it = uw.DisentangledLoss(uw.VICReg(), spaces=SPACES, independence=uw.Independence(weight=2.0))(a, b, shared)
    both = {s: torch.cat([a[s], b[s]]) for s in SPACES}
    parts = [dependence(both[s], both["content"]) for s in SPACES[1:]]
    torch.testing.assert_close(with_it.loss - without.loss, 2 * sum(parts), rtol=1e-3, atol=1e-4)
    assert with_it.per_space["dependence"].tolist() == pytest.approx([0.0, *(p.item() for p in parts)])
    assert "dependence" not in without.per_space
    assert "place/dependence" not in without.as_dict()
    assert with_it.as_dict()["place/dependence"] == pytest.approx(parts[1].item())


def test_the_linear_kernel_is_that_of_both_views():
    a, b, shared = batch()
    term = uw.Independence(weight=2.0, kernel="linear")
    found = uw.DisentangledLoss(uw.VICReg(), spaces=SPACES, independence=term)(a, b, shared)
    both = {s: torch.cat([a[s], b[s]]) for s in SPACES}
    expected = [linear_dependence(both[s], both["content"], views=2).item() for s in SPACES[1:]]
    assert found.per_space["dependence"].tolist() == pytest.approx([0.0, *expected])
    with pytest.raises(uw.UnweaveError, match="kernel"):
        uw.Independence(kernel="cubic")


@pytest.mark.parametrize("kernel", ["gaussian", "linear", "whitened"])
def test_content_is_not_moved_by_it(kernel):
    gradients = []
    a, b, shared = batch()
    for weight in (0.0, 5.0):
        term = uw.Independence(weight=weight, kernel=kernel)
        loss = uw.DisentangledLoss(uw.VICReg(), spaces=SPACES, independence=term)(a, b, shared).loss
        gradients.append(torch.autograd.grad(loss, [a["content"], a["color"]]))
    torch.testing.assert_close(gradients[0][0], gradients[1][0])
    assert not torch.allclose(gradients[0][1], gradients[1][1])


def test_it_is_absent_before_its_start_and_grows_linearly_over_its_ramp():
    schedule = uw.Independence(weight=2.0, start=4, ramp=4)
    with_it, without = (
        uw.DisentangledLoss(uw.VICReg(), spaces=SPACES, independence=term).double() for term in (schedule, None)
    )
    a, b, shared = batch()
    a, b = ({s: z.double() for s, z in side.items()} for side in (a, b))
    plain, shares, stages = without(a, b, shared).loss, [], []
    for _ in range(10):
        stages.append(with_it.stage())
        terms = with_it(a, b, shared)
        total = terms.per_space["dependence"].sum() if "dependence" in terms.per_space else None
        shares.append(0.0 if total is None else float((terms.loss - plain).detach() / (2 * total)))
        with_it.update(terms)
    assert shares == pytest.approx([0, 0, 0, 0, 0.25, 0.5, 0.75, 1, 1, 1])
    assert stages == [(False, True)] * 4 + [(True, True)] * 6  # a captured graph is valid within a stage
    again = uw.DisentangledLoss(uw.VICReg(), spaces=SPACES, independence=schedule).double()
    again.load_state_dict({**with_it.state_dict(), "updates": torch.tensor(5)})
    assert float((again(a, b, shared).loss - plain).detach() / total) == pytest.approx(1)  # half of 2


def test_each_style_space_may_have_its_own_weight():
    a, b, shared = batch()
    without = uw.DisentangledLoss(uw.VICReg(), spaces=SPACES)(a, b, shared).loss
    weights = {"color": 3.0, "place": 0.5}
    found = uw.DisentangledLoss(uw.VICReg(), spaces=SPACES, independence=uw.Independence(weight=weights))(a, b, shared)
    _, color, place = found.per_space["dependence"]
    torch.testing.assert_close(found.loss - without, 3 * color + 0.5 * place, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("weight", [-1.0, {"color": 1.0, "place": -1.0}])
def test_a_negative_weight_is_refused(weight):
    with pytest.raises(uw.UnweaveError, match="negative"):
        uw.Independence(weight=weight)


def test_weights_of_other_spaces_are_refused():
    with pytest.raises(uw.UnweaveError, match="`weight` names the spaces"):
        uw.DisentangledLoss(uw.SimCLR(), spaces=SPACES, independence=uw.Independence(weight={"color": 1.0}))


def skewed(n=600, d=24):
    """Embeddings whose variances fall by five orders of magnitude, along random directions, and those directions."""
    generator = torch.Generator().manual_seed(0)
    axes = torch.linalg.qr(torch.randn(d, d, generator=generator)).Q
    return torch.randn(n, d, generator=generator) * 10 ** torch.linspace(0, -2.5, d) @ axes, axes


def test_whitening_is_the_inverse_root_of_the_covariance_by_its_eigenvectors():
    z, _ = skewed()
    centred = (z - z.mean(0)).double()
    covariance = centred.T @ centred / len(z)
    values, vectors = torch.linalg.eigh(covariance)
    expected = centred @ (vectors * (values + 1e-2 * values.mean()).rsqrt()) @ vectors.T
    torch.testing.assert_close(whitened(z).double(), expected, rtol=1e-3, atol=1e-3)
    assert whitened(torch.ones(9, 3)).isfinite().all()


@pytest.mark.parametrize("scale", [1.0, 1e-11, 1e-15])
@pytest.mark.parametrize("rank", [1, 2, 20])
def test_whitening_is_exact_for_small_embeddings_and_for_few_directions(scale, rank):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(512, rank, generator=generator) @ torch.randn(rank, 64, generator=generator)
    z = scale * (z + 1e-3 * torch.randn(512, 64, generator=generator))
    centred = (z - z.mean(0)).double()
    covariance = centred.T @ centred / len(z)
    values, vectors = torch.linalg.eigh(covariance)
    expected = centred @ (vectors * (values + 1e-2 * values.mean()).rsqrt()) @ vectors.T
    assert (whitened(z) - expected).norm() < 2e-3 * expected.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("rank", [1, 2, 6, 512])
def test_whitening_on_a_gpu_does_not_use_short_products(rank):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(1024, rank, generator=generator) @ torch.randn(rank, 512, generator=generator)
    z = z + 1e-3 * torch.randn(1024, 512, generator=generator)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        found = whitened(z.cuda()).cpu()
    finally:
        torch.set_float32_matmul_precision(before)
    expected = whitened(z.double())
    assert (found - expected).norm() < 5e-3 * expected.norm()


def test_with_a_whitened_content_its_directions_of_small_variance_count():
    content, axes = skewed()
    copied = (content @ axes.T)[:, 8:12]
    z = torch.cat([copied / copied.std(0), torch.randn(len(content), 20)], 1)
    assert linear_dependence(z, content) < 0.02
    assert linear_dependence(z, whitened(content)) > 0.1
    objective = uw.DisentangledLoss(
        uw.SimCLR(), spaces=("content", "style"), independence=uw.objectives.Independence(kernel="whitened")
    )
    embeddings = {"content": content.requires_grad_(), "style": z.requires_grad_()}
    terms = objective(embeddings, embeddings, torch.arange(len(z)) % 2)
    assert terms.per_space["dependence"][1] > 0.1


SHAPES = [(96, 400), (400, 400), (96, 20), (96, 20)]


def test_whitening_finds_dependence_in_fewer_rows_than_dimensions():
    generator = torch.Generator().manual_seed(0)
    factors, axes, noise, other = (torch.randn(*shape, generator=generator) for shape in SHAPES)
    content = factors @ (axes / 20 * 10 ** torch.linspace(0, -2, 400))
    copy = content[:, :20] + 0.1 * noise
    shared, chance = (linear_dependence(z, whitened(content)) for z in (copy, other))
    assert shared > 0.2 > 5 * chance.abs()
    assert linear_dependence(copy, whitened(content, ridge=1e-2)) < 0.6 * shared
