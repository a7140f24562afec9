"""Time, recall, build time and size on disk of an index's stores: exact, LanceDB and Qdrant.

    uv run --extra lance --extra qdrant python benchmarks/search.py --out results/benchmarks/search.json

Three spaces of 128 dimensions: unit vectors around the centres of 2,000 classes, with variances that decrease as in
trained embeddings. A query is the vector of an image of the index with noise. Recall is the share of the 20 largest
scores, computed in float64 from the stored vectors, that a search returns. Qdrant is measured without a server,
with few rows: its files are made for tests, and each row is flushed to the disk by itself. A store whose package is not
installed is left out.
"""

import argparse
import json
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from unweave.provenance import provenance
from unweave.search import Index
from unweave.search.files import IndexFiles, Manifest
from unweave.search.ready import make_ready

SPACES = ("content", "spatial", "appearance")
WEIGHTS = (
    {"content": 1.0},
    {"content": 1.0, "appearance": 1.0},
    {"content": 1.0, "appearance": -0.3},
    {"content": 1.0, "spatial": 1.0, "appearance": -0.3},
)
PACKAGES = {"lance": "lancedb", "qdrant": "qdrant_client"}
QDRANT_ROWS = 2000
BLOCK = 20_000
K = 20


def make_vectors(rows: int, dim: int, seed: int) -> np.ndarray:
    """Unit vectors (rows, dim), float16."""
    random = np.random.default_rng(seed)
    scale = 1 / np.sqrt(1 + np.arange(dim, dtype=np.float32))
    centers = random.standard_normal((2000, dim), np.float32) * scale
    made = np.empty((rows, dim), np.float16)
    for start in range(0, rows, BLOCK):
        part = made[start : start + BLOCK]
        z = centers[random.integers(0, 2000, len(part))]
        z = z + 0.7 * random.standard_normal((len(part), dim), np.float32) * scale
        part[:] = z / np.linalg.norm(z, axis=1, keepdims=True)
    return made


def build(folder: Path, store: str, vectors: dict[str, np.ndarray]) -> float:
    """Writes an index without images; returns the seconds that the store took."""
    about = {"name": store} | ({"url": None, "collection": "benchmark"} if store == "qdrant" else {})
    files = IndexFiles(folder)
    manifest = Manifest(
        run={"identity": "", "path": None}, spaces={space: z.shape[1] for space, z in vectors.items()}, store=about
    )
    with files.writing():
        rows = len(next(iter(vectors.values())))
        for start in range(0, rows, BLOCK):
            part = {space: z[start : start + BLOCK] for space, z in vectors.items()}
            count = len(part["content"])
            names = [f"{start + i:07}.jpg" for i in range(count)]
            rest = {"label": [i % 100 for i in range(count)], "class_name": [None] * count, "file": [None] * count}
            manifest = files.append(manifest, {"path": names, **rest, "key": names}, part, [b"thumbnail"] * count)
        started = time.perf_counter()
        make_ready(files, manifest)
        return time.perf_counter() - started


def make_queries(vectors: dict[str, np.ndarray], count: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(7)
    rows = random.integers(0, len(vectors["content"]), count)
    noisy = {
        s: z[rows].astype(np.float32) + 0.03 * random.standard_normal((count, z.shape[1])) for s, z in vectors.items()
    }
    return [{space: z[i] / np.linalg.norm(z[i]) for space, z in noisy.items()} for i in range(count)]


def true_rows(index: Index, query: dict[str, np.ndarray], weights: dict[str, float]) -> np.ndarray:
    """The rows with the largest scores, in float64."""
    scores = np.zeros(len(index))
    for space, weight in weights.items():
        z = index.vectors(space)
        for start in range(0, len(z), BLOCK):
            part = slice(start, start + BLOCK)
            scores[part] += weight / index.spread[space] * (z[part].astype(np.float64) @ query[space])
    return np.argsort(-scores, kind="stable")[:K]


def measure(
    index: Index, queries: list[dict[str, np.ndarray]], checked: int, truth: dict[tuple[int, ...], set[int]]
) -> list[dict[str, object]]:
    """Milliseconds and recall for each weighting; ``truth`` keeps what other stores with the same rows need again."""
    found = []
    for mix, weights in enumerate(WEIGHTS):
        seconds, recalls = [], []
        index.search(queries[0], weights=weights, k=K)
        for number, query in enumerate(queries):
            started = time.perf_counter()
            hits = index.search(query, weights=weights, k=K)
            seconds.append(time.perf_counter() - started)
            if number < checked:
                key = (len(index), mix, number)
                if key not in truth:
                    truth[key] = {*true_rows(index, query, weights).tolist()}
                recalls.append(len({hit.row for hit in hits} & truth[key]) / K)
        median, high = np.quantile(seconds, [0.5, 0.95]) * 1000
        row = {"weights": weights, "milliseconds": round(median, 2), "milliseconds_p95": round(high, 2)}
        found.append({**row, "recall": round(float(np.mean(recalls)), 4)})
    return found


def size_on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="few rows and queries, as a test")
    options = parser.parse_args()
    started, rows, dim = time.perf_counter(), [], 8 if options.quick else 128
    truth: dict[tuple[int, ...], set[int]] = {}
    for n in [300] if options.quick else options.rows:
        vectors = {space: make_vectors(n, dim, seed) for seed, space in enumerate(SPACES)}
        for store in ("exact", "lance", "qdrant"):
            if store in PACKAGES and find_spec(PACKAGES[store]) is None:
                print(f"{store}: {PACKAGES[store]} is not installed", flush=True)
                continue
            used = vectors if store != "qdrant" else {space: z[:QDRANT_ROWS] for space, z in vectors.items()}
            count = len(used["content"])
            if any(row["store"] == store and row["rows"] == count for row in rows):
                continue
            with tempfile.TemporaryDirectory() as folder:
                built = build(Path(folder), store, used)
                index = Index.open(folder)
                queries = make_queries(used, 2 if options.quick else options.queries)
                about = {"store": store, "rows": count, "dimensions": dim * len(SPACES)}
                size = {"build_seconds": round(built, 2), "megabytes": round(size_on_disk(Path(folder)) / 1e6, 1)}
                answers = measure(index, queries, 2 if options.quick else 10, truth)
                index.close()
            rows.append({**about, **size, "queries": answers})
            said = ", ".join(f"{a['milliseconds']:.0f} ms (recall {a['recall']:.3f})" for a in answers)
            print(f"{store}, {count:,} rows: {said}; built in {built:.0f} s", flush=True)
            report = {**provenance("lancedb", "qdrant-client"), "seconds": 0.0, "rows": rows}
            report["seconds"] = round(time.perf_counter() - started, 1)
            if options.out:
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
