"""Nothing in a training step waits for the GPU: torch raises where it would."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

import unweave as uw
import unweave.augment as A
from unweave.data import Sprites, StoredSprites
from unweave.reproduce.sprite_spaces.views import SPACES, SpriteFactors, SpriteViews
from unweave.reproduce.sprites.views import sprite_views

ROWS = torch.arange(0, 60_000, 1000)


@contextmanager
def no_waiting() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def images_and_views(kind):
    if kind == "table":
        return StoredSprites(Sprites(), ROWS, "cuda"), sprite_views("strong", "whole")
    if kind == "photographs":
        groups = {
            "spatial": [A.RandomResizedCrop(32), A.RandomHorizontalFlip()],
            "appearance": [A.ColorJitter(0.4, 0.4, 0.2, 0.1), A.GaussianBlur(5, p=0.5)],
        }
        return torch.randint(0, 256, (60, 3, 40, 40), dtype=torch.uint8, device="cuda"), uw.Views(
            groups, ungrouped=[A.Normalize((0.5,) * 3, (0.5,) * 3)]
        )
    return SpriteFactors(ROWS, "cuda"), SpriteViews(64, kind)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["photographs", "table", "latents", "pixels"])
def test_a_step_never_waits(kind):
    images, views = images_and_views(kind)
    assert kind not in ("latents", "pixels") or views.spaces == SPACES
    encoder = uw.Encoder("resnet18", spaces=views.spaces, dim=8, hidden=32).cuda()
    objective = uw.DisentangledLoss(
        uw.SimCLR(), spaces=views.spaces, lambda_rule=uw.GeometricGrowth(rate=0.01), independence=uw.Independence()
    ).cuda()
    optimizer = uw.OptimConfig().build(encoder, 60, fused=True)
    generator = torch.Generator("cuda")

    def step(seed):
        generator.manual_seed(seed)
        rows = torch.arange(60).to("cuda", non_blocking=True)
        pair = views(images[rows], generator=generator)
        terms = objective(encoder(pair.a), encoder(pair.b), pair.shared)
        terms.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        objective.update(terms)

    for seed in range(2):  # what is compiled, allocated or cached at first use
        step(seed)
    with no_waiting():
        step(2)
