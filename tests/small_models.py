"""Models that are made in a moment, without training, and pictures of many kinds."""

import numpy as np
import torch
from PIL import Image
from torch import nn

import unweave as uw
import unweave.augment as A
from unweave.inference import SpacesModel

VIEWS = uw.Views({"hue": [A.ColorJitter(hue=0.5)]}, ungrouped=[A.Normalize((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))])


def small_model(size=16, channels=3, preparation=VIEWS.preparation):
    torch.manual_seed(0)
    backbone = uw.SmallConvNet(size, layers=((8, 2), (8, 2)), dim=16, channels=channels)
    encoder = uw.Encoder(backbone, VIEWS.spaces, dim={"content": 3, "hue": 2}, hidden=8)
    return SpacesModel(encoder, preparation, (channels, size, size))


class OwnEncoder(nn.Module):
    """A module that unweave knows nothing about."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3 * 16 * 16, 5)

    def forward(self, images):
        h = self.linear(images.flatten(1))
        return {"h": h, "mine": h[:, :2].tanh()}


class Invert(A.Transform):
    """A transform that unweave knows nothing about."""

    def apply(self, images, params):
        return 1 - images


def photograph(width, height, seed=0):
    """Smooth shapes and noise, so that both filters and rounding matter."""
    random = np.random.default_rng(seed)
    coarse = Image.fromarray(random.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize((width, height), Image.BICUBIC)
    return Image.fromarray((np.asarray(coarse) * 0.8 + random.uniform(0, 50, (height, width, 3))).astype(np.uint8))


def save_pictures(folder):
    """Files of several formats, sizes and modes; returns their paths in sorted order."""
    photograph(50, 37).save(folder / "a.jpg", quality=90)
    rotated = Image.Exif()
    rotated[0x0112] = 6
    photograph(300, 200, 1).save(folder / "b-large-rotated.jpg", exif=rotated)
    photograph(16, 16, 2).save(folder / "c-exact.png")
    transparent = photograph(40, 60, 3).convert("RGBA")
    transparent.putalpha(Image.linear_gradient("L").resize((40, 60)))
    transparent.save(folder / "d-transparent.png")
    photograph(33, 70, 4).convert("L").save(folder / "e-gray.png")
    photograph(9, 12, 5).quantize(16).save(folder / "f-palette.gif")
    return sorted(folder.iterdir())
