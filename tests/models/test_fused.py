"""ResNets on the fused kernels against torch's own operations.

Triton reads TRITON_INTERPRET when its functions are defined: on a CPU the kernels run in a process of their own.
"""

import copy
import os
import subprocess
import sys

import pytest
import torch
import torchvision
from torch import nn

import unweave as uw
from unweave.models import fused
from unweave.models.fused import fuse


def channels_last(*shape):
    return torch.randn(*shape).to(memory_format=torch.channels_last)


def twice(tensor):
    """Two leaves with the same values."""
    return [None if tensor is None else tensor.clone().requires_grad_() for _ in range(2)]


def close(a, b, tolerance=1e-4):
    assert (a - b).abs().max() <= tolerance * (1 + b.abs().max()), ((a - b).abs().max(), b.abs().max())


def plain_batch_norm(bn, x, residual, relu):
    y = bn(x) if residual is None else bn(x) + residual
    return y.relu() if relu else y


def check_batch_norm(channels, n, h, w, with_residual, relu, mean):
    ours, theirs = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
    nn.init.normal_(ours.weight)
    nn.init.normal_(ours.bias)
    theirs.load_state_dict(ours.state_dict())
    x, other_x = twice(channels_last(n, channels, h, w) * 2 + mean)
    residual, other_residual = twice(channels_last(n, channels, h, w) if with_residual else None)
    for _ in range(2):  # the running statistics of several steps
        y = fused.batch_norm(ours, x, residual, relu=relu)
        expected = plain_batch_norm(theirs, other_x, other_residual, relu)
    assert y.grad_fn.name() == "_BatchNormBackward"
    gradient = channels_last(*y.shape)
    y.backward(gradient)
    expected.backward(gradient)
    close(y, expected)
    close(x.grad, other_x.grad)
    for name, buffer in theirs.named_buffers():
        close(ours.get_buffer(name), buffer)
    for name, parameter in theirs.named_parameters():
        close(ours.get_parameter(name).grad, parameter.grad)
    if with_residual:
        close(residual.grad, other_residual.grad)


def check_max_pool(h, w):
    pool = nn.MaxPool2d(3, 2, 1)
    x, other = twice(channels_last(3, 10, h, w).relu())  # zeros: several pixels are the largest
    y, expected = fused.max_pool(pool, x), pool(other)
    gradient = torch.randn_like(expected)
    y.backward(gradient)
    expected.backward(gradient)
    assert y.grad_fn.name() == "_MaxPoolBackward"
    assert torch.equal(y, expected)
    close(x.grad, other.grad, 1e-6)


def check_network(name):
    ours, theirs = (torchvision.models.get_model(name).to(memory_format=torch.channels_last) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    fuse(ours)
    images = channels_last(4, 3, 64, 64)
    losses = []
    for network in (ours, theirs):
        losses.append(network(images).square().mean())
        losses[-1].backward()
    close(losses[0], losses[1], 1e-3)
    gradients = [torch.cat([p.grad.flatten() for p in network.parameters()]) for network in (ours, theirs)]
    assert torch.nn.functional.cosine_similarity(*gradients, dim=0) > 0.999
    for key, value in theirs.state_dict().items():
        close(ours.state_dict()[key], value, 1e-3)


def main():
    fused.on_kernels = lambda x: x.is_contiguous(memory_format=torch.channels_last)
    torch.manual_seed(0)
    check_batch_norm(5, 4, 7, 3, with_residual=False, relu=True, mean=300)
    check_batch_norm(64, 3, 5, 5, with_residual=True, relu=True, mean=0)
    check_batch_norm(70, 2, 9, 8, with_residual=False, relu=False, mean=-2)
    check_batch_norm(16, 40, 5, 5, with_residual=True, relu=False, mean=1)
    for h, w in ((8, 8), (7, 9), (5, 6)):
        check_max_pool(h, w)
    check_network("resnet18")
    print("same")


def test_the_kernels_are_torchs_operations():
    pytest.importorskip("triton")
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, __file__], env=env, capture_output=True, text=True, timeout=300)
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("this Triton's interpreter does not work with this numpy")
    assert done.stdout.strip() == "same", done.stderr[-2000:]


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
@pytest.mark.parametrize("training", [True, False])
def test_on_a_cpu_a_fused_network_is_the_network_itself(name, training):
    network = torchvision.models.get_model(name).train(training)
    fused_one = copy.deepcopy(network)
    fuse(fused_one)
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(fused_one(images), network(images))
    assert fused_one.state_dict().keys() == network.state_dict().keys()


def test_a_fused_network_and_its_copy_have_parameters_of_their_own():
    network = torchvision.models.resnet18()
    fuse(network)
    copied = copy.deepcopy(network)
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.zero_()
    assert network(images).abs().sum() > 0
    assert copied(images).abs().sum() == 0


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels", [64, 512, 24])
@pytest.mark.parametrize("residual", [True, False])
def test_batch_norm_on_a_gpu_is_torchs(dtype, channels, residual):
    bn = nn.BatchNorm2d(channels).cuda()
    nn.init.normal_(bn.weight)
    other = copy.deepcopy(bn).double()
    x = (channels_last(128, channels, 14, 14) + 1).cuda().to(dtype).requires_grad_()
    added = channels_last(128, channels, 14, 14).cuda().to(dtype).requires_grad_() if residual else None
    exact_x = x.detach().double().requires_grad_()
    exact_added = None if added is None else added.detach().double().requires_grad_()
    gradient = channels_last(128, channels, 14, 14).cuda().to(dtype)
    y = fused.batch_norm(bn, x, added)
    assert y.grad_fn.name() == "_BatchNormBackward"
    y.backward(gradient)
    expected = plain_batch_norm(other, exact_x, exact_added, True)
    expected.backward(gradient.double())
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-4
    close(y.double(), expected, tolerance)
    close(x.grad.double(), exact_x.grad, tolerance)
    close(bn.weight.grad.double(), other.weight.grad, tolerance)
    close(bn.running_var.double(), other.running_var, 1e-4)
    again = fused.batch_norm(copy.deepcopy(bn), x, added)
    assert torch.equal(again, fused.batch_norm(copy.deepcopy(bn), x, added))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(64, 64), (31, 40)])
def test_max_pooling_on_a_gpu_is_torchs(size):
    pool = nn.MaxPool2d(3, 2, 1)
    x, other = twice(channels_last(64, 64, *size).relu().cuda().bfloat16())
    y, expected = fused.max_pool(pool, x), pool(other)
    gradient = torch.randn_like(expected)
    y.backward(gradient)
    expected.backward(gradient)
    assert torch.equal(y, expected)
    close(x.grad.float(), other.grad.float(), 1e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("graph", [True, False])
def test_a_run_with_fused_kernels_is_the_run_without_up_to_rounding(tmp_path, graph):
    losses = []
    for fuse_kernels in (True, False):
        views = uw.Views({"color": [uw.augment.ColorJitter(hue=0.5)]}, ungrouped=[uw.augment.Normalize((0.5,), (0.2,))])
        torch.manual_seed(0)
        encoder = uw.Encoder("resnet18", views.spaces, dim=16, hidden=32)
        config = uw.TrainConfig(steps=12, batch_size=64, graph=graph, fuse=fuse_kernels, log_every=1)
        objective = uw.DisentangledLoss(uw.SimCLR(), spaces=views.spaces)
        run = uw.train(uw.Sprites(64), views, encoder, objective, config, tmp_path / str(fuse_kernels), progress=False)
        losses.append([row["loss"] for row in run.metrics])
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


if __name__ == "__main__":
    main()
