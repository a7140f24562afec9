import torch
import torch.nn.functional as F
from torch import nn

from unweave.models.stacked import StackedMLP


def single(stack, run):
    """Network ``run`` of a stack, as ordinary layers."""
    layers = []
    for weight, bias in zip(stack.weights, stack.biases, strict=True):
        linear = nn.Linear(*weight.shape[1:])
        linear.weight.data, linear.bias.data = weight[run].detach().T.clone(), bias[run, 0].detach().clone()
        layers += [linear, nn.LeakyReLU()]
    return nn.Sequential(*layers[:-1])


def test_a_stack_trains_as_its_networks_would_alone():
    stack = StackedMLP(3, (4, 8, 2))
    alone = [single(stack, r) for r in range(3)]
    optimizers = [torch.optim.Adam(m.parameters(), lr=1e-2) for m in (stack, *alone)]
    for _ in range(10):
        x, y = torch.randn(3, 16, 4), torch.randn(3, 16, 2)
        for optimizer in optimizers:
            optimizer.zero_grad()
        sum(F.mse_loss(stack(x)[r], y[r]) for r in range(3)).backward()
        for r, network in enumerate(alone):
            F.mse_loss(network(x[r]), y[r]).backward()
        for optimizer in optimizers:
            optimizer.step()
    x = torch.randn(3, 5, 4)
    for r, network in enumerate(alone):
        torch.testing.assert_close(stack(x)[r], network(x[r]), atol=1e-5, rtol=0)


def test_layers_start_as_torchs_do():
    weight = StackedMLP(50, (64, 10)).weights[0]
    reference = nn.Linear(64, 10).weight
    assert abs(weight.std() - 64**-0.5 / 3**0.5) < 0.005
    assert weight.abs().max() <= 64**-0.5
    assert abs(reference.abs().max() - 64**-0.5) < 0.01
