"""The time of a training step, over the time of the same step on views that exist already.

    python benchmarks/step.py --out results/benchmarks/step.json

A ratio of 1 means that making the views costs nothing. On a GPU the network computes in bfloat16; on a CPU both this
and single precision are measured.
"""

import argparse
import itertools
import json
import time
from pathlib import Path

import torch

import unweave as uw
import unweave.augment as A
from unweave.models import BothViews
from unweave.models.fused import fuse
from unweave.provenance import provenance

CASES = {"cuda": [("resnet50", 224, 256), ("resnet18", 64, 1024)], "cpu": [("resnet18", 64, 256)]}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def measure(
    backbone: str,
    size: int,
    batch: int,
    *,
    device: str,
    compile: bool,
    fused: bool = False,
    repeats: int,
    rounds: int = 5,
    bfloat16: bool = True,
) -> dict[str, object]:
    views = uw.Views(
        {
            "spatial": [A.RandomResizedCrop(size), A.RandomHorizontalFlip()],
            "appearance": [
                A.ColorJitter(0.4, 0.4, 0.2, 0.1, p=0.8),
                A.RandomGrayscale(p=0.2),
                A.GaussianBlur(23 if size > 100 else 7, p=0.5),
                A.RandomSolarize(0.5, p=0.1),
            ],
        },
        ungrouped=[A.Normalize(MEAN, STD)],
    )
    encoder = uw.Encoder(backbone, views.spaces).to(device, memory_format=torch.channels_last)
    if fused:
        fuse(encoder)
    both = BothViews(encoder)
    model = torch.compile(both) if compile else both
    objective = uw.DisentangledLoss(uw.SimCLR(), spaces=views.spaces, lambda_rule=uw.DualAscent()).to(device)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-4, fused=device == "cuda")
    images = torch.randint(0, 256, (batch, 3, size * 8 // 7, size * 8 // 7), dtype=torch.uint8, device=device)
    ready = views(images)

    def step(make_views: bool) -> None:
        pair = views(images) if make_views else ready
        with torch.autocast(device, torch.bfloat16, enabled=bfloat16):
            z_a, z_b = model(*(v.contiguous(memory_format=torch.channels_last) for v in (pair.a, pair.b)))
        terms = objective(z_a, z_b, pair.shared)
        terms.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        objective.update(terms)

    def seconds(make_views: bool) -> float:
        for _ in range(min(3, rounds)):
            step(make_views)
        times = []
        for _ in range(rounds):
            if device == "cuda":
                torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(repeats):
                step(make_views)
            if device == "cuda":
                torch.cuda.synchronize()
            times.append((time.perf_counter() - started) / repeats)
        return float(torch.tensor(times).median())

    ceiling, whole = seconds(False), seconds(True)
    return {
        "backbone": backbone,
        "size": size,
        "batch_size": batch,
        "precision": "bf16-mixed" if bfloat16 else "32-true",
        "compiled_encoder": compile,
        "fused_encoder": fused,
        "step_seconds": round(whole, 5),
        "step_seconds_on_ready_views": round(ceiling, 5),
        "ratio": round(whole / ceiling, 4),
        "images_per_second": round(batch / whole, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compile", action="store_true", help="measure a compiled encoder too")
    parser.add_argument("--fuse", action="store_true", help="measure an encoder with fused kernels too, on a GPU")
    parser.add_argument("--quick", action="store_true", help="one tiny case on any device, as a test")
    options = parser.parse_args()
    started = time.perf_counter()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    rows = []
    if options.quick:
        rows.append(measure("resnet18", 64, 6, device=device, compile=False, repeats=1, rounds=1))
    else:
        precisions = (True,) if device == "cuda" else (False, True)
        encoders = [(False, False), *([(False, True)] * options.fuse), *([(True, False)] * options.compile)]
        for compile, fused in encoders:
            for (backbone, size, batch), bfloat16 in itertools.product(CASES[device], precisions):
                repeats = 10 if device == "cuda" else 2
                options_of = {"compile": compile, "fused": fused, "bfloat16": bfloat16}
                rows.append(measure(backbone, size, batch, device=device, repeats=repeats, **options_of))
                print(rows[-1], flush=True)
                write(options.out, rows, started)
    write(options.out, rows, started)


def write(out: Path | None, rows: list[dict[str, object]], started: float) -> None:
    report = {**provenance(), "seconds": round(time.perf_counter() - started, 1), "rows": rows}
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
