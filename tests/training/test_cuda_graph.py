"""A captured step does what the step does."""

import threading

import pytest
import torch
from lightning_fabric import Fabric

import unweave as uw
import unweave.augment as A
from unweave.data import Sprites, StoredSprites
from unweave.errors import UnweaveError
from unweave.models import BothViews
from unweave.reproduce.sprite_spaces.views import SpriteFactors, SpriteViews
from unweave.reproduce.sprites.views import sprite_views
from unweave.training import CapturedStep
from unweave.training.cuda_graph import CapturedGradients
from unweave.training.loop import _Gradients

BASES = {"simclr": uw.SimCLR(), "blocked": uw.SimCLR(block=64), "vicreg": uw.VICReg(), "barlow_twins": uw.BarlowTwins()}
ROWS = torch.arange(0, 600_000, 1000)


def images_and_views(kind, device):
    if kind == "table":
        return StoredSprites(Sprites(32), ROWS, device), sprite_views("medium", "whole")
    if kind == "latents":
        return SpriteFactors(ROWS, device), SpriteViews(32, "latents")
    groups = {
        "spatial": [A.RandomResizedCrop(32), A.RandomHorizontalFlip()],
        "appearance": [A.ColorJitter(0.4, 0.4, 0.2, 0.1), A.GaussianBlur(5, p=0.5)],
    }
    return StoredSprites(Sprites(40), ROWS, device), uw.Views(groups, ungrouped=[A.Normalize((0.5,) * 3, (0.5,) * 3)])


def trained(out, base, kind, device, batches=1000, **settings):
    images, views = images_and_views(kind, device)
    images = Breaks(images, batches)
    torch.manual_seed(0)
    encoder = uw.Encoder(uw.SmallConvNet(32, ((8, 2), (16, 2))), views.spaces, dim=4, hidden=16)
    # Independence joins the loss at the seventh step: the capture before it is not valid then.
    objective = uw.DisentangledLoss(
        BASES[base],
        spaces=views.spaces,
        lambda_rule=uw.GeometricGrowth(rate=0.05, tolerance=0.01, warmup=6),
        independence=uw.Independence(start=6, ramp=6),
    )
    launch = uw.LaunchConfig(accelerator=device, precision="32-true")
    optim = uw.OptimConfig(lr=3e-4, warmup=1.0)  # small steps: rounding differs from run to run
    config = uw.TrainConfig(
        **{"steps": 16, "batch_size": 60, "log_every": 1, "launch": launch, "optim": optim, **settings}
    )
    run = uw.train(images, views, encoder, objective, config, out, progress=False)
    return run, encoder, objective


def test_on_a_cpu_nothing_is_captured(tmp_path):
    runs = [trained(tmp_path / str(graph), "simclr", "table", "cpu", graph=graph, steps=4) for graph in (False, True)]
    (plain, one, _), (with_graph, two, _) = runs
    assert [row["loss"] for row in plain.metrics] == [row["loss"] for row in with_graph.metrics]
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["table", "latents", "photographs"])
@pytest.mark.parametrize("base", BASES)
def test_a_captured_step_is_the_step(tmp_path, base, kind):
    runs = [trained(tmp_path / str(graph), base, kind, "cuda", graph=graph) for graph in (False, True)]
    (plain, one, first), (captured, two, second) = runs
    # Rounding differs from run to run (tuned convolutions, TF32), and AdamW's first steps make much of it.
    for a, b in zip(plain.metrics, captured.metrics, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=2e-2, abs=2e-2)
    torch.testing.assert_close(first.lambdas, second.lambdas, rtol=1e-4, atol=1e-4)
    for (name, a), b in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        torch.testing.assert_close(a.float(), b.float(), rtol=0.02, atol=0.005, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["table", "latents", "photographs"])
@pytest.mark.parametrize("base", BASES)
def test_captured_gradients_are_the_gradients(tmp_path, base, kind):
    """Of the same batch, with the same random numbers and the same weights: to the last few digits."""
    images, views = images_and_views(kind, "cuda")
    torch.manual_seed(0)
    encoder = uw.Encoder(uw.SmallConvNet(32, ((8, 2), (16, 2))), views.spaces, dim=4, hidden=16).to("cuda")
    objective = uw.DisentangledLoss(BASES[base], spaces=views.spaces).to("cuda")
    fabric, model = Fabric(accelerator="cuda", devices=1), BothViews(encoder)
    generator = torch.Generator("cuda")
    config = uw.TrainConfig(steps=8, batch_size=60, channels_last=False)
    gradients = _Gradients(fabric, model, views, objective, generator, config)
    captured = CapturedGradients(gradients, encoder.parameters(), generator)
    losses = []
    for step in range(8):
        batch, made = images[torch.arange(60, device="cuda") * 7 + step], []
        for compute in (captured.uncaptured, captured):
            generator.manual_seed(step)
            encoder.zero_grad()
            terms = compute(batch)
            made.append((terms.loss.item(), [p.grad.clone() for p in encoder.parameters()]))
        (one, first), (two, second) = made
        assert one == pytest.approx(two, rel=1e-5, abs=1e-5)
        for a, b in zip(first, second, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * max(1.0, a.abs().max().item()))
        losses.append(one)
    assert max(losses) - min(losses) > 1e-3 * abs(losses[0])  # other batches, other views: other losses


@pytest.mark.gpu
def test_a_compiled_step_is_captured_too(tmp_path):
    runs = [trained(tmp_path / str(on), "simclr", "photographs", "cuda", graph=on, compile=on) for on in (False, True)]
    for a, b in zip(runs[0][0].metrics, runs[1][0].metrics, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=2e-2, abs=2e-2)


class Looks(torch.nn.Module):
    """A network that reads a value from the GPU, which a capture does not allow."""

    def __init__(self):
        super().__init__()
        self.net = uw.SmallConvNet(32, ((8, 2), (16, 2)))

    def forward(self, x):
        return self.net(x) * (1.0 if x.mean().item() > 0 else 2.0)


@pytest.mark.gpu
def test_a_step_that_cannot_be_captured_is_refused_in_one_line(tmp_path):
    images, views = images_and_views("table", "cuda")
    encoder = uw.Encoder(Looks(), views.spaces, dim=4, hidden=16, feature_dim=128)
    objective = uw.DisentangledLoss(uw.SimCLR(), spaces=views.spaces)
    config = uw.TrainConfig(steps=8, batch_size=60, graph=True, launch=uw.LaunchConfig(accelerator="cuda"))
    with pytest.raises(UnweaveError, match=r"cannot be captured .*\(.+\); disable `graph`"):
        uw.train(images, views, encoder, objective, config, tmp_path, progress=False)


@pytest.mark.gpu
def test_a_step_is_captured_while_another_thread_copies_batches(tmp_path):
    """Streamed data are pinned and copied by a thread that is not part of the capture."""
    stop, failures, rounds = threading.Event(), [], []

    def fetches():
        try:
            stream = torch.cuda.Stream()
            while not stop.is_set():
                with torch.cuda.stream(stream):
                    torch.empty(4096, pin_memory=True).to("cuda", non_blocking=True)
                    copied = stream.record_event()
                copied.query()  # any thread's query breaks a capture that watches all of them
                rounds.append(None)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=fetches, daemon=True)
    thread.start()
    try:
        for attempt in range(4):
            trained(tmp_path / str(attempt), "simclr", "table", "cuda", graph=True)
    finally:
        stop.set()
        thread.join()
    assert not failures
    assert rounds


class Breaks:
    """Images that cannot be read any more after some batches."""

    def __init__(self, images, batches):
        self._images, self._left = images, batches

    def __len__(self):
        return len(self._images)

    def __getitem__(self, index):
        self._left -= 1
        if self._left < 0:
            raise OSError("gone")
        return self._images[index]


@pytest.mark.gpu
def test_a_captured_run_resumes_where_it_was(tmp_path):
    whole, _, _ = trained(tmp_path / "whole", "simclr", "table", "cuda", graph=True)
    with pytest.raises(OSError, match="gone"):
        trained(tmp_path / "halves", "simclr", "table", "cuda", graph=True, checkpoint_every=8, batches=11)
    again, _, _ = trained(tmp_path / "halves", "simclr", "table", "cuda", graph=True)
    assert again.resumed_from == 8
    assert again.metrics[-1]["loss"] == pytest.approx(whole.metrics[-1]["loss"], rel=1e-3, abs=1e-3)


@pytest.mark.gpu
def test_a_captured_step_without_arguments_runs_as_often_as_it_is_called():
    generator, total = torch.Generator("cuda").manual_seed(0), torch.zeros((), device="cuda")
    drawn = torch.zeros(12, device="cuda")

    def step():
        total.add_(1)
        drawn.copy_(torch.roll(drawn, 1) + torch.rand(12, generator=generator, device="cuda"))

    captured = CapturedStep(step, generator)
    for _ in range(10):
        captured()
    assert total.item() == 10
    assert 10 * 0.2 < drawn.mean().item() < 10 * 0.8  # other numbers at every replay
    assert drawn.std().item() > 0
