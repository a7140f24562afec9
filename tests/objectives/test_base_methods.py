"""The splits into invariance and entropy are the published losses."""

import math

import pytest
import torch
import torch.nn.functional as F
from lightly.loss import BarlowTwinsLoss, DCLLoss, VICRegLoss
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from unweave.errors import UnweaveError
from unweave.objectives import BarlowTwins, SimCLR, VICReg, effective_rank, variance
from unweave.objectives.simclr import contrastive_entropy


@pytest.fixture(params=[(32, 8), (16, 64)], ids=["wide", "tall"])
def pair(request):
    n, d = request.param
    z = torch.randn(n, d, dtype=torch.float64)
    return z, z + 0.5 * torch.randn(n, d, dtype=torch.float64)


def close(ours, theirs, tolerance=1e-5):
    assert abs(float(ours) - float(theirs)) <= tolerance * max(1, abs(float(theirs)))


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_simclr_is_lightlys_decoupled_loss(pair, temperature):
    close(SimCLR(temperature).loss(*pair), DCLLoss(temperature)(*pair))


def test_vicreg_is_lightlys(pair):
    close(VICReg().loss(*pair), VICRegLoss()(*pair))
    close(VICReg(10.0, 5.0, 2.0).loss(*pair), VICRegLoss(10.0, 5.0, 2.0)(*pair))


def test_barlow_twins_is_lightlys(pair):
    # lightly's default is 0.005; the paper's, and ours, 0.0051.
    close(BarlowTwins().loss(*pair), BarlowTwinsLoss(lambda_param=0.0051)(*pair))


@pytest.mark.parametrize("base", [SimCLR(0.2), VICReg(), BarlowTwins()], ids=repr)
def test_the_weighted_mean_of_squared_distances_is_the_methods_invariance(base, pair):
    found = base.distance_weight(pair[0].shape[1]) * base.distances(*pair).square().mean()
    if isinstance(base, SimCLR):
        close(found, base.invariance(*pair) + 1 / base.temperature)  # 1 − cos in place of −cos
    elif isinstance(base, VICReg):
        close(found, base.invariance(*pair))
    else:  # Barlow Twins squares every 1 − C_jj
        z_a, z_b = ((z - z.mean(0)) / z.std(0, correction=0) for z in pair)
        close(found, (1 - (z_a * z_b).mean(0)).sum(), tolerance=1e-4)


def test_simclr_with_distances_has_the_same_weight():
    z_a, z_b = torch.zeros(2, 3), torch.tensor([[3.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
    base = SimCLR(2.0, similarity="euclidean")
    close(base.distance_weight(3) * base.distances(z_a, z_b).square().mean(), base.invariance(z_a, z_b))


def test_a_gap_far_below_the_rounding_of_a_cosine_is_measured():
    z = torch.randn(64, 256)
    away = z + 1e-5 * torch.randn(64, 256)
    exact = SimCLR().invariance_gap(z.double(), away.double())
    assert exact < 1e-9
    close(SimCLR().invariance_gap(z, away) / exact, 1.0, tolerance=0.01)


def test_simclr_by_hand():
    """Two images, two views, all unit vectors at right angles or equal: every sum has two terms."""
    z_a = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    z_b = torch.tensor([[0.0, 3.0], [0.0, 1.0]])
    base = SimCLR(temperature=1.0)
    close(base.invariance(z_a, z_b), -0.5)
    close(base.invariance_gap(z_a, z_b), 0.5)
    # negatives of a1: a2, b2 (cos 0, 0); a2: a1, b1 (0, 1); b1: a2, b2 (1, 1); b2: a1, b1 (0, 1)
    e = math.e
    close(base.entropy(z_a, z_b), (math.log(2) + math.log(1 + e) + math.log(2 * e) + math.log(1 + e)) / 4)
    # The table's form: view a's anchors, view b's negatives: a1–b2 (0), a2–b1 (1)
    close(SimCLR(temperature=1.0, negatives="other_view").entropy(z_a, z_b), 0.5)


def test_simclr_with_distances_by_hand():
    z_a, z_b = torch.tensor([[0.0], [3.0]]), torch.tensor([[1.0], [3.0]])
    base = SimCLR(temperature=2.0, similarity="euclidean")
    close(base.invariance(z_a, z_b), 0.25)  # (1 + 0) / 2 / τ
    close(base.invariance_gap(z_a, z_b), 0.5 / (2 * 1.6875))
    # a1: a2, b2 (9, 9); a2: a1, b1 (9, 4); b1: a2, b2 (4, 4); b2: a1, b1 (9, 4)
    pairs = ((9, 9), (9, 4), (4, 4), (9, 4))
    close(base.entropy(z_a, z_b), sum(math.log(sum(math.exp(-d / 2) for d in pair)) for pair in pairs) / 4)


def test_with_the_positive_in_the_denominator_it_is_lightlys_ntxent(pair):
    from lightly.loss import NTXentLoss

    close(SimCLR(0.3, decoupled=False).loss(*pair), NTXentLoss(0.3)(*pair))


def test_vicreg_by_hand():
    z_a, z_b = torch.tensor([[1.0, 2.0], [-1.0, -2.0]]), torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    close(VICReg().invariance(z_a, z_b), 2.0)  # (0 + 4 + 0 + 4) / 4
    # Variances 2, 8 and 2, 0; covariance 4 between the dimensions of a, twice, over d = 2.
    close(VICReg(variance_weight=0, covariance_weight=1).entropy(z_a, z_b), 16.0)
    close(VICReg(variance_weight=1, covariance_weight=0).entropy(z_a, z_b), (1 - 0.01) / 2 / 2)


def test_full_invariance_is_a_gap_of_zero_for_every_method(pair):
    for base in (SimCLR(), VICReg(), BarlowTwins()):
        assert 0 <= base.invariance_gap(pair[0], pair[0]) < 1e-6
        assert base.invariance_gap(*pair) > 0.01


@pytest.mark.parametrize("base", [SimCLR(), BarlowTwins()], ids=repr)
def test_the_gap_of_distances_does_not_depend_on_the_length_of_embeddings(base):
    a = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    b = a + 0.3 * torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    whole = base.distance_gap(a, b, 2.0)
    for length in (1e-3, 1e3):
        torch.testing.assert_close(base.distance_gap(length * a, length * b, 2.0), whole, rtol=1e-3, atol=0)
        torch.testing.assert_close(
            base.distance_invariance(length * a, length * b, 1.0),
            base.distance_invariance(a, b, 1.0),
            rtol=1e-3,
            atol=0,
        )


@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize("negatives", ["all", "other_view"])
def test_blocks_change_neither_entropy_nor_gradient(negatives, decoupled):
    def run(block):
        z = [
            F.normalize(torch.randn(50, 6, generator=torch.Generator().manual_seed(i)).double(), dim=1) for i in (0, 1)
        ]
        for x in z:
            x.requires_grad_()
        value = contrastive_entropy(*z, 0.2, negatives, block=block, decoupled=decoupled)
        value.backward()
        return value.detach(), torch.stack([x.grad for x in z])

    whole, blocks = run(1000), run(7)
    torch.testing.assert_close(whole, blocks, atol=1e-12, rtol=0)


class Largest(TorchDispatchMode):
    """The most numbers that any tensor had, forward or backward."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.numbers = max([self.numbers, *(t.numel() for t in tree_leaves(out) if isinstance(t, torch.Tensor))])
        return out


@pytest.mark.parametrize(("block", "in_blocks"), [(64, True), (4096, False)])
def test_in_blocks_no_square_matrix_is_made_or_kept(block, in_blocks):
    """2n × 2n similarities would not fit into memory for batches of thousands."""
    n, kept = 1024, []
    z = torch.randn(n, 8, requires_grad=True)
    with Largest() as made, saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        SimCLR(block=block).entropy(z, z + 1).backward()
    square = (2 * n) ** 2
    assert (made.numbers <= square / 32) == (sum(kept) < square / 4) == in_blocks
    assert torch.isfinite(z.grad).all()


def test_joint_embedding_of_simclr_is_a_unit_vector_with_its_own_temperature():
    spaces = [torch.randn(20, d).double() for d in (3, 5)]
    others = [torch.randn(20, d).double() for d in (3, 5)]
    unit = [torch.cat([F.normalize(z, dim=1) for z in side], 1) / math.sqrt(2) for side in (spaces, others)]
    close(SimCLR(0.15).joint_entropy(spaces, others), contrastive_entropy(*unit, 0.15))
    close(SimCLR(0.15, 0.05).joint_entropy(spaces, others), contrastive_entropy(*unit, 0.05))


def test_variance_and_effective_rank():
    z = torch.randn(20_000, 8) * torch.tensor([1.0, 1, 1, 0, 0, 0, 0, 0])
    assert abs(effective_rank(z) - 3) < 0.02
    assert abs(effective_rank(torch.randn(40, 1000)) - 39) < 3
    assert effective_rank(torch.ones(10, 4)) == 0
    assert abs(variance(z) - 3 / 8) < 0.01
    # On the sphere: 1 where spread evenly, whatever the scale and the number of dimensions.
    for d in (2, 64):
        assert abs(variance(SimCLR().normalize(torch.randn(20_000, d) * 100)) - 1) < 0.01
    assert variance(SimCLR().normalize(torch.randn(100, 8) * 0.01 + 5)) < 0.01


@pytest.mark.parametrize(
    "build",
    [
        lambda: SimCLR(0.0),
        lambda: SimCLR(0.1, -1.0),
        lambda: SimCLR(joint_content=-1.0),
        lambda: SimCLR(negatives="some"),
        lambda: VICReg(invariance_weight=-1),
        lambda: BarlowTwins(off_diagonal_weight=-1),
    ],
)
def test_bad_settings(build):
    with pytest.raises(UnweaveError):
        build()


def test_content_can_weigh_more_or_nothing_in_simclrs_joint_similarity():
    a, b = ([torch.randn(20, d).double() for d in (3, 5)] for _ in "ab")
    content, style = (F.normalize(torch.cat([x, y]), dim=1) for x, y in zip(a, b, strict=True))
    scores = (4 * content @ content.T + style @ style.T) / 2 / 0.05
    scores = scores.masked_fill(torch.arange(40)[:, None] % 20 == torch.arange(40) % 20, -math.inf)
    close(SimCLR(0.15, 0.05, joint_content=4.0).joint_entropy(a, b), scores.logsumexp(1).mean())
    close(SimCLR(0.15, 0.05, joint_content=0.0).joint_entropy(a, b), SimCLR(0.1).entropy(a[1], b[1]))
