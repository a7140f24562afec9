"""Is the SimCLR baseline credible? CIFAR-10 with the preset cifar, scored beside published numbers.

    python benchmarks/cifar.py --data cifar10 --runs runs/cifar --out results/benchmarks/cifar.json

Two models, each trained on all training images of CIFAR-10 for 200 epochs: SimCLR alone (``--styles none``), and SimCLR
with the style spaces of the preset. The test images are not used before the end, and only the last step is scored.

- kNN: 200 neighbours by cosine among the training images, each weighted by exp(cosine/0.1): the protocol of lightly.
- linear: logistic regression on the features of the training images, without augmentation. The penalty is one of
  ``PENALTIES``, chosen by cross-validation with ``FOLDS`` folds of the training images.

Both are computed on h, the output of the backbone, and on content, the output of its projector. Accuracies are
fractions of the test images; published values are beside them.

DATA is a folder with test.parquet and train*.parquet (all files together are the training images), or with
cifar-10-batches-py. A run is kept in a folder of --runs. The same command resumes a run that was stopped, only scores
one that is finished, and keeps the rows of other models that --out contains.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

import unweave as uw
from unweave.data import Source, open_source
from unweave.data.tasks import open_tasks
from unweave.evaluation import PENALTIES as ALL_PENALTIES
from unweave.evaluation import KNNProbe, LinearProbe
from unweave.gpu import triton_works
from unweave.inference import compute_features
from unweave.inference.embed import usable_device
from unweave.pretraining import PretrainConfig
from unweave.pretraining.presets import preset
from unweave.provenance import provenance
from unweave.settings import to_nested, with_settings
from unweave.training import Run

MODELS: dict[str, dict[str, Any]] = {"simclr": {"styles": ("none",)}, "styles": {}}
"""The models and the settings in which they differ from the preset."""
ALL_IMAGES = {"held_out": 0.0, "report": False, "probe": "none"}
"""No image is kept out of training for a report, and nothing is evaluated during training."""
TINY = {
    "backbone": "test_resnet", "small_images": False, "dim": 8, "hidden": 16, "batch_size": 64, "steps": 2,
    "log_every": 1, "workers": 0,
}  # fmt: skip
FEATURES = ("h", "content")
NEIGHBOURS, TEMPERATURE = 200, 0.1
PENALTIES, FOLDS = ALL_PENALTIES[::2], 5
"""Every second of the paper's 45 penalties, from 1e-6 to 1e5: a factor of 3.2 between two of them."""
QUICK_PENALTIES = (10.0, 1000.0)
PUBLISHED = [
    {
        "model": "SimCLR, ResNet-18, batch 512",
        "epochs": 200,
        "knn": {"h": 0.848},
        "source": "lightly, benchmark results of CIFAR-10, 2023-03-27, commit 42a6a92: k = 200, temperature 0.1; the "
        "best epoch on the test images",
    },
    {
        "model": "SimCLR, ResNet-18",
        "epochs": 1000,
        "linear": {"h": 0.9074},
        "source": "solo-learn, README, table of CIFAR-10: a linear classifier trained beside the network (online)",
    },
]


class Patterns(torch.utils.data.Dataset[np.ndarray]):
    """Images of 32 pixels, noise around the mean color of their class, for tests without data."""

    def __init__(self, count: int, seed: int) -> None:
        self.targets = [i % 10 for i in range(count)]
        colors = np.random.default_rng(0).integers(64, 192, (10, 1, 1, 3))
        noise = np.random.default_rng(seed).integers(-64, 64, (count, 32, 32, 3))
        self._images = (colors[self.targets] + noise).astype(np.uint8)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, i: int) -> np.ndarray:
        return self._images[i]


def open_data(folder: Path) -> tuple[Source, Source]:
    """The training images and the test images."""
    if (folder / "test.parquet").is_file():
        train, test = open_source(folder / "train*.parquet"), open_source(folder / "test.parquet")
    else:
        (task,) = open_tasks("cifar10", folder)
        assert task.test is not None
        train, test = task.fit.source, task.test.source
    if train.labels is None or test.labels is None or train.classes != test.classes:
        raise SystemExit(f"{folder}: training and test images must have labels of the same classes")
    return train, test


def setting(text: str) -> tuple[str, Any]:
    """A setting from name=value."""
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    return name.replace("-", "_"), yaml.safe_load(value)


def configure(model: str, options: argparse.Namespace) -> PretrainConfig:
    """The preset; what the model, the protocol and the options change."""
    changes = {"epochs": options.epochs, "compile": options.compile, **ALL_IMAGES, **MODELS[model]}
    return with_settings(preset("cifar"), changes | (TINY if options.quick else {}) | dict(options.set))


def score(folder: Path, train: Source, test: Source, config: PretrainConfig, *, quick: bool) -> dict[str, Any]:
    """The accuracies of a finished run, with the penalties chosen."""
    device, model = usable_device(config.training.launch.accelerator), uw.load(folder)
    made = [compute_features(model, part, device=device, workers=config.data.workers) for part in (train, test)]
    fit, tested = ({name: part.features[name].to(device) for name in FEATURES} for part in made)
    y_fit, y_test = (np.array(part.labels)[found.rows] for part, found in zip((train, test), made, strict=True))
    penalties = QUICK_PENALTIES if quick else PENALTIES
    scores: dict[str, dict[str, float]] = {"knn": {}, "linear": {}, "penalty": {}}
    for name in FEATURES:
        knn = KNNProbe("classes", neighbours=NEIGHBOURS, temperature=TEMPERATURE).fit(fit[name], y_fit)
        linear = LinearProbe("classes", penalties=penalties, folds=FOLDS)
        scores["knn"][name] = round(knn.score(tested[name], y_test), 4)
        scores["linear"][name] = round(linear.fit(fit[name], y_fit).score(tested[name], y_test), 4)
        scores["penalty"][name] = linear.penalty
        print(
            f"{folder.name}, {name}: kNN {scores['knn'][name]:.4f}, linear {scores['linear'][name]:.4f} "
            f"(penalty {linear.penalty:.3g})",
            flush=True,
        )
    return scores


def measure(model: str, folder: Path, train: Source, test: Source, options: argparse.Namespace) -> dict[str, Any]:
    """Trains a model, or resumes it, and scores it."""
    config = configure(model, options)
    run = uw.pretrain(train, folder, config=config, progress=sys.stdout.isatty())
    if run.stopped:
        print(f"{model}: stopped at step {run.steps}; the same command resumes it", flush=True)
        raise SystemExit(143)
    rate = steady(run)
    print(f"{model}: {run.steps} steps in {run.seconds:.0f} s, {rate:.0f} images/s", flush=True)
    started = time.perf_counter()
    scores = score(folder, train, test, config, quick=options.quick)
    return {
        "model": model,
        "epochs": run.steps / (len(train) // config.training.batch_size),
        **scores,
        "images": {"train": len(train), "test": len(test)},
        "images_per_second": round(rate, 1),
        "seconds": round(run.seconds, 1),
        "seconds_of_scoring": round(time.perf_counter() - started, 1),
        "settings": to_nested(config),
    }


def steady(run: Run) -> float:
    """The median rate of the last two thirds of a run."""
    rates = [row["images_per_second"] for row in run.metrics]
    return float(np.median(rates[len(rates) // 3 :]))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--data", type=Path, help="folder with test.parquet and train*.parquet, or cifar-10-batches-py")
    parser.add_argument("--runs", type=Path, help="folder of the runs")
    parser.add_argument("--only", choices=tuple(MODELS), help="one of the two models")
    parser.add_argument("--epochs", type=float, default=200)
    parser.add_argument(
        "--set", type=setting, action="append", default=[], metavar="NAME=VALUE", help="a setting of `unweave train`"
    )
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        default=torch.cuda.is_available() and triton_works(),
        help="compile the encoder, inside the CUDA graph; by default on a GPU that can",
    )
    parser.add_argument("--quick", action="store_true", help="a few synthetic images and two steps, as a test")
    options = parser.parse_args()
    if not options.quick and (options.data is None or options.runs is None):
        raise SystemExit("name the folder of CIFAR-10 with --data and one for the runs with --runs; --quick needs none")
    return options


def main() -> None:
    options, started = parse(), time.perf_counter()
    here = provenance("scikit-learn", "scipy", "triton")
    before: dict[str, Any] = {"rows": [], "seconds": 0.0}
    if options.out and options.out.exists():
        before = json.loads(options.out.read_text())
    rows: dict[str, dict[str, Any]] = {row["model"]: row for row in before["rows"]}
    with tempfile.TemporaryDirectory() as temporary:
        runs = options.runs or Path(temporary)
        train, test = open_data(options.data) if options.data else (open_source(Patterns(n, n)) for n in (300, 100))
        print(f"{len(train)} training images, {len(test)} test images", flush=True)
        for model in [options.only] if options.only else MODELS:
            row = measure(model, runs / model, train, test, options)
            rows[model] = {**row, **{key: here[key] for key in ("command", "commit", "hardware")}}
            if options.out:
                report = {
                    **here,
                    "seconds": round(before["seconds"] + time.perf_counter() - started, 1),
                    "knn": {"neighbours": NEIGHBOURS, "temperature": TEMPERATURE},
                    "linear": {"penalties": QUICK_PENALTIES if options.quick else PENALTIES, "folds": FOLDS},
                    "published": PUBLISHED,
                    "rows": [rows[name] for name in MODELS if name in rows],
                }
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
