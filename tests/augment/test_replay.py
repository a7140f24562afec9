import random

import kornia.augmentation as K
import numpy as np
import pytest
import torch
import torchvision.transforms as V1
import torchvision.transforms.v2 as T

import unweave.augment as A
from unweave.augment._transform import as_float
from unweave.errors import UnweaveError


@pytest.mark.parametrize(
    "foreign",
    [
        T.RandomPerspective(0.5, p=1.0),
        T.RandomPosterize(3, p=1.0),
        T.RandomErasing(p=1.0),
        T.Compose([T.RandomInvert(), T.RandomAffine(20, shear=20)]),
        V1.RandomAdjustSharpness(3),
        K.RandomMotionBlur(3, 35.0, 0.5, p=1.0),
        K.RandomPlasmaShadow(p=1.0),
    ],
    ids=lambda t: type(t).__name__,
)
def test_views_that_share_a_foreign_transform_are_the_same_picture(photos, foreign):
    views = A.Views({"foreign": [A.Replay(foreign)]})
    state = torch.get_rng_state()
    pair = views(photos, generator=torch.Generator().manual_seed(0))
    assert torch.equal(pair.a[1::2], pair.b[1::2])
    assert torch.equal(torch.get_rng_state(), state), "the global generator must be left as it was"


def test_it_is_the_foreign_transform(photos):
    foreign = T.RandomPerspective(0.5, p=1.0)
    params = A.Replay(foreign).sample(len(photos), size=(96, 128))
    ours = A.Replay(foreign).apply(as_float(photos), params)
    for image, seed, mine in zip(as_float(photos), params["seed"], ours, strict=True):
        torch.manual_seed(int(seed))
        assert torch.equal(foreign(image), mine)


def with_python_random(image):
    return image * random.random()


def with_numpy(image):
    return image + float(np.random.rand())  # noqa: NPY002


def by_the_pixels(image):
    return image * torch.rand(1 + int(image.sum() > image.numel() * 0.4)).mean()


class Remembers:
    calls = 0

    def __call__(self, image):
        self.calls += 1
        return image * self.calls


@pytest.mark.parametrize("foreign", [with_python_random, with_numpy, Remembers(), by_the_pixels])
def test_what_cannot_be_replayed_is_refused(foreign):
    with pytest.raises(UnweaveError, match="Replay") as error:
        A.Replay(foreign)
    assert "\n" not in str(error.value)


def test_a_change_of_shape_is_refused():
    with pytest.raises(UnweaveError, match="shape"):
        A.Replay(T.Resize(8))
