"""A run that any number of processes can share: ``python several.py OUT DEVICES [MICRO_BATCH] [STOP_AFTER]``.

Its network has no batch norm, so that an image's embedding does not hang on which others a process holds.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

import unweave as uw
import unweave.augment as A

STEPS = 20


class Interrupted(uw.Sprites):
    """Sends its own process SIGTERM when the batch after ``stop_after`` batches is asked for."""

    stop_after, asked = 10**9, 0

    def __getitem__(self, index):
        self.asked += 1
        if self.asked == self.stop_after:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().__getitem__(index)


def make_encoder(spaces):
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.GELU(), nn.Conv2d(8, 8, 3, 2), nn.GELU(), nn.Flatten())
    return uw.Encoder(backbone, spaces, dim=6, depth=1, feature_dim=72)


def run(out, devices=1, micro_batch=None, stop_after=10**9, **settings):
    views = uw.Views({"color": [A.ColorJitter(hue=0.5)], "spatial": [A.RandomTranslation((0.2, 0.2))]})
    encoder = make_encoder(views.spaces)
    objective = uw.DisentangledLoss(
        uw.SimCLR(), spaces=views.spaces, weights=uw.DualAscent(lr=0.5, tolerance=0.01, warmup=2, min_variance=0)
    )
    config = uw.TrainConfig(
        **{"steps": STEPS, "batch_size": 12, "lr": 1e-3, "warmup_steps": 2, "log_every": 5, "accelerator": "cpu",
           "devices": devices, "micro_batch": micro_batch, **settings}
    )  # fmt: skip
    images = Interrupted(16)
    if uw.processes.rank() == 0 and os.environ.get("LOCAL_RANK", "0") == "0":
        images.stop_after = stop_after
    return uw.train(images, views, encoder, objective, config, out, progress=False), encoder


if __name__ == "__main__":
    torch.set_num_threads(1)
    numbers = [int(word) for word in sys.argv[2:]]
    run(Path(sys.argv[1]), numbers[0], numbers[1] or None if len(numbers) > 1 else None, *numbers[2:])
