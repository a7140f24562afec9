from itertools import pairwise

import pytest
import torch
from torch import nn

from unweave.errors import UnweaveError
from unweave.training import LaunchConfig, OptimConfig, TrainConfig


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))


def test_lars_adapts_weights_even_without_decay_and_leaves_norms_and_biases_alone():
    for decay in (0.0, 0.1):
        net = model()
        optimizer = OptimConfig(optimizer="lars", lr=1.0, weight_decay=decay, momentum=0.0).build(net, 256)
        before = {name: p.detach().clone() for name, p in net.named_parameters()}
        for p in net.parameters():
            p.grad = torch.randn_like(p)
        grads = {name: p.grad.clone() for name, p in net.named_parameters()}
        optimizer.step()
        for name, p in net.named_parameters():
            w, g = before[name], grads[name]
            if p.ndim > 1:
                trust = 0.001 * w.norm() / (g.norm() + decay * w.norm())
                expected = w - trust * (g + decay * w)
            else:
                expected = w - g
            torch.testing.assert_close(p.detach(), expected, msg=f"{name}, decay {decay}")


def test_adamw_decays_weights_alone():
    net = model()
    optimizer = OptimConfig(optimizer="adamw", weight_decay=0.1).build(net, 256)
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert [decays[id(p)] for p in net.parameters()] == [0.1, 0.0, 0.0, 0.0]


def test_frozen_parameters_are_left_out():
    net = model()
    net[0].weight.requires_grad_(False)
    optimizer = OptimConfig().build(net, 256)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 3


def test_warm_up_and_cosine():
    config = OptimConfig(warmup=0.1, lr=2.0, final_lr=0.01)
    rates = [config.learning_rate(step, 110, 256) for step in range(110)]
    assert rates[0] == pytest.approx(2 / 11)
    assert rates[10] == rates[11] == 2.0
    assert rates[-1] == pytest.approx(0.02)
    assert all(a >= b for a, b in pairwise(rates[11:]))


def test_the_learning_rate_is_scaled_in_proportion_to_the_batch_where_asked():
    config = OptimConfig(optimizer="lars", lr=0.3, lr_batch=256)
    assert config.peak_lr(2048) == pytest.approx(2.4)
    assert OptimConfig(lr=0.3).peak_lr(2048) == 0.3


@pytest.mark.parametrize(
    ("build", "argument"),
    [
        (lambda: TrainConfig(steps=0), "steps"),
        (lambda: TrainConfig(batch_size=-1), "batch_size"),
        (lambda: TrainConfig(seed=2**70), "seed"),
        (lambda: OptimConfig(lr=0.0), "lr"),
        (lambda: OptimConfig(lr=float("nan")), "lr"),
        (lambda: OptimConfig(weight_decay=-1.0), "weight_decay"),
        (lambda: OptimConfig(clip=0.0), "clip"),
        (lambda: OptimConfig(optimizer="sgd"), "optimizer"),
        (lambda: LaunchConfig(precision="float8"), "precision"),
    ],
)
def test_bad_settings_are_refused_by_the_name_of_the_argument(build, argument):
    with pytest.raises(UnweaveError, match=f"`{argument}`") as error:
        build()
    assert "\n" not in str(error.value)
