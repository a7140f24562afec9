"""``unweave probe``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from unweave.data.tasks import Task


def probe(
    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None,
    data: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = (),
    /,
    *,
    embeddings: Path | None = None,
    factors: tuple[str, ...] = (),
    out: Path | None = None,
    kind: Literal["auto", "classes", "multilabel", "regression"] = "auto",
    metric: Literal["auto", "accuracy", "mean_per_class", "map", "r2"] = "auto",
    knn: bool = True,
    folds: int = 5,
    test_fraction: float = 0.2,
    seed: int = 0,
    root: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    batch_size: int = 256,
    workers: int | None = None,
    max_bad: float = 0.01,
    keep_features: bool = True,
    device: str = "auto",
) -> None:
    """Score what can be predicted from h, from z (all spaces side by side) and from each space.

    Linear probes as in the paper, with an L2 penalty chosen among 45 by cross-validation, and nearest neighbours.
    Prints a table and writes probe.json.

    Args:
        run: Folder of a run or of an export.
        data: Labelled images, one or more: a folder of classes, perhaps in train and test; Parquet files; a CSV file of
            paths and labels; or TASK=PATH, such as dtd=/data/dtd, for aircraft, caltech101, cars, cifar10, cifar100,
            cub (cub-class, cub-box, cub-keypoints), dtd, flowers, pets, sun397, voc2007 with their official splits.
        embeddings: In place of RUN and DATA, a Parquet file with columns of embeddings and a label, as `unweave embed`
            writes it. A column named split, of train and test, is used.
        factors: Columns of known factors in the embeddings or in DATA: adds the table of spaces × factors, DCI and MCC.
        out: The JSON file; by default RUN/probe.json, or probe.json here.
        kind: What the labels are; by default that of the task. Texts and whole numbers are classes, a matrix of 1 and 0
            has several labels for each image, other numbers are a regression.
        metric: By default that of the task, otherwise accuracy, map or r2.
        knn: Score nearest neighbours too.
        folds: Of the cross-validation.
        test_fraction: Part of the images to test where the data have no split.
        seed: Of the folds and of that part.
        root: Folder of a torchvision data set, if DATA is its name.
        image_column: Parquet column of the images, if there are several.
        label_column: Column of the labels.
        batch_size: Images that pass through the network at a time.
        workers: Processes that decode images; one for each core by default.
        max_bad: Fraction of the images that may be unreadable.
        keep_features: Keep features in RUN/features, for the next probe of the same model and images.
        device: cpu, cuda, …; auto uses what is available.
    """
    from unweave.errors import UnweaveError

    if (embeddings is None) == (run is None):
        raise UnweaveError("give RUN and DATA, or `embeddings`")
    if run is not None and not data:
        raise UnweaveError(f"name labelled images after {run}, such as photos/ or dtd=/data/dtd")
    _check(data, root)
    import json
    import time

    import torch

    from unweave.files import write_text
    from unweave.inference.probing import averages
    from unweave.provenance import provenance

    started = time.perf_counter()
    device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    settings = {
        "kind": kind, "metric": metric, "knn": knn, "folds": folds, "test_fraction": test_fraction, "seed": seed,
        "device": device,
    }  # fmt: skip
    rows: list[dict[str, Any]] = []
    found: dict[str, Any] | None = None
    if embeddings is not None:
        rows, found = _probe_embeddings(embeddings, label_column, factors, settings)
    else:
        columns = {"root": root, "image_column": image_column, "label_column": label_column}
        options = {"batch_size": batch_size, "workers": workers, "max_bad": max_bad, "device": device}
        tasks = [task for item in data for task in _open(item, columns)]
        rows, found = _probe_run(Path(str(run)), tasks, factors, data, settings, options, keep_features)
    for line in table_lines(rows):
        print(line)
    report: dict[str, Any] = {
        **provenance("scikit-learn"),
        "settings": settings,
        "seconds": round(time.perf_counter() - started, 2),
        "rows": rows,
    }  # fmt: skip
    if len(rows) > 1:
        report["averages"] = averages(rows)
    if found is not None:
        report["factors"] = found
        for line in factor_lines(found):
            print(line)
    file = out or (Path("probe.json") if run is None else run / "probe.json")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise UnweaveError(f"cannot write {file}: {error.strerror or error}; choose another `out`") from None
    print(f"written: {file}")


def split_task(item: str) -> tuple[str | None, str]:
    """The name of a task and its path, from TASK=PATH; without a name where the text is a path itself."""
    name, separator, path = item.partition("=")
    return (name, path) if separator and not Path(item).exists() else (None, item)


def _check(data: tuple[str, ...], root: str | None) -> None:
    """Raises where DATA names nothing, before torch is imported."""
    from unweave.data.sources import check_exists

    for item in data:
        name, path = split_task(item)
        check_exists(path, None if name else root)


def _open(item: str, columns: dict[str, Any]) -> "list[Task]":
    from unweave.data.tasks import open_labelled, open_tasks

    name, path = split_task(item)
    return [open_labelled(path, **columns)] if name is None else open_tasks(name, path)


def _probe_run(
    run: Path,
    tasks: "list[Task]",
    factors: tuple[str, ...],
    data: tuple[str, ...],
    settings: dict[str, Any],
    options: dict[str, Any],
    keep_features: bool,
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    from unweave.console import ProgressBar
    from unweave.data.tasks import TaskPart
    from unweave.errors import UnweaveError
    from unweave.inference import load
    from unweave.inference.embedding_files import read_factors
    from unweave.inference.features import ImageFeatures, compute_features
    from unweave.inference.probing import probe_task, score_factors

    if factors and (len(data) != 1 or tasks[0].test is not None):
        raise UnweaveError("`factors` are columns of one Parquet or CSV file: name that file alone as DATA")
    known = read_factors(data[0], factors) if factors else {}
    model = load(run)
    computed: dict[int, ImageFeatures] = {}

    def compute(part: TaskPart) -> ImageFeatures:
        if id(part.source) not in computed:  # the tasks of CUB share their images
            with ProgressBar(len(part.source), 0, "features", show=True, step="image") as bar:
                cache = run / "features" if keep_features else None
                computed[id(part.source)] = compute_features(
                    model, part.source, cache=cache, on_progress=bar.advance, **options
                )
        return computed[id(part.source)]

    rows = []
    for task in tasks:
        compute(task.fit)
        if task.test is not None:
            compute(task.test)
        spaces = 1 + len(model.spaces) + (len(model.spaces) > 1)
        with ProgressBar(45 * spaces, 0, f"probing {task.name}", show=True, step="penalty") as bar:
            scores = probe_task(task, model.size, compute, on_progress=bar.advance, **settings)
        rows.append({"task": task.name, "group": task.group, **scores.as_dict()})
    if not factors:
        return rows, None
    features = compute(tasks[0].fit)
    if len({len(tasks[0].fit.source), *map(len, known.values())}) != 1:
        raise UnweaveError(f"`factors`: some images of {data[0]} have no label, and their factors cannot be matched")
    return rows, score_factors(
        features.features, {name: x[features.rows] for name, x in known.items()}, seed=settings["seed"]
    )


def _probe_embeddings(
    file: Path, label_column: str | None, factors: tuple[str, ...], settings: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    from unweave.console import ProgressBar
    from unweave.inference.embedding_files import read_embeddings
    from unweave.inference.probing import probe_table, score_factors, with_all_spaces

    table = read_embeddings(file, label_column=label_column, factors=factors)
    rows: list[dict[str, Any]] = []
    if table.labels is not None or not factors:
        with ProgressBar(45 * len(with_all_spaces(table.spaces)), 0, "probing", show=True, step="penalty") as bar:
            scores = probe_table(table, on_progress=bar.advance, **settings)
        rows.append({"task": file.stem, "group": None, **scores.as_dict()})
    return rows, score_factors(table.spaces, table.factors, seed=settings["seed"]) if factors else None


def table_lines(rows: list[dict[str, Any]]) -> list[str]:
    """The scores as a table of tasks and spaces, in percent."""
    if not rows:
        return []
    spaces = list(rows[0]["linear"])
    width = max(14, *(len(row["task"]) + 2 for row in rows))
    lines = []
    for kind, title in (("linear", "linear, %"), ("knn", "kNN, %")):
        if not rows[0][kind]:
            continue
        lines.append(f"{title:{width}}{'metric':15}{'chance':>8}" + "".join(f"{s:>{_wide(s)}}" for s in spaces))
        for row in rows:
            scores = "".join(f"{100 * row[kind][space]:>{_wide(space)}.1f}" for space in spaces)
            lines.append(f"{row['task']:{width}}{row['metric']:15}{100 * row['chance']:>8.1f}{scores}")
        lines.append("")
    images = ", ".join(f"{row['task']} {row['fit']:,} to fit and {row['test']:,} to test" for row in rows)
    return [*lines, f"images: {images}"]


def factor_lines(found: dict[str, Any]) -> list[str]:
    """The table of spaces × factors, with DCI and MCC."""
    factors = found["factors"]
    width = max(14, *(len(space) + 2 for space in found["spaces"]))
    lines = ["", f"{'factors':{width}}" + "".join(f"{f:>{_wide(f)}}" for f in factors)]
    for space, scores in [*found["scores"].items(), ("chance", found["chance"])]:
        lines.append(f"{space:{width}}" + "".join(f"{scores[f]:>{_wide(f)}.3f}" for f in factors))
    if dci := found.get("dci"):
        names = ("disentanglement", "completeness", "informativeness")
        lines.append("DCI: " + ", ".join(f"{name} {dci[name]:.3f}" for name in names))
    if "mcc" in found:
        lines.append(f"MCC: {found['mcc']:.3f}")
    return lines


def _wide(name: str) -> int:
    return max(9, len(name) + 2)
