from itertools import pairwise

import pytest
import torch
from torch import nn

from unweave.errors import UnweaveError
from unweave.training import TrainConfig, learning_rate, make_optimizer


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))


def test_lars_adapts_weights_even_without_decay_and_leaves_norms_and_biases_alone():
    for decay in (0.0, 0.1):
        net = model()
        optimizer = make_optimizer(net, TrainConfig(optimizer="lars", lr=1.0, weight_decay=decay, momentum=0.0))
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
    optimizer = make_optimizer(net, TrainConfig(optimizer="adamw", weight_decay=0.1))
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert [decays[id(p)] for p in net.parameters()] == [0.1, 0.0, 0.0, 0.0]


def test_frozen_parameters_are_left_out():
    net = model()
    net[0].weight.requires_grad_(False)
    optimizer = make_optimizer(net, TrainConfig())
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 3


def test_warm_up_and_cosine():
    config = TrainConfig(steps=110, warmup_steps=10, lr=2.0, final_lr=0.01)
    rates = [learning_rate(step, config) for step in range(110)]
    assert rates[0] == pytest.approx(0.2)
    assert rates[9] == rates[10] == 2.0
    assert rates[-1] == pytest.approx(0.02)
    assert all(a >= b for a, b in pairwise(rates[10:]))


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"steps": 0}, "steps"),
        ({"batch_size": 0}, "batch_size"),
        ({"lr": 0.0}, "lr"),
        ({"lr": float("nan")}, "lr"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"clip": 0.0}, "clip"),
        ({"optimizer": "sgd"}, "sgd"),
        ({"batch_size": 9, "devices": 2}, "2 processes"),
    ],
)
def test_bad_settings_are_refused_in_one_line(settings, word):
    with pytest.raises(UnweaveError, match=word) as error:
        TrainConfig(**settings)
    assert "\n" not in str(error.value)
