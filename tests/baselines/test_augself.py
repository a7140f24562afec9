"""AugSelf: what it predicts, against the views themselves, and where its gradients go."""

import pytest
import torch
from torch import nn

import unweave as uw
import unweave.augment as A
from unweave.baselines import AugSelf, parameter_differences
from unweave.errors import UnweaveError

SIZE = 64


def ramps(n):
    """Images whose red is the place from left to right and whose green is that from top to bottom, from 0 to 1."""
    place = (torch.arange(SIZE) + 0.5) / SIZE
    image = torch.stack([place.expand(SIZE, SIZE), place[:, None].expand(SIZE, SIZE), torch.zeros(SIZE, SIZE)])
    return image.expand(n, 3, SIZE, SIZE).contiguous()


def test_crop_targets_are_what_the_views_show():
    """The mean of a ramp is the centre of its crop, and the distance of its ends is the size of the crop."""
    views = uw.Views({"spatial": [A.RandomResizedCrop(32, (0.2, 1.0)), A.RandomHorizontalFlip(p=0.5)]})
    pair = views.without_groups()(ramps(64), generator=torch.Generator().manual_seed(0))
    targets = parameter_differences(pair, ("crop", "flip"))
    centres, sizes, mirrored = [], [], []
    for view in (pair.a, pair.b):
        red, green = view[:, 0].mean(1), view[:, 1].mean(2)  # along x, along y
        centres.append(torch.stack([green.mean(1), red.mean(1)], 1))
        # A crop of w pixels shows w/64 of the ramp; its outermost of 32 samples are half a sample from its ends.
        sizes.append(torch.stack([green[:, 20] - green[:, 11], (red[:, 20] - red[:, 11]).abs()], 1) * 32 / 9)
        mirrored.append(red[:, 20] < red[:, 11])
    for first, second in ((0, 1), (1, 0)):
        y, x = (centres[first] - centres[second]).unbind(1)
        x = torch.where(mirrored[first], -x, x)
        expected = torch.cat([torch.stack([y, x], 1), sizes[first] - sizes[second]], 1)
        torch.testing.assert_close(targets["crop"][:, first], expected, atol=0.02, rtol=0)
        assert torch.equal(targets["flip"][:, first, 0] == 1, mirrored[0] == mirrored[1])
    assert 10 < (mirrored[0] != mirrored[1]).sum() < 54
    assert targets["crop"].abs().amax() > 0.3


@pytest.mark.parametrize("which", ["brightness", "hue"])
def test_color_targets_are_what_the_views_show(which):
    jitter = A.ColorJitter(brightness=0.4, p=0.7) if which == "brightness" else A.ColorJitter(hue=0.1, p=0.7)
    red = torch.tensor([0.5, 0.0, 0.0]).view(1, 3, 1, 1).expand(40, 3, 4, 4)
    pair = uw.Views({}, ungrouped=[jitter])(red, generator=torch.Generator().manual_seed(0))
    if which == "brightness":  # factors between 0.6 and 1.4
        column, changes = 0, [(view[:, 0, 0, 0] / 0.5 - 1) / 0.8 for view in (pair.a, pair.b)]
    else:  # shifts between −0.1 and 0.1 of the circle; from pure red, a sixth adds as much green, or blue below 0
        column, changes = 3, [(view[:, 1, 0, 0] - view[:, 2, 0, 0]) / 0.5 / 6 / 0.2 for view in (pair.a, pair.b)]
    target = parameter_differences(pair, ("color",))["color"]
    expected = torch.zeros(40, 2, 4)
    expected[:, 0, column], expected[:, 1, column] = changes[0] - changes[1], changes[1] - changes[0]
    torch.testing.assert_close(target, expected, atol=1e-5, rtol=0)
    assert (changes[0] == 0).any()  # not jittered
    assert target.abs().amax() > 0.5


def test_blur_targets_by_hand():
    blur, size = A.GaussianBlur(5, (0.5, 2.0), p=0.5), (8, 8)
    of_a = {"on": torch.tensor([True, False, True]), "sigma": torch.tensor([1.0, 1.5, 2.0])}
    of_b = {"on": torch.tensor([True, True, False]), "sigma": torch.tensor([0.5, 1.0, 1.0])}
    view = torch.zeros(3, 3, 8, 8)
    pair = uw.Pair(view, view, torch.zeros(3), ([(blur, of_a)], [(blur, of_b)]), size)
    expected = torch.tensor([0.25, -0.5, 1.0])
    target = parameter_differences(pair, ("blur",))["blur"]
    torch.testing.assert_close(target, torch.stack([expected, -expected], 1)[:, :, None])


def parts(**settings):
    torch.manual_seed(0)
    views = uw.Views({"spatial": [A.RandomResizedCrop(8), A.RandomHorizontalFlip()], "color": [A.ColorJitter(hue=0.2)]})
    encoder = uw.Encoder(nn.Sequential(nn.Flatten(), nn.Linear(192, 6)), ("content",), dim=4, depth=1, feature_dim=6)
    objective = AugSelf(uw.SimCLR(), hidden=8, **settings)
    objective.attach(encoder)
    return objective.sampler(views), encoder, objective


def test_views_with_groups_are_never_shared():
    sampler, _, _ = parts()
    pair = sampler(torch.rand(9, 3, 12, 12))
    assert pair.shared.tolist() == [0] * 9
    (_, a), (_, b) = pair.steps[0][2], pair.steps[1][2]
    assert not (a["hue"] == b["hue"]).any()


def test_predictions_train_the_heads_and_the_backbone_and_not_the_projector():
    sampler, encoder, objective = parts()
    pair = sampler(torch.rand(12, 3, 12, 12))
    out_a, out_b = encoder(pair.a), encoder(pair.b)
    terms = objective(out_a, out_b, pair.shared, objective.targets(pair))
    (terms.loss - objective.contrastive(out_a, out_b, pair.shared).loss).backward()
    grads = {name: p.grad for name, p in encoder.named_parameters()}
    assert grads["backbone.1.weight"].abs().sum() > 0
    assert grads["projectors.content.0.weight"].abs().max() < 1e-6
    assert all(p.grad.abs().sum() > 0 for p in objective.heads.parameters())


def test_the_loss_is_the_base_methods_and_the_weighted_errors():
    sampler, encoder, objective = parts(weights={"crop": 0.5, "color": 2.0, "flip": 3.0})
    pair = sampler(torch.rand(12, 3, 12, 12))
    out_a, out_b, targets = encoder(pair.a), encoder(pair.b), objective.targets(pair)
    terms = objective(out_a, out_b, pair.shared, targets)
    h_a, h_b = out_a["h"], out_b["h"]
    expected = uw.SimCLR().loss(out_a["content"], out_b["content"])
    for name, weight in objective.weights.items():
        found = objective.heads[name](torch.cat([torch.cat([h_a, h_b], 1), torch.cat([h_b, h_a], 1)]))
        target = torch.cat([targets[name][:, 0], targets[name][:, 1]])
        if name == "flip":
            p = found.sigmoid()
            error = -(target * p.log() + (1 - target) * (1 - p).log()).mean()
        else:
            error = (found.tanh() - target).square().mean()
        assert terms.as_dict()[f"predict_{name}"] == pytest.approx(error.item(), rel=1e-5)
        expected = expected + weight * error
    assert terms.loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_what_is_visible_is_learned(tmp_path):
    """On constant images the difference in brightness is the difference of the views."""
    images = torch.rand(200, 1, 1, 1).mul(0.2).add(0.4).expand(200, 3, 8, 8).contiguous()
    views = uw.Views({"color": [A.ColorJitter(brightness=0.5)]})
    torch.manual_seed(0)
    encoder = uw.Encoder(nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU()), ("content",), dim=4, feature_dim=8)
    objective = AugSelf(uw.SimCLR(), weights={"color": 10.0}, hidden=32)
    launch = uw.LaunchConfig(accelerator="cpu")
    config = uw.TrainConfig(steps=60, batch_size=64, log_every=1, launch=launch, optim=uw.OptimConfig(lr=1e-2))
    run = uw.train(images, views, encoder, objective, config, tmp_path, progress=False)
    errors = [row["predict_color"] for row in run.metrics]
    chance = 2 / 12 / 4  # the variance of the difference of two uniform numbers, one of four targets
    assert sum(errors[-10:]) / 10 < chance / 3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: AugSelf(uw.SimCLR(), weights={"smell": 1.0}), r"`weights` names \['smell'\]"),
        (lambda: AugSelf(uw.SimCLR(), weights={"crop": 0.0}), "must be positive, not 0"),
        (lambda: AugSelf(uw.SimCLR()).sampler(uw.Views({})), "the views have no RandomResizedCrop; remove it"),
        (lambda: AugSelf(uw.SimCLR()).sampler(object()), "`views` of the class Views, not object"),
        (lambda: AugSelf(uw.SimCLR()).attach(nn.Linear(2, 2)), "`feature_dim` is None"),
    ],
)
def test_mistakes(make, words):
    with pytest.raises(UnweaveError, match=words) as error:
        make()
    assert "\n" not in str(error.value)
