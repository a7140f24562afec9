"""Time, recall, build time and size on disk of an index's stores: exact, LanceDB and Qdrant.

    uv run python benchmarks/search.py --run RUN --photos DATA --out search.json

RUN has the spaces content, spatial and appearance. The vectors are those of the photographs of DATA (several folders
or Parquet files), and where more rows are asked for, of random views of them as in training. Queries are photographs
of DATA that the index does not hold. Without a run the vectors are synthetic: three spaces of 128 dimensions, unit
vectors around the centres of 2,000 classes, with variances that decrease as in trained embeddings, and a query is the
vector of an image of the index with noise.

Recall is the share of the 20 largest scores, computed in float64 from the stored vectors, that a search returns. Qdrant
is measured without a server: by its engine (the package qdrant-edge-py) in this process, with the graph and the search
settings that the store asks a server for. What a server adds, the network above all, is not in its times. A store whose
package is not installed is left out.
"""

import argparse
import json
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unweave as uw
from unweave.data import load_images, open_source
from unweave.inference import SpacesModel
from unweave.inference.embed import encode
from unweave.provenance import provenance, without_folders
from unweave.search import Index
from unweave.search.files import IndexFiles, Manifest
from unweave.search.geometry import FITTED, Geometry
from unweave.search.ready import make_ready
from unweave.search.stores import qdrant
from unweave.training.run_folder import RunFolder

SPACES = ("content", "spatial", "appearance")
WEIGHTS = (
    {"content": 1.0},
    {"content": 1.0, "appearance": 1.0},
    {"content": 1.0, "appearance": -0.3},
    {"content": 1.0, "spatial": 1.0, "appearance": -0.3},
)
PACKAGES = {"lance": "lancedb", "qdrant": "qdrant_edge"}
QDRANT_ROWS = 100_000
"""At most so many rows are given to Qdrant: its graph of 100,000 takes minutes on two cores."""
CHECKED_ROWS = 100_000
"""Up to this number of rows the true answer of every query is computed, above it of ten."""
BLOCK = 20_000
K = 20
BATCH = 512
"""Images that pass through the network at a time."""
Query = dict[str, np.ndarray]
"""A unit vector for each space."""
Truth = dict[tuple[int, ...], set[int]]
"""The right answers by number of rows, mix and query."""


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


def embed_photographs(
    run: Path, photos: list[str], rows: int, queries: int
) -> tuple[dict[str, np.ndarray], list[Query]]:
    """Vectors of an index of so many photographs, or of views of them, and of the photographs that are queries."""
    model, views = uw.load(run), RunFolder(run).load_views()
    images = torch.cat([load_images(open_source(name), model.size, cache="ram").images for name in photos])
    generator = torch.Generator().manual_seed(0)
    images = images[torch.randperm(len(images), generator=generator)]
    asked, images = images[:queries], images[queries:]
    fitted = [_features(model, batch) for batch in images[:FITTED].split(BATCH)]
    geometry = Geometry.fit({space: torch.cat([part[space] for part in fitted]) for space in SPACES})
    parts = [_vectors(geometry, _features(model, batch)) for batch in images[:rows].split(BATCH)]
    made = min(rows, len(images))
    while made < rows:
        for batch in images[: rows - made].split(BATCH):
            views_of = views.without_groups()(batch, generator=generator).a
            parts.append(_vectors(geometry, _features(model, views_of, prepared=True)))
            made += len(batch)
    vectors = {space: np.concatenate([part[space] for part in parts]) for space in SPACES}
    found = _vectors(geometry, _features(model, asked))
    return vectors, [{space: z[i].astype(np.float32) for space, z in found.items()} for i in range(queries)]


def _features(model: SpacesModel, images: torch.Tensor, *, prepared: bool = False) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        found = model.encoder(images) if prepared else encode(model, images)
    return {space: found[space].float() for space in SPACES}


def _vectors(geometry: Geometry, features: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {space: geometry.vectors(space, z).numpy().astype(np.float16) for space, z in features.items()}


class QdrantEngine:
    """Qdrant's engine in this process, as a store; its graph has the settings of ``QdrantStore``.

    Args:
        folder: for the files.
        dim: the length of a vector.
        least: kilobytes of vectors from which there is a graph; None for Qdrant's own.
    """

    def __init__(self, folder: Path, dim: int, least: int | None = None) -> None:
        import qdrant_edge

        self._engine = qdrant_edge
        folder.mkdir()
        vectors = qdrant_edge.EdgeVectorParams(size=dim, distance=qdrant_edge.Distance.Dot, on_disk=True)
        graph = qdrant_edge.HnswIndexConfig(
            m=qdrant.LINKS, ef_construct=qdrant.BUILD_WIDTH, full_scan_threshold=10_000 if least is None else least
        )
        optimizers = qdrant_edge.EdgeOptimizersConfig(indexing_threshold=least)
        config = qdrant_edge.EdgeConfig(vectors=vectors, hnsw_config=graph, optimizers=optimizers)
        self._shard = qdrant_edge.EdgeShard.create(str(folder), config)

    @property
    def in_graph(self) -> int:
        """The number of vectors in a graph."""
        return int(self._shard.info().indexed_vectors_count)

    def connect(self) -> None:
        """Nothing: there is no server."""

    def add(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Adds vectors (n, d)."""
        for start in range(0, len(ids), qdrant.BATCH):
            part = slice(start, start + qdrant.BATCH)
            points = zip(ids[part].tolist(), vectors[part].tolist(), strict=True)
            self._update("upsert_points", [self._engine.Point(number, vector) for number, vector in points])

    def delete(self, ids: np.ndarray) -> None:
        """Removes vectors."""
        self._update("delete_points", ids.tolist())

    def build(self) -> None:
        """Makes the graph, which a server does by itself."""
        while self._shard.optimize():
            pass

    def query(self, vector: np.ndarray, k: int) -> np.ndarray:
        """The ids of the k nearest."""
        nearest = self._engine.Query.Nearest(vector.astype(float).tolist())
        settings = self._engine.SearchParams(hnsw_ef=qdrant.search_width(k))
        found = self._shard.search(self._engine.SearchRequest(query=nearest, limit=k, params=settings))
        return np.array([point.id for point in found], np.int64)

    def close(self) -> None:
        """Releases the files."""
        self._shard.close()

    def _update(self, operation: str, argument: list[Any]) -> None:
        self._shard.update(getattr(self._engine.UpdateOperation, operation)(argument))


def build(folder: Path, store: str, vectors: dict[str, np.ndarray]) -> float:
    """Writes an index without images; returns the seconds that the store took."""
    files = IndexFiles(folder)
    manifest = Manifest(
        run={"identity": "", "path": None},
        spaces={space: z.shape[1] for space, z in vectors.items()},
        store={"name": "exact" if store == "qdrant" else store},
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


def use_engine(index: Index, folder: Path, least: int | None = None) -> float:
    """Lets Qdrant's engine answer the queries of an index; returns the seconds that it took to add its vectors."""
    started = time.perf_counter()
    z = [index.vectors(space) for space in index.spaces]
    engine = QdrantEngine(folder, sum(part.shape[1] for part in z), least)
    for start in range(0, len(index), BLOCK):
        ids = np.arange(start, min(start + BLOCK, len(index)))
        engine.add(ids, np.concatenate([part[ids].astype(np.float32) for part in z], 1))
    engine.build()
    index._store = engine
    return time.perf_counter() - started


def make_queries(vectors: dict[str, np.ndarray], count: int) -> list[Query]:
    random = np.random.default_rng(7)
    rows = random.integers(0, len(vectors["content"]), count)
    noisy = {
        s: z[rows].astype(np.float32) + 0.03 * random.standard_normal((count, z.shape[1])) for s, z in vectors.items()
    }
    return [{space: z[i] / np.linalg.norm(z[i]) for space, z in noisy.items()} for i in range(count)]


def true_rows(index: Index, query: Query, weights: dict[str, float]) -> np.ndarray:
    """The rows with the largest scores, in float64."""
    scores = np.zeros(len(index))
    for space, weight in weights.items():
        z = index.vectors(space)
        for start in range(0, len(z), BLOCK):
            part = slice(start, start + BLOCK)
            scores[part] += weight / index.spread[space] * (z[part].astype(np.float64) @ query[space])
    return np.argsort(-scores, kind="stable")[:K]


def measure(index: Index, queries: list[Query], checked: int, truth: Truth) -> list[dict[str, Any]]:
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
    parser.add_argument("--run", type=Path, help="a run with the spaces content, spatial and appearance")
    parser.add_argument("--photos", nargs="+", help="what it embeds: folders or Parquet files; needs --run")
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="few rows and queries, as a test")
    options = parser.parse_args()
    if (options.run is None) != (options.photos is None):
        raise SystemExit("--run and --photos need each other")
    started = time.perf_counter()
    rows: list[dict[str, Any]] = []
    truth: Truth = {}
    sizes, count = ([300], 2) if options.quick else (options.rows, options.queries)
    about: dict[str, object] = {"vectors": "synthetic"}
    if options.run is not None:
        every, queries = embed_photographs(options.run, options.photos, max(sizes), count)
        config = without_folders(RunFolder(options.run).load_config())
        settings = {"name": options.run.resolve().name, "config": config}
        about = {"vectors": "of photographs", "run": settings, "photos": without_folders(options.photos)}
    for n in sizes:
        if options.run is not None:
            vectors = {space: z[:n] for space, z in every.items()}
        else:
            dim = 8 if options.quick else 128
            vectors = {space: make_vectors(n, dim, seed) for seed, space in enumerate(SPACES)}
        for store in ("exact", "lance", "qdrant"):
            if store in PACKAGES and find_spec(PACKAGES[store]) is None:
                print(f"{store}: {PACKAGES[store]} is not installed", flush=True)
                continue
            used = vectors if store != "qdrant" else {space: z[:QDRANT_ROWS] for space, z in vectors.items()}
            if any((row["store"], row["rows"]) == (store, len(used["content"])) for row in rows):
                continue
            asked = make_queries(used, count) if options.run is None else queries
            row = measure_store(store, used, asked, count if n <= CHECKED_ROWS else min(count, 10), truth)
            rows.append(row)
            said = ", ".join(f"{a['milliseconds']:.0f} ms (recall {a['recall']:.3f})" for a in row["queries"])
            print(f"{store}, {row['rows']:,} rows: {said}; built in {row['build_seconds']:.0f} s", flush=True)
            report = {**provenance("lancedb", "qdrant-edge-py"), "seconds": 0.0, "settings": about, "rows": rows}
            report["seconds"] = round(time.perf_counter() - started, 1)
            if options.out:
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(json.dumps(report, indent=1) + "\n")


def measure_store(
    store: str, vectors: dict[str, np.ndarray], queries: list[Query], checked: int, truth: Truth
) -> dict[str, Any]:
    """Builds an index of the vectors with a store and measures it."""
    with tempfile.TemporaryDirectory() as folder:
        built = build(Path(folder), store, vectors)
        index = Index.open(folder)
        if store == "qdrant":
            built += use_engine(index, Path(folder) / "qdrant")
        size = {"build_seconds": round(built, 2), "megabytes": round(size_on_disk(Path(folder)) / 1e6, 1)}
        dimensions = sum(z.shape[1] for z in vectors.values())
        about = {"store": store, "rows": len(index), "dimensions": dimensions, **size}
        answers = measure(index, queries, checked, truth)
        index.close()
    return {**about, "queries": answers}


if __name__ == "__main__":
    main()
