"""The search over 45 penalties and 5 folds, beside scikit-learn on the same features.

    python benchmarks/probes.py --data TASKS --out results/benchmarks/probes.json
    python benchmarks/probes.py --data TASKS --out results/benchmarks/probes.json --device cuda   # adds rows

TASKS is a folder with the tasks' folders. The features are those of a run (--run), or of a ResNet-18 with random
weights. Both libraries have the features in float32. The time of unweave is that of the clock. scikit-learn is timed as
favourably as possible: each fit on one thread, in processor time, and the sum divided by the number of cores, as if its
fits ran side by side without loss. Where that would take longer than --patience seconds, some penalties, evenly spaced,
are timed on one fold, and the time of the search is estimated from them; the row says so.
The score of scikit-learn is that of a fit of its own in float64 with a tolerance of 1e-6, which is not timed. With
--device cuda only unweave is measured, and compared with the time of scikit-learn in the file.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unweave as uw
import unweave.augment as A
from unweave.data.resources import cores
from unweave.data.tasks import TASKS, Task, open_tasks
from unweave.evaluation import PENALTIES, LinearProbe, as_targets
from unweave.evaluation.targets import assign_folds
from unweave.inference import SpacesModel, compute_features
from unweave.provenance import provenance

FOLDERS = {"flowers": "flowers102", "dtd": "dtd10", "cub-class": "cub200", "cub-box": "cub200"}
CASES = ("dtd", "pets", "flowers", "caltech101", "cifar10", "cub-box", "cub-class")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ITERATIONS = 1000
"""At most, for scikit-learn; its default of 100 stops far from the optimum."""
EXACT = {"tol": 1e-6, "max_iter": 10_000}
"""Of scikit-learn's fit whose score is compared."""

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def features_of(task: Task, model: SpacesModel, cache: Path | None, workers: int | None) -> Split:
    """h and labels, to fit and to test."""
    found: list[np.ndarray] = []
    for part in (task.fit, task.test):
        assert part is not None
        computed = compute_features(model, part.source, cache=cache, workers=workers)
        found += [computed.features["h"].numpy(), part.targets(model.size, computed.rows)]
    return found[0], found[1], found[2], found[3]


def tiny() -> Split:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 90)
    x = (rng.standard_normal((90, 8)) + 2 * np.eye(8)[y]).astype(np.float32)
    return x[:60], y[:60], x[60:], y[60:]


def of_unweave(split: Split, metric: str, device: str, penalties: tuple[float, ...]) -> dict[str, Any]:
    x, y, x_test, y_test = split
    if device == "cuda":  # the first use of a device is slow
        LinearProbe(penalties=penalties[:2], device=device).fit(x[:200], y[:200])
        torch.cuda.synchronize()
    started = time.perf_counter()
    probe = LinearProbe(metric=metric, penalties=penalties, device=device).fit(x, y)  # type: ignore[arg-type]
    seconds = time.perf_counter() - started
    return {"seconds": round(seconds, 3), "score": round(probe.score(x_test, y_test), 4), "penalty": probe.penalty}


def of_scikit_learn(
    split: Split, metric: str, penalties: tuple[float, ...], chosen: float, patience: float
) -> dict[str, Any]:
    """Seconds of the whole search with the default tolerance, and the score with the penalty that unweave chose."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.metrics import balanced_accuracy_score, r2_score
    from threadpoolctl import threadpool_limits

    x, y, x_test, y_test = split
    targets = as_targets(y)
    folds = assign_folds(targets, 5, 0).numpy()
    regression = targets.kind == "regression"

    def fit(penalty: float, rows: np.ndarray, x: np.ndarray = x, **settings: Any) -> tuple[Any, float]:
        settings = {"max_iter": ITERATIONS, **settings}
        model: Any = Ridge(alpha=penalty) if regression else LogisticRegression(C=1 / penalty, **settings)
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # of fits that do not converge
            started = time.process_time()
            model.fit(x[rows], y[rows])
            if not rows.all():
                model.score(x[~rows], y[~rows])
            return model, time.process_time() - started

    everything = np.ones(len(x), dtype=bool)
    refit = fit(chosen, everything)[1]
    model = fit(chosen, everything, x.astype(np.float64), **EXACT)[0]
    predicted = model.predict(x_test)
    if metric == "r2":
        score = r2_score(y_test, predicted)
    else:
        score = (balanced_accuracy_score if metric == "mean_per_class" else _accuracy)(y_test, predicted)
    whole = 5 * len(penalties) * refit < patience  # a rough guess from one fit
    step = 1 if whole else max(1, len(penalties) // 5)
    timed = penalties[step // 2 :: step]
    tested = range(5) if whole else range(1)
    seconds = [fit(penalty, folds != fold)[1] for penalty in timed for fold in tested]
    total = refit + sum(seconds) * (5 * len(penalties)) / len(seconds) / cores()
    row: dict[str, Any] = {"seconds": round(total, 3), "score": round(float(score), 4), "penalty": chosen}
    row["timed"] = f"each fit on 1 thread, in processor time; the sum divided by {cores()} cores"
    if not whole:
        row["estimated_from"] = f"{len(timed)} of {len(penalties)} penalties, 1 of 5 folds"
        row["measured_seconds"] = round(sum(seconds) + refit, 3)
    return row


def _accuracy(true: np.ndarray, predicted: np.ndarray) -> float:
    return float((true == predicted).mean())


def measure(
    name: str, split: Split, metric: str, options: argparse.Namespace, before: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    device = options.device
    penalties = PENALTIES[::11] if options.quick else PENALTIES
    shared = {
        "problem": f"{name}, {len(penalties)} penalties × 5 folds", "metric": metric, "images": len(split[0]),
        "features": split[0].shape[1], "classes": 0 if metric == "r2" else len(np.unique(split[1])),
    }  # fmt: skip
    threads = torch.get_num_threads()
    ours = of_unweave(split, metric, device, penalties)
    rows = [{"library": "unweave", "device": device, "threads": threads, **shared, **ours}]
    if device == "cpu":
        theirs = of_scikit_learn(split, metric, penalties, ours["penalty"], options.patience)
        rows.append({"library": "scikit-learn", "device": device, **shared, **theirs})
    peers = [r for r in [*before, *rows] if (r["library"], r["problem"]) == ("scikit-learn", shared["problem"])]
    if peers:
        rows[0]["times_faster"] = round(peers[-1]["seconds"] / ours["seconds"], 1)
    for row in rows:
        print(row, flush=True)
    return rows


def wait_until_idle(share: float = 0.9, seconds: float = 8.0, limit: float = 60.0) -> None:
    """Returns when the processors were idle for most of some seconds, where Linux says so, or after ``limit``."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        counts = []
        for pause in (seconds, 0.0):
            try:
                counts.append([int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]])
            except OSError:
                return
            time.sleep(pause)
        spent = np.subtract(counts[1], counts[0])
        if (spent[3] + spent[4]) / max(1, spent[:8].sum()) > share:
            return


def random_model() -> SpacesModel:
    torch.manual_seed(0)
    return SpacesModel(uw.Encoder("resnet18", ("content",), dim=8), [A.Normalize(MEAN, STD)], (3, 64, 64))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--data", type=Path, help="folder of the tasks' folders")
    parser.add_argument("--run", type=Path, help="a run whose h is probed; by default a network with random weights")
    parser.add_argument("--features", type=Path, help="folder in which features are kept")
    parser.add_argument("--only", nargs="*", default=list(CASES), help=f"tasks, of {', '.join(TASKS)}")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--patience", type=float, default=150.0, help="seconds that scikit-learn may take for one task")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--wait", action="store_true", help="wait before each task until the machine is idle")
    parser.add_argument("--quick", action="store_true", help="a tiny problem on any device, as a test")
    options = parser.parse_args()
    if not options.quick and options.data is None:
        raise SystemExit("name the folder of the tasks with --data; --quick needs none")
    before = json.loads(options.out.read_text()) if options.out and options.out.exists() else {"rows": [], "seconds": 0}
    rows: list[dict[str, Any]] = before["rows"]
    started = time.perf_counter() - before["seconds"]
    done = {(row["problem"].split(",")[0], row["device"]) for row in rows if row["library"] == "unweave"}
    model = None if options.quick else uw.load(options.run) if options.run else random_model()
    here = provenance("scikit-learn", "scipy")
    for name in ["quick"] if options.quick else options.only:
        if (name, options.device) in done:
            print(name, "is already in", options.out, flush=True)
            continue
        metric = "accuracy"
        if model is None:
            split = tiny()
        else:
            (task,) = open_tasks(name, options.data / FOLDERS.get(name, name))
            metric, split = task.metric, features_of(task, model, options.features, options.workers)
        if options.wait:
            wait_until_idle()
        measured = measure(name, split, metric, options, rows)
        rows += [{**row, "hardware": here["hardware"], "commit": here["commit"]} for row in measured]
        if options.out:
            report = {**here, **{key: before[key] for key in here if key in before}}  # rows name their own machine
            report |= {"seconds": round(time.perf_counter() - started, 1), "rows": rows}
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
