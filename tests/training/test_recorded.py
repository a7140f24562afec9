"""A recorded step does what the step does."""

import threading

import pytest
import torch
from lightning_fabric import Fabric

import unweave as uw
import unweave.augment as A
from unweave.data.sprites import Sprites, StoredSprites
from unweave.errors import UnweaveError
from unweave.experiments.sprite_spaces import SpriteFactors, SpriteViews
from unweave.experiments.sprite_views import make_views
from unweave.models import BothViews
from unweave.training import TrainConfig
from unweave.training.loop import _gradients
from unweave.training.recorded import Recorded

BASES = {"simclr": uw.SimCLR(), "blocked": uw.SimCLR(block=64), "vicreg": uw.VICReg(), "barlow_twins": uw.BarlowTwins()}
ROWS = torch.arange(0, 600_000, 1000)


def images_and_views(kind, device):
    if kind == "table":
        return StoredSprites(Sprites(32), ROWS, device), make_views("medium", "whole")
    if kind == "latents":
        return SpriteFactors(ROWS, device), SpriteViews(32, "latents")
    groups = {
        "spatial": [A.RandomResizedCrop(32), A.RandomHorizontalFlip()],
        "appearance": [A.ColorJitter(0.4, 0.4, 0.2, 0.1), A.GaussianBlur(5, p=0.5)],
    }
    return StoredSprites(Sprites(40), ROWS, device), uw.Views(groups, always=[A.Normalize((0.5,) * 3, (0.5,) * 3)])


def trained(out, base, kind, device, batches=1000, **settings):
    images, views = images_and_views(kind, device)
    images = Breaks(images, batches)
    torch.manual_seed(0)
    encoder = uw.Encoder(uw.SmallConvNet(32, ((8, 2), (16, 2))), views.spaces, dim=4, hidden=16)
    # Independence joins the loss at the seventh step: the recording before it is of no use then.
    weights = uw.DualAscent(rule="geometric", lr=0.05, tolerance=0.01, warmup=6)
    objective = uw.DisentangledLoss(BASES[base], spaces=views.spaces, weights=weights, independence=1.0)
    config = TrainConfig(
        **{"steps": 16, "batch_size": 60, "lr": 1e-3, "log_every": 1, "accelerator": device, **settings}
    )
    run = uw.train(images, views, encoder, objective, config, out, progress=False)
    return run, encoder, objective


def test_on_a_cpu_nothing_is_recorded(tmp_path):
    runs = [trained(tmp_path / str(graph), "simclr", "table", "cpu", graph=graph, steps=4) for graph in (False, True)]
    (plain, one, _), (asked, two, _) = runs
    assert [row["loss"] for row in plain.metrics] == [row["loss"] for row in asked.metrics]
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["table", "latents", "photographs"])
@pytest.mark.parametrize("base", BASES)
def test_a_recorded_step_is_the_step(tmp_path, base, kind):
    runs = [trained(tmp_path / str(graph), base, kind, "cuda", graph=graph) for graph in (False, True)]
    (plain, one, first), (recorded, two, second) = runs
    # Rounding differs from run to run (tuned convolutions, TF32), and AdamW's first steps make much of it.
    for a, b in zip(plain.metrics, recorded.metrics, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=2e-2, abs=2e-2)
    torch.testing.assert_close(first.weights, second.weights, rtol=1e-4, atol=1e-4)
    for (name, a), b in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        torch.testing.assert_close(a.float(), b.float(), rtol=0.02, atol=0.005, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["table", "latents", "photographs"])
@pytest.mark.parametrize("base", BASES)
def test_recorded_gradients_are_the_gradients(tmp_path, base, kind):
    """Of the same batch, with the same random numbers and the same weights: to the last few digits."""
    images, views = images_and_views(kind, "cuda")
    torch.manual_seed(0)
    encoder = uw.Encoder(uw.SmallConvNet(32, ((8, 2), (16, 2))), views.spaces, dim=4, hidden=16).to("cuda")
    objective = uw.DisentangledLoss(BASES[base], spaces=views.spaces).to("cuda")
    fabric, model = Fabric(accelerator="cuda", devices=1), BothViews(encoder)
    generator = torch.Generator("cuda")
    config = TrainConfig(steps=8, batch_size=60, channels_last=False)
    recorded = Recorded(_gradients(fabric, model, views, objective, generator, config), encoder.parameters(), generator)
    losses = []
    for step in range(8):
        batch, made = images[torch.arange(60, device="cuda") * 7 + step], []
        for gradients in (recorded._apart, recorded):
            generator.manual_seed(step)
            encoder.zero_grad()
            terms = gradients(batch)
            made.append((terms.loss.item(), [p.grad.clone() for p in encoder.parameters()]))
        (one, first), (two, second) = made
        assert one == pytest.approx(two, rel=1e-5, abs=1e-5)
        for a, b in zip(first, second, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * max(1.0, a.abs().max().item()))
        losses.append(one)
    assert max(losses) - min(losses) > 1e-3 * abs(losses[0])  # other batches, other views: other losses


class Looks(torch.nn.Module):
    """A network that asks for a value on the GPU, which a recording cannot give."""

    def __init__(self):
        super().__init__()
        self.net = uw.SmallConvNet(32, ((8, 2), (16, 2)))

    def forward(self, x):
        return self.net(x) * (1.0 if x.mean().item() > 0 else 2.0)


@pytest.mark.gpu
def test_what_cannot_be_recorded_is_told_in_a_line(tmp_path):
    images, views = images_and_views("table", "cuda")
    encoder = uw.Encoder(Looks(), views.spaces, dim=4, hidden=16, feature_dim=128)
    objective = uw.DisentangledLoss(uw.SimCLR(), spaces=views.spaces)
    config = TrainConfig(steps=8, batch_size=60, accelerator="cuda", graph=True)
    with pytest.raises(UnweaveError, match=r"cannot be recorded \(.+\); take --no-graph"):
        uw.train(images, views, encoder, objective, config, tmp_path, progress=False)


@pytest.mark.gpu
def test_a_step_is_recorded_while_another_thread_fetches_batches(tmp_path):
    """Streamed data are pinned and copied by a thread that knows nothing of the recording."""
    stop, failures, rounds = threading.Event(), [], []

    def fetches():
        try:
            stream = torch.cuda.Stream()
            while not stop.is_set():
                with torch.cuda.stream(stream):
                    torch.empty(4096, pin_memory=True).to("cuda", non_blocking=True)
                    copied = stream.record_event()
                copied.query()  # any thread's query breaks a recording that watches all of them
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
    """Images whose disk goes after some batches."""

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
def test_a_recorded_run_goes_on_where_it_was(tmp_path):
    whole, _, _ = trained(tmp_path / "whole", "simclr", "table", "cuda", graph=True)
    with pytest.raises(OSError, match="gone"):
        trained(tmp_path / "halves", "simclr", "table", "cuda", graph=True, checkpoint_every=8, batches=11)
    again, _, _ = trained(tmp_path / "halves", "simclr", "table", "cuda", graph=True)
    assert again.resumed_from == 8
    assert again.metrics[-1]["loss"] == pytest.approx(whole.metrics[-1]["loss"], rel=1e-3, abs=1e-3)
