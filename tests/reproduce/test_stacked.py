import pytest
import torch
import torch.nn.functional as F
from torch import nn

from unweave import FixedWeights, GeometricGrowth
from unweave.reproduce.stacked import CosineAdam, StackedMLP, train_stacked


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


def test_adam_with_a_cosine_is_torchs():
    def loss(weight, generator):
        x = torch.randn(64, 3, generator=generator)
        return ((x @ weight) - x.sum(1)).square().mean()

    ours, theirs = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
    adam, torchs = CosineAdam([ours], 0.1, 30, "cpu"), torch.optim.Adam([theirs], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(torchs, 30)
    one, two = (torch.Generator().manual_seed(0) for _ in "ab")
    for _ in range(30):
        adam.minimise(loss(ours, one))
        adam.advance()
        torchs.zero_grad()
        loss(theirs, two).backward()
        torchs.step()
        schedule.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def train(device, rule, adapted, steps=60):
    torch.manual_seed(0)
    networks = StackedMLP(2, (3, 1)).to(device)
    lambdas = torch.ones(2, device=device)
    generator = torch.Generator(device).manual_seed(0)

    def measure():
        x = torch.randn(2, 64, 3, generator=generator, device=device)
        errors = (networks(x)[..., 0] - x.sum(-1)).square().mean(1)
        return (lambdas * errors).sum(), errors

    train_stacked(
        measure, networks, lambdas, rule, torch.tensor(adapted, device=device), steps=steps, lr=0.1,
        generator=generator, description="test",
    )  # fmt: skip
    return networks, lambdas.cpu()


def test_the_weights_of_adapted_runs_grow_within_the_rules_window_and_others_do_not():
    rule = GeometricGrowth(rate=0.1, tolerance=0.0, warmup=10, stop=13)
    _, lambdas = train("cpu", rule, [True, False])
    assert lambdas.tolist() == pytest.approx([1.1**3, 1.0])


@pytest.mark.gpu
def test_a_captured_stack_learns_what_single_launches_learn():
    networks, _ = train("cuda", FixedWeights(), [False, False], steps=300)
    torch.testing.assert_close(networks.weights[0], torch.ones_like(networks.weights[0]), rtol=0, atol=0.05)
