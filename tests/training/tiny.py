"""A run small enough to be made many times: ``python tiny.py OUT [steps] [seconds to sleep a step]``."""

import sys
import time
from pathlib import Path

import torch

import unweave as uw
import unweave.augment as A

STEPS = 24


class Slow(uw.Sprites):
    pause = 0.0

    def __getitem__(self, index):
        time.sleep(self.pause)
        return super().__getitem__(index)


def make(**settings):
    views = uw.Views({"color": [A.ColorJitter(hue=0.5)], "spatial": [A.RandomTranslation((0.2, 0.2))]})
    torch.manual_seed(0)
    backbone = torch.nn.Sequential(uw.SmallConvNet(16, layers=((4, 2), (8, 2)), dim=16), torch.nn.Dropout(0.1))
    encoder = uw.Encoder(backbone, views.spaces, dim=4, hidden=8, feature_dim=16)
    objective = uw.DisentangledLoss(
        uw.SimCLR(), spaces=views.spaces, weights=uw.DualAscent(lr=0.5, tolerance=0.01, warmup=4)
    )
    config = uw.TrainConfig(
        **{"steps": STEPS, "batch_size": 12, "lr": 1e-3, "warmup_steps": 2, "log_every": 1, "checkpoint_every": 4,
           "accelerator": "cpu", **settings}
    )  # fmt: skip
    return views, encoder, objective, config


def run(out: Path, pause: float = 0.0, **settings):
    views, encoder, objective, config = make(**settings)
    sprites = Slow(16)
    sprites.pause = pause
    done = uw.train(sprites, views, encoder, objective, config, out, progress=False)
    return done, encoder, objective


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(Path(sys.argv[1]), pause=float(sys.argv[2]))
