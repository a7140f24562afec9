"""Runs that take a second, shared by the tests of training, pretraining, inference and the command line."""

import os
import signal
import time

import torch
from torch import nn

import unweave as uw
import unweave.augment as A
from unweave.training import load_checkpoint

STEPS = 24
CPU = uw.LaunchConfig(accelerator="cpu")
PHOTOS = {
    "backbone": "test_convnext", "size": 32, "decode_size": 40, "dim": 8, "hidden": 16, "depth": 1, "batch_size": 12,
    "epochs": 2, "workers": 0, "log_every": 1, "accelerator": "cpu",
}  # fmt: skip
"""Settings of ``pretrain`` with a small network of timm's, which has no batch norm."""


class Slow(uw.Sprites):
    """Sprites that take a while, and send their process SIGTERM when batch ``stop_after`` is requested."""

    def __init__(self, pause=0.0, stop_after=None):
        super().__init__(16)
        self.pause, self.stop_after, self.requested = pause, stop_after, 0

    def __getitem__(self, index):
        self.requested += 1
        if self.requested == self.stop_after:
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(self.pause)
        return super().__getitem__(index)


def views(hue=0.5):
    return uw.Views({"color": [A.ColorJitter(hue=hue)], "spatial": [A.RandomTranslation((0.2, 0.2))]})


def encoder(spaces, *, dropout=0.1, norm=True):
    """With dropout, a run depends on the global generator; without batch norm, not on the number of processes."""
    torch.manual_seed(0)
    if norm:
        backbone = nn.Sequential(uw.SmallConvNet(16, layers=((4, 2), (8, 2)), dim=16), nn.Dropout(dropout))
        return uw.Encoder(backbone, spaces, dim=4, hidden=8, feature_dim=16)
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.GELU(), nn.Conv2d(8, 8, 3, 2), nn.GELU(), nn.Flatten())
    return uw.Encoder(backbone, spaces, dim=6, depth=1, feature_dim=72)


def objective(spaces, **settings):
    rule = uw.AdditiveAscent(lr=0.5, tolerance=0.01, warmup=4)
    return uw.DisentangledLoss(uw.SimCLR(), spaces=spaces, **{"lambda_rule": rule, **settings})


def baseline(method, spaces):
    if method == "augself":
        return uw.baselines.AugSelf(uw.SimCLR(), weights={"color": 1.0}, hidden=8)
    return uw.baselines.LooC(spaces, queue_size=40, momentum=0.8)


def config(lr=1e-3, clip=None, optimizer="adamw", launch=CPU, **settings):
    return uw.TrainConfig(
        **{
            "steps": STEPS, "batch_size": 12, "log_every": 1, "checkpoint_every": 4, "launch": launch,
            "optim": uw.OptimConfig(lr=lr, clip=clip, optimizer=optimizer), **settings,
        }
    )  # fmt: skip


def run(out, pause=0.0, stop_after=None, norm=True, method=None, **settings):
    chosen = views()
    loss = objective(chosen.spaces) if method is None else baseline(method, chosen.spaces)
    network = encoder(loss.spaces, norm=norm)
    done = uw.train(Slow(pause, stop_after), chosen, network, loss, config(**settings), out, progress=False)
    return done, network, loss


def run_in_child(out, settings):
    """``run`` as a function that a process can be started with."""
    run(out, **settings)


def pretrain(folder, out, **settings):
    given = {**PHOTOS, "report": False, **settings}
    return uw.pretrain(str(folder), out, config=uw.PretrainConfig(), progress=False, **given)


def photo_config(**settings):
    from unweave.settings import with_settings

    return with_settings(uw.PretrainConfig(), {**PHOTOS, **settings})


def flags(**settings):
    """The same settings for the command line, without a report."""
    named = [(f"--{name.replace('_', '-')}", str(value)) for name, value in {**PHOTOS, **settings}.items()]
    return [word for pair in named for word in pair] + ["--no-report"]


def weights(out):
    return load_checkpoint(out / "checkpoint.safetensors", only=("encoder",))["encoder"]
