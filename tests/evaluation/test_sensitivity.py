"""The sensitivity matrix against its definition."""

import pytest
import torch
from torch import nn

import unweave as uw
import unweave.augment as A
from unweave.errors import UnweaveError


class Fixed(nn.Module):
    """Embeddings with a known answer: the mean colour, and the column of the brightest pixel."""

    def forward(self, images):
        brightest = images.mean(1).flatten(1).argmax(1) % images.shape[-1]
        return {
            "h": images.flatten(1),
            "content": torch.randn(len(images), 2, generator=torch.Generator().manual_seed(0)),
            "color": images.mean((2, 3)),
            "place": brightest[:, None].float(),
        }


def scene(n=64, size=12):
    """One bright coloured pixel at a random place."""
    generator = torch.Generator().manual_seed(1)
    images = torch.zeros(n, 3, size, size)
    rows, columns = (torch.randint(size, (n,), generator=generator) for _ in range(2))
    images[torch.arange(n), :, rows, columns] = 0.2 + 0.8 * torch.rand(n, 3, generator=generator)
    return images


VIEWS = uw.Views({"flip": [A.RandomHorizontalFlip(p=1.0)], "jitter": [A.ColorJitter(brightness=0.9, hue=0.5)]})


def test_a_space_is_insensitive_to_what_does_not_change_it_and_sensitive_to_what_does():
    found = uw.sensitivity(Fixed(), VIEWS, scene())
    assert set(found) == {"content", "color", "place"}
    assert found["color"]["flip"] == pytest.approx(0, abs=1e-6)
    assert found["place"]["jitter"] == pytest.approx(0, abs=1e-6)
    assert found["color"]["jitter"] > 0.2


def test_two_views_differ_in_one_group_alone():
    views = uw.Views({"flip": [A.RandomHorizontalFlip()], "gray": [A.RandomGrayscale(p=0.5)]})
    images = torch.rand(64, 3, 6, 6)
    one, two = views.differing(images, "flip", generator=torch.Generator().manual_seed(0))
    differ = (one != two).flatten(1).any(1)
    assert 10 < differ.sum() < 54
    assert torch.equal(one[differ], two[differ].flip(-1))  # gray or not, both alike
    one, two = views.differing(images, "gray", generator=torch.Generator().manual_seed(0))
    is_gray = [(view == view[:, :1]).flatten(1).all(1) for view in (one, two)]
    differ = (one != two).flatten(1).any(1)
    assert torch.equal(differ, is_gray[0] != is_gray[1])
    assert 10 < differ.sum() < 54


def test_the_ratio_is_that_of_the_definition():
    class Linear(nn.Module):
        def forward(self, images):
            return {"content": images.flatten(1)}

    views, images = uw.Views({"flip": [A.RandomHorizontalFlip()]}), torch.rand(9, 3, 4, 4)
    found = uw.sensitivity(Linear(), views, images, seed=0)["content"]["flip"]
    a, b = (view.flatten(1) for view in views.differing(images, "flip", generator=torch.Generator().manual_seed(0)))
    within = (a - b).square().sum(1).mean()
    between = torch.stack([(a[i] - a[j]).square().sum() for i in range(9) for j in range(9) if i != j]).mean()
    assert found == pytest.approx(float(within / between), rel=1e-4)


def test_the_geometry_is_that_of_the_loss():
    class Scaled(nn.Module):
        """A code of the direction times a length that each view changes."""

        def forward(self, images):
            direction = torch.nn.functional.normalize(images[:, :, 0, 0], dim=1)
            return {"content": direction * images[:, :, -1].mean((1, 2))[:, None]}

    views = uw.Views({"flip": [A.RandomTranslation((0.4, 0.4))]})
    images = torch.rand(32, 3, 8, 8)
    plain = uw.sensitivity(Scaled(), views, images)["content"]["flip"]
    unit = uw.sensitivity(Scaled(), views, images, normalize=uw.SimCLR().normalize)["content"]["flip"]
    assert plain != pytest.approx(unit, rel=1e-2)


def test_mistakes():
    with pytest.raises(UnweaveError, match="at least 2"):
        uw.sensitivity(Fixed(), VIEWS, scene(1))
    with pytest.raises(UnweaveError, match="flip, jitter"):
        VIEWS.differing(scene(2), "hue")


def test_the_encoder_stays_in_its_mode():
    network = Fixed().train()
    uw.sensitivity(network, VIEWS, scene(4))
    assert network.training
