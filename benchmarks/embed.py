"""Images per second of ``unweave embed``, beside the rate at which the same files can be decoded.

    uv run python benchmarks/embed.py --data photographs --out results/benchmarks/embed.json

``decoding`` reads and decodes the files and does nothing else, with the same worker processes: the ceiling where the
network costs nothing. ``network`` encodes a batch that is on the device already: the other ceiling. On a GPU they work
at the same time, on a CPU they share its cores, and ``both`` is the rate of one after the other. Times include the
start of the workers and the writing of the table. The tasks of one row take turns, and medians over rounds are
reported. Photographs are used as they are, and enlarged to 500×375 with noise, so that they compress like photographs,
as JPEGs of quality 90.
"""

import argparse
import io
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

import unweave as uw
from unweave.data import Source, open_source
from unweave.data.loading import StreamedImages
from unweave.data.resources import default_workers
from unweave.data.unreadable import UnreadableImages
from unweave.inference import SpacesModel, embed_images
from unweave.models import EncoderConfig
from unweave.provenance import provenance

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SPACES = ("content", "spatial", "appearance")


def photographs(source: Source | None, count: int) -> list[bytes]:
    """Encoded photographs, evenly spaced in the source; without one, small images that are made here."""
    if source is None:
        coarse = np.random.default_rng(0).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)
        return [as_jpeg(Image.fromarray(image).resize((64, 64), Image.Resampling.BICUBIC)) for image in coarse]
    encoded = [source.read(i * len(source) // count) for i in range(count)]
    return [item.read_bytes() if isinstance(item, Path) else item for item in encoded]  # type: ignore[misc]


def enlarged(data: bytes, seed: int) -> bytes:
    image = Image.open(io.BytesIO(data)).convert("RGB").resize((500, 375), Image.Resampling.BICUBIC)
    noise = np.random.default_rng(seed).integers(-24, 25, (375, 500, 3), dtype=np.int16)
    return as_jpeg(Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype(np.uint8)))


def as_jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def write_files(folder: Path, images: list[bytes]) -> dict[str, str]:
    """The same images as files and as Parquet: what DATA is, by kind."""
    for kind in ("files", "parquet"):
        (folder / kind).mkdir(parents=True)
    for i, data in enumerate(images):
        (folder / "files" / f"{i:06}.jpg").write_bytes(data)
    size = -(-len(images) // 4)
    for part in range(4):
        some = pa.table({"image": pa.array(images[part * size : (part + 1) * size], pa.binary())})
        pq.write_table(some, folder / "parquet" / f"{part}.parquet", row_group_size=100)
    return {
        "folder of files": str(folder / "files"),
        "Parquet": str(folder / "parquet"),
        "Parquet at file://": f"file://{folder}/parquet",
    }


def decode_all(model: SpacesModel, data: str, workers: int, batch: int) -> None:
    source = open_source(data, random_access=False)
    unreadable = UnreadableImages(len(source), 0.0)
    numbers = range(len(source))
    parts = source.in_order(numbers, batch) if hasattr(source, "in_order") else [(numbers, source)]
    for some, part in parts:
        stream = StreamedImages(part, model.decoder, workers, unreadable, substitute=False)
        for _ in stream.batches(torch.arange(some.start, some.stop).split(batch), DEVICE):
            pass


def encode_all(model: SpacesModel, count: int, batch: int) -> None:
    images = torch.randint(0, 256, (batch, *model.input_shape), dtype=torch.uint8, device=DEVICE)
    for start in range(0, count, batch):
        model.encode(images[: count - start])["h"].cpu()


def rates(count: int, rounds: int, tasks: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Images per second of each task: the median over rounds, in which they take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            started = time.perf_counter()
            task()
            seconds[name].append(time.perf_counter() - started)
    return {name: count / float(np.median(each)) for name, each in seconds.items()}


def measure(model: SpacesModel, name: str, kind: str, data: str, rounds: int) -> dict[str, object]:
    workers, count = default_workers(), len(open_source(data, random_access=False))
    batch = min(256, -(-count // 4))
    with tempfile.TemporaryDirectory() as out:
        embed = {"batch_size": batch, "workers": workers, "device": str(DEVICE)}
        numbers = itertools.count()  # a new name each time: a complete folder would not be written again
        found = rates(
            count,
            rounds,
            {
                "decoding": lambda: decode_all(model, data, workers, batch),
                "network": lambda: encode_all(model, count, batch),
                "embed": lambda: _discard(embed_images(model, data, f"{out}/{next(numbers)}.parquet", **embed)),
                "embed to a folder": lambda: _discard(embed_images(model, data, f"{out}/{next(numbers)}/", **embed)),
            },
        )
    both = 1 / (1 / found["decoding"] + 1 / found["network"])
    row: dict[str, object] = {
        "data": kind, "backbone": name, "size": model.size, "images": count, "batch_size": batch, "workers": workers,
        **{f"{key.replace(' ', '_')}_images_per_second": round(rate, 1) for key, rate in found.items()},
        "both_images_per_second": round(both, 1),
        "of_decoding": round(found["embed"] / found["decoding"], 3),
        "of_both": round(found["embed"] / both, 3),
    }  # fmt: skip
    print(row, flush=True)
    return row


def _discard(result: object) -> None:
    """For functions whose result does not matter."""


def small_network(size: int) -> SpacesModel:
    """A network that costs little."""
    return SpacesModel(uw.Encoder(uw.SmallConvNet(size), SPACES, dim=64), input_shape=(3, size, size)).to(DEVICE)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--data", type=Path, help="photographs: a folder, or Parquet files")
    parser.add_argument("--images", type=int, default=8192, help="photographs to use")
    parser.add_argument("--enlarged", type=int, default=512, help="of these, photographs to enlarge")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a few small images and one round, as a test")
    options = parser.parse_args()
    started, load = time.perf_counter(), os.getloadavg()[0]
    if options.quick:
        options.images, options.enlarged, options.rounds = 24, 4, 1
    source = None if options.data is None else open_source(options.data)
    given = photographs(source, options.images)
    large = [enlarged(data, i) for i, data in enumerate(given[: options.enlarged])]
    with tempfile.TemporaryDirectory() as folder:
        kinds = write_files(Path(folder) / "given", given)
        rows = [measure(small_network(64), "SmallConvNet", kind, data, options.rounds) for kind, data in kinds.items()]
        kinds = write_files(Path(folder) / "large", large)
        network = "test_resnet" if options.quick else "resnet50" if DEVICE.type == "cuda" else "resnet18"
        deep = SpacesModel(EncoderConfig(backbone=network).build(SPACES)).to(DEVICE)
        for name, model in (("SmallConvNet", small_network(224)), (network, deep)):
            rounds = options.rounds if name == "SmallConvNet" else 1
            rows.append(measure(model, name, "Parquet", kinds["Parquet"], rounds))
    report = {
        **provenance("pyarrow", "pillow"),
        "seconds": round(time.perf_counter() - started, 1),
        "load_of_others": round(load, 2),
        "bytes_of_an_image": {
            "given": sum(map(len, given)) // len(given),
            "enlarged": sum(map(len, large)) // len(large),
        },
        "rows": rows,
    }
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
