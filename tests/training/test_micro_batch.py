"""The gradient of a batch in parts is the gradient of the batch."""

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn

import unweave as uw
import unweave.augment as A
from unweave.augment import Pair
from unweave.models import BothViews
from unweave.objectives import LossTerms, Objective
from unweave.training.micro_batch import backward, backward_in_parts

N = 14


def setup(base, *, norm=False, dropout=0.0):
    views = uw.Views({"color": [A.ColorJitter(hue=0.5)], "spatial": [A.RandomTranslation((0.2, 0.2))]})
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(3 * 64, 10), *([nn.BatchNorm1d(10)] if norm else []), nn.Tanh()]
    encoder = uw.Encoder(nn.Sequential(*layers, nn.Dropout(dropout)), views.spaces, dim=5, depth=1, feature_dim=10)
    objective = uw.DisentangledLoss(base, spaces=views.spaces)
    fabric = Fabric(accelerator="cpu", devices=1)
    model = fabric.setup(BothViews(encoder).double())
    images = torch.rand(N, 3, 8, 8)

    def make_pair(start, stop):
        pair = views(images[start:stop], generator=torch.Generator().manual_seed(5), start=start, total=N)
        return Pair(pair.a.double(), pair.b.double(), pair.shared)

    return fabric, model, objective, make_pair, encoder


def gradients(encoder, missing=None):
    found = {
        name: torch.full_like(p, missing) if p.grad is None else p.grad.clone()
        for name, p in encoder.named_parameters()
    }
    encoder.zero_grad()
    return found


@pytest.mark.parametrize("base", [uw.SimCLR(), uw.VICReg(), uw.BarlowTwins()], ids=lambda b: type(b).__name__)
@pytest.mark.parametrize("part", [1, 4, 7, N])
def test_parts_have_the_gradient_of_the_whole(base, part):
    fabric, model, objective, make_pair, encoder = setup(base)
    whole = backward(fabric, model, objective, make_pair(0, N))
    expected = gradients(encoder)
    parts = backward_in_parts(fabric, model, objective, make_pair, N, part)
    found = gradients(encoder)
    assert whole.as_dict() == pytest.approx(parts.as_dict())
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-12, rtol=1e-9, msg=name)
        assert value.abs().max() > 0


def test_both_passes_drop_the_same_units():
    fabric, model, objective, make_pair, encoder = setup(uw.SimCLR(), dropout=0.5)
    seen = []
    encoder.backbone[-1].register_forward_hook(lambda module, args, out: seen.append(out.detach().clone()))
    backward_in_parts(fabric, model, objective, make_pair, N, 7)
    assert len(seen) == 8  # two passes of two parts of two views
    for first, second in zip(seen[:4], seen[4:], strict=True):
        assert torch.equal(first, second)
    assert not torch.equal(seen[0], seen[1])


def test_running_statistics_count_every_image_once():
    fabric, model, objective, make_pair, encoder = setup(uw.SimCLR(), norm=True)
    norm = encoder.backbone[2]
    backward_in_parts(fabric, model, objective, make_pair, N, 7)
    assert norm.num_batches_tracked == 4  # two parts, two views
    assert norm.track_running_stats


class WithOwnParameters(Objective):
    """Reads the images, has a parameter of its own and leaves one space unused."""

    spaces = ("content", "color", "spatial")

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

    def targets(self, pair):
        return {"brightness": pair.a.mean((1, 2, 3)) + pair.b.amax((1, 2, 3))}

    def forward(self, z_a, z_b, shared, targets):
        predicted = self.scale * z_a["content"].mean(1) * z_b["color"].mean(1)
        return LossTerms((predicted - targets["brightness"]).square().mean() + predicted.var(), self.spaces)


@pytest.mark.parametrize("part", [1, 5])
def test_an_objectives_own_parameters_and_targets_have_the_gradient_of_the_whole(part):
    fabric, model, _, make_pair, encoder = setup(uw.SimCLR())
    objective = WithOwnParameters()
    whole = backward(fabric, model, objective, make_pair(0, N))
    expected, of_scale = gradients(encoder, missing=0.0), objective.scale.grad.clone()
    objective.zero_grad()
    parts = backward_in_parts(fabric, model, objective, make_pair, N, part)
    torch.testing.assert_close(parts.loss, whole.loss)
    torch.testing.assert_close(objective.scale.grad, of_scale)
    for name, value in gradients(encoder, missing=0.0).items():
        torch.testing.assert_close(value, expected[name], atol=1e-12, rtol=1e-9, msg=name)
