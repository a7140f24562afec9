"""Objectives with a state of their own train in the same loop and resume exactly."""

import copy

import pytest
import torch
from torch import nn

import unweave as uw
import unweave.augment as A
from unweave.objectives import LossTerms, Objective
from unweave.training import load_checkpoint

SPACES = ("content", "color")


class SlowTeacher(Objective):
    """A predictor, a teacher that follows the encoder, and a queue of its outputs: as BYOL, MoCo and DINO need them."""

    spaces = SPACES

    def __init__(self, momentum=0.9):
        super().__init__()
        self.momentum = momentum
        self.predictor = nn.Linear(4, 4)
        self.register_buffer("queue", torch.zeros(32, 4))
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    def attach(self, encoder):
        self.student = [encoder]
        self.teacher = copy.deepcopy(encoder).requires_grad_(False).eval()

    def targets(self, pair):
        assert not torch.is_grad_enabled()
        return {"content": self.teacher(pair.b)["content"]}

    def forward(self, z_a, z_b, shared, targets):
        assert not targets["content"].requires_grad
        distance = (self.predictor(z_a["content"]) - targets["content"]).square().mean()
        spread = torch.relu(1 - z_a["color"].std(0)).mean() + (z_a["content"] @ self.queue.T).square().mean()
        self.last = targets["content"]
        return LossTerms(distance + spread, SPACES, {"distance": distance.detach()})

    @torch.no_grad()
    def update(self, terms):
        self.updates += 1
        for mean, new in zip(self.teacher.parameters(), self.student[0].parameters(), strict=True):
            mean.lerp_(new, 1 - self.momentum)
        self.queue.copy_(torch.cat([self.last.float(), self.queue])[:32])


def run(out, *, steps=12, stop_after=10**9, **settings):
    views = uw.Views({"color": [A.ColorJitter(hue=0.5)]})
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.GELU(), nn.Flatten())
    encoder = uw.Encoder(backbone, views.spaces, dim=4, depth=1, feature_dim=196)
    config = uw.TrainConfig(
        steps=steps, batch_size=8, log_every=1, launch=uw.LaunchConfig(accelerator="cpu"), **settings
    )
    objective = SlowTeacher()
    images = Stops(stop_after)
    done = uw.train(images, views, encoder, objective, config, out, progress=False)
    return done, encoder, objective


class Stops(uw.Sprites):
    def __init__(self, batches):
        super().__init__(16)
        self.left = batches

    def __getitem__(self, index):
        self.left -= 1
        if self.left < 0:
            raise OSError("stopped")
        return super().__getitem__(index)


def test_a_teacher_a_predictor_and_a_queue_are_trained_saved_and_resumed(tmp_path):
    done, _, objective = run(tmp_path / "whole")
    assert "distance" in done.metrics[-1]
    before = SlowTeacher().predictor.weight
    assert not torch.equal(objective.predictor.weight, before)
    assert objective.updates == 12
    with pytest.raises(OSError, match="stopped"):
        run(tmp_path / "halves", stop_after=7, checkpoint_every=3)
    again, _, _ = run(tmp_path / "halves")
    assert again.resumed_from == 6
    one, two = (load_checkpoint(tmp_path / name / "checkpoint.safetensors") for name in ("whole", "halves"))
    assert {"predictor.weight", "queue", "teacher.backbone.0.weight"} <= set(one["objective"])
    for part in ("encoder", "objective"):
        for name, value in one[part].items():
            assert torch.equal(value, two[part][name]), name


def test_targets_are_computed_part_by_part_with_micro_batches(tmp_path):
    whole, _, _ = run(tmp_path / "whole")
    parts, _, _ = run(tmp_path / "parts", micro_batch=3)
    for a, b in zip(whole.metrics, parts.metrics, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
