"""What is drawn has torchvision's distributions."""

import pytest
import torch
import torchvision.transforms as T
from scipy.stats import chisquare, ks_2samp

import unweave.augment as A

N = 4000
SIZE = (96, 128)


def ours(transform):
    return transform.sample(N, size=SIZE, generator=torch.Generator().manual_seed(5))


def same_distribution(a, b):
    return ks_2samp(torch.as_tensor(a).double().numpy(), torch.as_tensor(b).double().numpy()).pvalue > 1e-3


@pytest.mark.parametrize(
    ("scale", "ratio"), [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.6, 1.0), (2.0, 3.0)), ((0.9, 1.0), (3.0, 4.0))]
)
def test_resized_crop(scale, ratio):
    params = ours(A.RandomResizedCrop(32, scale, ratio))
    image = torch.zeros(3, *SIZE)
    theirs = torch.tensor([T.RandomResizedCrop.get_params(image, list(scale), list(ratio)) for _ in range(N)])
    for i, name in enumerate(("top", "left", "height", "width")):
        assert same_distribution(params[name], theirs[:, i]), name
    assert (params["top"] + params["height"] <= SIZE[0]).all()
    assert (params["left"] + params["width"] <= SIZE[1]).all()


def test_color_jitter():
    params = ours(A.ColorJitter(0.4, (0.5, 1.2), 1.5, 0.1))
    ranges = T.ColorJitter(0.4, (0.5, 1.2), 1.5, 0.1)
    draws = [
        T.ColorJitter.get_params(ranges.brightness, ranges.contrast, ranges.saturation, ranges.hue) for _ in range(N)
    ]
    for i, name in enumerate(A.ColorJitter.names):
        assert same_distribution(params[name], [d[i + 1] for d in draws]), name
    orders = (params["order"] * torch.tensor([64, 16, 4, 1])).sum(1).unique(return_counts=True)[1]
    assert len(orders) == 24
    assert chisquare(orders.numpy()).pvalue > 1e-3


def test_affine_family_and_blur():
    rotation = ours(A.RandomRotation((-20, 70)))["angle"]
    assert same_distribution(rotation, [T.RandomRotation.get_params([-20, 70]) for _ in range(N)])
    theirs = [T.RandomAffine.get_params([0, 0], [0.2, 0.1], [0.5, 1.5], None, [SIZE[1], SIZE[0]]) for _ in range(N)]
    moved = ours(A.RandomTranslation((0.2, 0.1)))
    assert same_distribution(moved["x"], [t[1][0] for t in theirs])
    assert same_distribution(moved["y"], [t[1][1] for t in theirs])
    assert same_distribution(ours(A.RandomZoom((0.5, 1.5)))["scale"], [t[2] for t in theirs])
    sigma = ours(A.GaussianBlur(5, (0.1, 2.0)))["sigma"]
    assert same_distribution(sigma, [T.GaussianBlur.get_params(0.1, 2.0) for _ in range(N)])


@pytest.mark.parametrize("p", [0.0, 0.2, 1.0])
def test_probability(p):
    on = ours(A.RandomGrayscale(p=p))["on"].float().mean()
    assert abs(on - p) < 0.03 if 0 < p < 1 else on == p
