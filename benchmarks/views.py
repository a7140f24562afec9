"""Views per second of unweave, kornia and torchvision: the same images and kinds of transforms in one run.

    uv run python benchmarks/views.py --out results/benchmarks/views.json

Crop, flip, jitter, grayscale, blur and solarize, with other parameters for every image. kornia works on batches of
floats, torchvision image by image (its random transforms draw once for a whole batch), unweave on batches of uint8.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import unweave.augment as A
from unweave.provenance import provenance

BLUR = {224: 23, 64: 7}


def unweave_pipeline(size: int) -> Callable[[Tensor], int]:
    views = A.Views(
        {
            "spatial": [A.RandomResizedCrop(size), A.RandomHorizontalFlip()],
            "appearance": [
                A.ColorJitter(0.4, 0.4, 0.2, 0.1, p=0.8),
                A.RandomGrayscale(p=0.2),
                A.GaussianBlur(BLUR[size], (0.1, 2.0), p=0.5),
                A.RandomSolarize(0.5, p=0.1),
            ],
        }
    )

    def run(images: Tensor) -> int:
        pair = views(images)
        return len(pair.a) + len(pair.b)

    return run


def kornia_pipeline(size: int) -> Callable[[Tensor], int]:
    import kornia.augmentation as K

    pipeline = K.AugmentationSequential(
        K.RandomResizedCrop((size, size), scale=(0.08, 1.0)),
        K.RandomHorizontalFlip(p=0.5),
        K.ColorJitter(0.4, 0.4, 0.2, 0.1, p=0.8),
        K.RandomGrayscale(p=0.2),
        K.RandomGaussianBlur((BLUR[size], BLUR[size]), (0.1, 2.0), p=0.5),
        K.RandomSolarize(0.5, p=0.1),
        data_keys=["input"],
    )

    def run(images: Tensor) -> int:
        with torch.no_grad():
            return len(pipeline(images.float() / 255))

    return run


def torchvision_pipeline(size: int) -> Callable[[Tensor], int]:
    import torchvision.transforms.v2 as T

    pipeline = T.Compose(
        [
            T.RandomResizedCrop(size, antialias=True),
            T.RandomHorizontalFlip(),
            T.RandomApply([T.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
            T.RandomGrayscale(0.2),
            T.RandomApply([T.GaussianBlur(BLUR[size], (0.1, 2.0))], p=0.5),
            T.RandomSolarize(128, p=0.1),
        ]
    )

    def run(images: Tensor) -> int:
        return len(torch.stack([pipeline(image) for image in images]))

    return run


PIPELINES = {"unweave": unweave_pipeline, "kornia": kornia_pipeline, "torchvision": torchvision_pipeline}


def views_per_second(run: Callable[[Tensor], int], images: Tensor, seconds: float) -> float:
    """The median over repeats of at least ``seconds`` in total, after a warm-up."""
    synchronise = torch.cuda.synchronize if images.is_cuda else lambda: None
    for _ in range(2):
        run(images)
    synchronise()
    rates, begun = [], time.perf_counter()
    while len(rates) < 3 or time.perf_counter() - begun < seconds:
        started = time.perf_counter()
        made = sum(run(images) for _ in range(4 if images.is_cuda else 1))
        synchronise()
        rates.append(made / (time.perf_counter() - started))
    return float(torch.tensor(rates).median())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds to measure each row")
    parser.add_argument("--quick", action="store_true", help="small batches and one repeat, as a test")
    options = parser.parse_args()
    started = time.perf_counter()
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    rows: list[dict[str, object]] = []
    for device in devices:
        for size in (224, 64):
            n = {("cpu", 224): 32, ("cpu", 64): 256, ("cuda", 224): 512, ("cuda", 64): 4096}[device, size]
            n = 4 if options.quick else n
            images = torch.randint(0, 256, (n, 3, size * 8 // 7, size * 8 // 7), dtype=torch.uint8).to(device)
            for library, make in PIPELINES.items():
                part = images[:128] if library == "torchvision" else images
                rate = views_per_second(make(size), part, 0.1 if options.quick else options.seconds)
                rows.append({"library": library, "device": device, "size": size, "views_per_second": round(rate, 1)})
            ours = rows[-3]["views_per_second"]
            ratios = ", ".join(f"{ours / row['views_per_second']:.1f} times {row['library']}" for row in rows[-2:])
            print(f"{device} {size}px: {ours:,.0f} views/s, {ratios}", flush=True)
    report = {**provenance("kornia"), "seconds": round(time.perf_counter() - started, 1), "rows": rows}
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
