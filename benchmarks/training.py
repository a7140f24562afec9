"""Images per second of ``unweave train`` from files on disk, over the same step on images that are on the GPU already.

    python benchmarks/training.py --data64 tiny-imagenet --out results/benchmarks/training.json

A ratio of 1 means that reading and decoding cost nothing. ``decoding`` is the number of images per second that the
machine can decode. Beside it, lightly's SimCLR on the same files, network and batch size, which decodes at every step:
like for like are the rows that are not cached. The 224px files are made here: photographs enlarged to 500×375, with
noise so that they compress like photographs, as JPEGs of quality 90.
"""

import argparse
import io
import json
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import unweave as uw
from unweave.augment import ViewsConfig
from unweave.data import DataConfig, Source, TensorImages, load_images, open_source
from unweave.data.resources import cores, default_workers
from unweave.models import EncoderConfig
from unweave.pretraining import PretrainConfig
from unweave.pretraining.config import ProbeConfig
from unweave.provenance import provenance
from unweave.settings import to_nested, with_settings

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class Case:
    """Data and settings."""

    name: str
    data: str
    steps: int
    config: PretrainConfig
    rounds: int = 1
    """How often command and step are measured in turn; the median of their ratios is reported."""


def make_jpegs(folder: Path, count: int, photographs: Source | None) -> None:
    def make(i: int) -> None:
        rng = np.random.default_rng(i)
        if photographs is not None:
            encoded = photographs.read(i % len(photographs))
            image = Image.open(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded)
        else:
            image = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        pixels = np.asarray(image.convert("RGB").resize((500, 375), Image.Resampling.BICUBIC)).astype(np.int16)
        noisy = (pixels + rng.integers(-24, 25, pixels.shape, dtype=np.int16)).clip(0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / f"{i:05}.jpg", quality=90)

    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(make, range(count)))


def steady(rows: list[dict[str, float]]) -> float:
    """The median rate of the last two thirds of a run."""
    rates = [row["images_per_second"] for row in rows]
    return float(np.median(rates[len(rates) // 3 :]))


def of_the_command(case: Case) -> float:
    with tempfile.TemporaryDirectory() as out:
        run = uw.pretrain(case.data, out, config=case.config, steps=case.steps, progress=False)
    return steady(run.metrics)


def of_the_same_step(case: Case) -> float:
    config = with_settings(case.config, {"steps": case.steps})
    n, size = max(2 * config.training.batch_size, 1024 if DEVICE.type == "cuda" else 1), config.decode_size
    images = TensorImages(torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, device=DEVICE))
    views = config.views.build()
    encoder, objective = config.encoder.build(views.spaces), config.objective.build(views.spaces, case.steps)
    with tempfile.TemporaryDirectory() as out:
        run = uw.train(images, views, encoder, objective, config.training, out, progress=False)
    return steady(run.metrics)


def of_decoding(case: Case) -> float:
    source = open_source(case.data)
    images = load_images(source, case.config.decode_size, cache="none", workers=case.config.data.workers)
    batch = case.config.training.batch_size
    order = [torch.randint(len(source), (batch,)) for _ in range(max(3, min(case.steps, 40)))]
    batches = images.batches(order, DEVICE)
    next(batches)  # the start of the workers is not counted
    started = time.perf_counter()
    done = sum(len(images) for images in batches)
    return done / (time.perf_counter() - started)


class Files(torch.utils.data.Dataset):
    """As lightly's documentation does it: an image from its file, through lightly's transform."""

    def __init__(self, source: Source, transform: Callable[[Image.Image], list[torch.Tensor]]) -> None:
        self.source, self.transform = source, transform

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, i: int) -> list[torch.Tensor]:
        encoded = self.source.read(i)
        image = Image.open(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded)
        return self.transform(image.convert("RGB"))


def of_lightly(case: Case, steps: int) -> float:
    """The steady rate: batches that its workers prefetched before the measurement are used up first."""
    from lightly.loss import NTXentLoss
    from lightly.transforms import SimCLRTransform
    from torch.utils.data import DataLoader, RandomSampler

    config, batch = case.config, case.config.training.batch_size
    dataset = Files(open_source(case.data), SimCLRTransform(input_size=config.views.size))
    workers = cores() if config.data.workers is None else config.data.workers
    warm = 2 * workers + 2
    sampler = RandomSampler(dataset, replacement=True, num_samples=(warm + steps) * batch)
    loader = DataLoader(dataset, batch, sampler=sampler, num_workers=workers, pin_memory=DEVICE.type == "cuda")
    encoder = config.encoder.build(("content",)).to(DEVICE, memory_format=torch.channels_last)
    criterion = NTXentLoss(temperature=config.objective.temperature)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=config.training.optim.lr)
    started = 0.0
    for done, views in enumerate(loader):
        if done == warm:
            started = time.perf_counter()
        a, b = (v.to(DEVICE, memory_format=torch.channels_last, non_blocking=True) for v in views)
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=DEVICE.type == "cuda"):
            loss = criterion(encoder(a)["content"], encoder(b)["content"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()
    return steps * batch / (time.perf_counter() - started)


def measure(case: Case, lightly_steps: int, peers: dict[str, float]) -> dict[str, object]:
    """One case; ``peers`` has lightly's rate on data already measured, which our cache does not affect."""
    config = case.config
    row: dict[str, object] = {
        "name": case.name, "backbone": config.encoder.backbone, "size": config.views.size, "cache": config.data.cache,
        "batch_size": config.training.batch_size, "decode_size": config.decode_size,
        "compile": config.training.compile, "graph": config.training.graph,
        "workers": config.data.workers or default_workers(), "settings": to_nested(config),
    }  # fmt: skip
    for styles in (True, False):
        this = replace(case, config=with_settings(config, {} if styles else {"styles": ("none",)}))
        if case.rounds > 1:
            of_the_command(this)  # to reach steady clocks and warm caches
        rounds = [(of_the_command(this), of_the_same_step(this)) for _ in range(case.rounds)]
        command, ceiling = (float(np.median(rates)) for rates in zip(*rounds, strict=True))
        row["with styles" if styles else "without styles"] = {
            "images_per_second": round(command, 1),
            "on_images_already_there": round(ceiling, 1),
            "ratio": round(float(np.median([one / other for one, other in rounds])), 4),
            "rounds": [[round(rate, 1) for rate in pair] for pair in rounds],
        }
    row["decoding_images_per_second"] = round(of_decoding(case), 1)
    try:
        theirs = peers.get(case.data) or of_lightly(case, lightly_steps)
    except ImportError:
        row["lightly"] = "not installed"
    else:
        peers[case.data] = theirs
        row["lightly_simclr_images_per_second"] = round(theirs, 1)
        row["times_lightly"] = round(float(row["without styles"]["images_per_second"]) / theirs, 2)  # type: ignore[index]
    print(case.name, row, flush=True)
    return row


def cases(folder: Path, data64: Path | None, *, quick: bool) -> list[Case]:
    if quick:
        tiny = {"backbone": "test_resnet", "size": 32, "decode_size": 40, "batch_size": 8, "dim": 16, "hidden": 32}
        measured = {"workers": 1, "probe": "none", "log_every": 1, "checkpoint_minutes": None}
        config = with_settings(PretrainConfig(), {**tiny, **measured})
        streamed = with_settings(config, {"cache": "none"})
        return [Case("quick, cached", str(folder), 6, config), Case("quick", str(folder), 6, streamed)]
    training = uw.TrainConfig(log_every=10, checkpoint_minutes=None)
    probe = ProbeConfig(probe="none")
    big = PretrainConfig(
        data=DataConfig(decode_size=256, cache="none"),
        views=ViewsConfig(size=224, blur=(1.0, 0.1)),
        encoder=EncoderConfig(backbone="resnet50"),
        training=replace(training, compile=True),
        evaluation=probe,
    )
    found = [Case("224px JPEG files", str(folder), 150, big)]
    if data64 is not None:
        small = PretrainConfig(
            data=DataConfig(decode_size=64), training=replace(training, batch_size=1024, graph=True), evaluation=probe
        )
        streamed = with_settings(small, {"cache": "none"})
        found.insert(0, Case("64px Parquet, cached", str(data64), 120, small, rounds=3))
        found.insert(1, Case("64px Parquet, streamed", str(data64), 100, streamed))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--data64", type=Path, help="64px images: a folder, or Parquet files")
    parser.add_argument("--only", default="", help="words that a case's name must contain")
    parser.add_argument("--jpegs", type=int, default=4000, help="224px files to make")
    parser.add_argument("--quick", action="store_true", help="tiny cases on any device, as a test")
    options = parser.parse_args()
    if not options.quick and DEVICE.type == "cpu":
        raise SystemExit("this benchmark needs a GPU; --quick runs anywhere")
    before = json.loads(options.out.read_text()) if options.out and options.out.exists() else {"rows": [], "seconds": 0}
    started = time.perf_counter() - before["seconds"]
    rows: list[dict[str, object]] = before["rows"]  # an interrupted run resumes with the next case
    done = {row["name"]: row for row in rows}
    peers: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        make_jpegs(Path(folder), 40 if options.quick else options.jpegs, options.data64 and open_source(options.data64))
        for case in cases(Path(folder), options.data64, quick=options.quick):
            if options.only not in case.name:
                continue
            if case.name in done:
                print(case.name, "is already in", options.out, flush=True)
                peers[case.data] = float(done[case.name].get("lightly_simclr_images_per_second", 0))  # type: ignore[arg-type]
                continue
            rows.append(measure(case, 2 if options.quick else 2 * cores(), peers))
            if options.out:
                report = {**provenance("lightly", "pillow"), "seconds": round(time.perf_counter() - started, 1)}
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(json.dumps({**report, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
