"""Response times of `unweave explore` under load: 20 users of one server with an index of 100,000 rows.

    uv run python benchmarks/explore.py --out results/benchmarks/explore.json

Three spaces of 128 dimensions. Each user selects an image (its neighbours in every space, and their mix), moves a
slider five times (a search with other weights for each), loads the thumbnails of the last answer's first row, and
begins again, with a pause between two requests. Users without a pause keep 20 requests waiting at any time. Server and
users run on the same machine.
"""

import argparse
import io
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

from unweave.provenance import provenance
from unweave.search.files import IndexFiles, Manifest
from unweave.search.ready import make_ready

SPACES = ("content", "appearance", "spatial")
BLOCK = 20_000
CLASSES = 100


def build(folder: Path, rows: int, dim: int) -> None:
    """An index of random unit vectors around the centres of classes, without image files."""
    generator = np.random.default_rng(0)
    centres = {space: generator.standard_normal((CLASSES, dim), np.float32) for space in SPACES}
    buffer = io.BytesIO()
    Image.effect_noise((128, 128), 60).convert("RGB").save(buffer, "JPEG")
    files = IndexFiles(folder)
    manifest = Manifest(run={"identity": "", "path": None}, spaces=dict.fromkeys(SPACES, dim), store={"name": "exact"})
    with files.writing():
        for start in range(0, rows, BLOCK):
            count = min(BLOCK, rows - start)
            labels = generator.integers(0, CLASSES, count)
            vectors = {}
            for space in SPACES:
                z = centres[space][labels] + generator.standard_normal((count, dim), np.float32)
                vectors[space] = z / np.linalg.norm(z, axis=1, keepdims=True)
            names = [f"{start + i:07}.jpg" for i in range(count)]
            about = {"path": names, "label": labels, "class_name": [f"class {i}" for i in labels], "key": names}
            manifest = files.append(manifest, {**about, "file": [None] * count}, vectors, [buffer.getvalue()] * count)
        make_ready(files, manifest)


class User(threading.Thread):
    """One browser: its requests follow each other."""

    def __init__(self, address: str, rows: int, seed: int, pause: float, until: float) -> None:
        super().__init__(daemon=True)
        self.connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
        self.random, self.rows, self.pause, self.until = random.Random(seed), rows, pause, until
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.failures = 0

    def run(self) -> None:
        """Selects images and moves sliders until time is up."""
        time.sleep(self.random.random() * self.pause)
        while time.monotonic() < self.until:
            query: dict[str, Any] = {"query": {"row": self.random.randrange(self.rows)}, "k": 24}
            self._post("columns", query)
            hits = []
            for _ in range(5):
                weights = {space: self.random.choice((-1, 1)) * self.random.random() for space in SPACES}
                hits = self._post("search", {**query, "weights": weights}).get("hits", [])
            for hit in hits[:6]:
                self._timed("thumbnail", "GET", f"/thumbnail/{hit['row']}", None)

    def _post(self, name: str, request: dict) -> dict:
        if time.monotonic() > self.until:
            return {}
        answer = json.loads(self._timed(name, "POST", f"/api/{name}", json.dumps(request)))
        time.sleep(self.pause)
        return answer

    def _timed(self, name: str, method: str, path: str, body: str | None) -> bytes:
        started = time.perf_counter()
        self.connection.request(method, path, body)
        response = self.connection.getresponse()
        content = response.read()
        self.seconds[name].append(time.perf_counter() - started)
        self.failures += response.status != 200
        return content


def measure(address: str, rows: int, users: int, pause: float, seconds: float) -> dict:
    until = time.monotonic() + seconds
    crowd = [User(address, rows, seed, pause, until) for seed in range(users)]
    for user in crowd:
        user.start()
    for user in crowd:
        user.join()
    row: dict = {"users": users, "rows": rows, "pause_seconds": pause, "failures": sum(u.failures for u in crowd)}
    for name in ("columns", "search", "thumbnail"):
        times = np.array([t for user in crowd for t in user.seconds[name]])
        if not len(times):
            continue
        p50, p95 = np.quantile(times, [0.5, 0.95]).tolist()
        row[name] = {"requests": len(times), "p50_ms": round(p50 * 1e3, 1), "p95_ms": round(p95 * 1e3, 1)}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="a small index and two users for a second, as a test")
    options = parser.parse_args()
    started = time.perf_counter()
    rows, dim, users, seconds = (2_000, 16, 2, 1.0) if options.quick else (100_000, 128, 20, 20.0)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        build(index, rows, dim)
        command = [sys.executable, "-m", "unweave", "explore", str(index), "--port", "0", "--map", "pca"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            measure(address, rows, 1, 0.0, 1.0)  # files are read for the first time
            for pause in (0.0,) if options.quick else (1.0, 0.0):
                found.append(measure(address, rows, users, pause, seconds))
                print(found[-1], flush=True)
        finally:
            server.terminate()
            server.wait(20)
    report = {**provenance("starlette", "uvicorn"), "seconds": round(time.perf_counter() - started, 1), "rows": found}
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
