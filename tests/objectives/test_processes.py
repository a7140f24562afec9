"""Two processes give the loss and the gradients of one process on the whole batch."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from processes import Child, torchrun_environment
from unweave.objectives import BarlowTwins, DisentangledLoss, DualAscent, SimCLR, VICReg

SPACES = ("content", "color")
BASES = {"simclr": SimCLR(0.2, block=8), "vicreg": VICReg(), "barlow": BarlowTwins()}
N = 12


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.ParameterDict({s: torch.randn(5, 4, generator=generator) for s in SPACES})

    def forward(self, a, b):
        return tuple({s: torch.tanh(x @ w) for s, w in self.weight.items()} for x in (a, b))


def step(model, rows, base):
    """Loss, gradients and the next λ for these rows of the batch."""
    generator = torch.Generator().manual_seed(1)
    a, b = torch.randn(N, 5, generator=generator), torch.randn(N, 5, generator=generator)
    objective = DisentangledLoss(base, spaces=SPACES, lambda_rule=DualAscent(start={"content": 2.0, "color": 3.0}))
    terms = objective(*model(a[rows], b[rows]), (torch.arange(N) % 2)[rows])
    terms.loss.backward()
    objective.update(terms)
    grads = {n.removeprefix("module."): p.grad for n, p in model.named_parameters()}
    return {"loss": terms.loss.detach(), "lambdas": objective.lambdas, **grads}


def work(rank, folder):
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    rows = slice(rank * N // 2, (rank + 1) * N // 2)
    out = {name: step(DistributedDataParallel(Heads()), rows, base) for name, base in BASES.items()}
    torch.save(out, folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gloo")
    children = [
        Child(folder / f"child-{rank}", work, rank, folder, env=environment)
        for rank, environment in enumerate(torchrun_environment(2))
    ]
    for child in children:
        done = child.wait()
        assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize("name", BASES)
def test_two_processes_are_one(two_processes, name):
    torch.set_default_dtype(torch.float64)
    try:
        one = step(Heads(), slice(None), BASES[name])
    finally:
        torch.set_default_dtype(torch.float32)
    for rank in (0, 1):
        assert two_processes[rank][name].keys() == one.keys()
        for key, value in one.items():
            torch.testing.assert_close(
                two_processes[rank][name][key], value, atol=1e-10, rtol=0, msg=f"{key} on {rank}"
            )
