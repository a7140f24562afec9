import pytest
import torch

from unweave.training.repeated import CosineAdam, repeated


def _train(device: str, steps: int, graph: bool) -> tuple[torch.Tensor, float]:
    weight = torch.nn.Parameter(torch.zeros(3, device=device))
    optimizer = CosineAdam([weight], 0.1, steps, device)
    generator = torch.Generator(device).manual_seed(0)
    last = torch.zeros((), device=device)

    def step() -> None:
        x = torch.randn(64, 3, generator=generator, device=device)
        loss = ((x @ weight) - x.sum(1)).square().mean()
        optimizer.minimise(loss)
        last.copy_(loss.detach())

    take = repeated(step, generator) if graph else step
    for _ in range(steps):
        take()
        optimizer.advance()
    return weight.detach().cpu(), float(last)


def test_adam_with_a_cosine_is_torchs():
    ours, _ = _train("cpu", 30, graph=True)
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.Adam([weight], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        x = torch.randn(64, 3, generator=generator)
        optimizer.zero_grad()
        ((x @ weight) - x.sum(1)).square().mean().backward()
        optimizer.step()
        schedule.step()
    torch.testing.assert_close(ours, weight.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_a_graph_learns_what_single_launches_learn():
    weight, loss = _train("cuda", 300, graph=True)
    assert loss < 0.05
    torch.testing.assert_close(weight, _train("cuda", 300, graph=False)[0], rtol=0, atol=0.05)
