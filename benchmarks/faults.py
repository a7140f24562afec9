"""Faults that a run must survive: killed processes, damaged files, hostile names, wrong flags.

    uv run python benchmarks/faults.py --out results/benchmarks/faults.json

Each campaign repeats one kind of fault at random places and counts its outcomes. What must never happen is counted as
``failures``: another result than without the fault, a traceback, or a file that is wrong without a message.
"""

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from unweave.cli.main import main as unweave
from unweave.data import load_images, open_source
from unweave.data.unreadable import UnreadableImages
from unweave.errors import UnweaveError
from unweave.inference import load
from unweave.provenance import provenance
from unweave.training import load_checkpoint

SMALL = (
    "--backbone", "test_convnext", "--size", "32", "--decode-size", "40", "--dim", "8", "--hidden", "16", "--depth",
    "1", "--batch-size", "12", "--workers", "0", "--log-every", "1", "--accelerator", "cpu", "--threads", "1",
    "--probe", "none", "--checkpoint-every", "3",
)  # fmt: skip
NAMES = (
    "[/b].png", "[red]x.png", "tab\there.png", "line\nbreak.png", "quote'\".png", "a,b;c.png", "ü—漢字.png", " .png",
    "-n.png", "%s{0}$HOME.png", "back\\slash.png", os.fsdecode(b"\xff\xfe.png"), "e\u0301.png", "\u00e9.png",
    "a" * 240 + ".png",
)  # fmt: skip
FLAGS = (
    "--lr nan", "--lr -1", "--lr 1e38", "--epochs nan", "--batch-size 0", "--batch-size 1", "--batch-size 100000",
    "--seed 99999999999999999999", "--seed -1", "--hidden 99999999999", "--dim 0", "--size 0", "--workers -1",
    "--threads 0", "--accelerator nope", "--accelerator cuda", "--devices 0", "--max-bad nan", "--max-bad 2",
    "--temperature 0", "--backbone nope", "--styles nope", "--styles color color", "--jitter 0 0 0 9", "--init nope",
    "--cache gpu", "--precision 8", "--crop-scale 0", "--mean 1", "--channels 0", "--max-pixels 0", "--root /nowhere",
    "--config /dev/null/x", "--preset nope", "--tolerance nan", "--lambda-lr inf", "--log-every 0", "--clip -1",
)  # fmt: skip
"""Flags that ``unweave train`` must refuse or survive, each in one line."""

Outcome = str
GOOD = ("same weights", "loaded", "refused", "decoded", "unreadable", "complete")


def make_photos(folder: Path, count: int = 48) -> Path:
    """Random images of several formats in two classes."""
    source = np.random.default_rng(0)
    for i in range(count):
        pixels = source.integers(0, 256, (12, 12, 3), dtype=np.uint8)
        target = folder / "ab"[i % 2] / f"{i:03}.{('jpg', 'png', 'webp')[i % 3]}"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).resize((64, 56)).save(target)
    return folder


def mutated(content: bytes, chance: random.Random) -> bytes:
    """A copy with flipped bits, overwritten bytes, a part removed or repeated, or a shorter one."""
    changed = bytearray(content)
    kind = chance.choice(("bits", "bytes", "cut", "repeat", "end", "zeros"))
    place = chance.randrange(max(1, len(changed)))
    span = chance.choice((1, 4, 64, 1024))
    if kind == "bits":
        for _ in range(chance.choice((1, 3))):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    elif kind == "bytes":
        changed[place : place + span] = chance.randbytes(len(changed[place : place + span]))
    elif kind == "cut":
        del changed[place : place + span]
    elif kind == "repeat":
        changed[place:place] = changed[place : place + span]
    elif kind == "zeros":
        changed[place : place + span] = bytes(len(changed[place : place + span]))
    else:
        del changed[place:]
    return bytes(changed)


def in_child(arguments: list[str], log: Path, kill: tuple[float, int] | None = None) -> int:
    """``unweave`` in another process, which gets a signal after some seconds; returns its exit status."""
    child = multiprocessing.get_context("forkserver").Process(target=_command, args=(arguments, log))
    child.start()
    if kill is not None:
        child.join(kill[0])
        if child.exitcode is None:
            os.kill(child.pid, kill[1])
    child.join(300)
    if child.exitcode is None:
        child.kill()
        child.join()
        return -1
    return child.exitcode


def _command(arguments: list[str], log: Path) -> None:
    with (
        open(log, "w", errors="backslashreplace") as file,
        contextlib.redirect_stderr(file),
        contextlib.redirect_stdout(file),
    ):
        torch.set_num_threads(1)
        try:
            status = unweave(arguments)
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 2
        except BaseException:
            traceback.print_exc()
            status = 1
        file.flush()
    os._exit(status)


def same_weights(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(run / "checkpoint.safetensors", only=("encoder",))["encoder"]


class Campaigns:
    """A folder of images, an uninterrupted run on it, and the campaigns."""

    def __init__(self, folder: Path, seed: int, epochs: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.photos = make_photos(folder / "photos")
        self.settings = [*SMALL, "--epochs", str(epochs)]
        self.reference = folder / "reference"
        started = time.perf_counter()
        status = in_child(self.train(self.reference), folder / "log")
        if status != 0:
            raise RuntimeError((folder / "log").read_text())
        self.seconds = time.perf_counter() - started
        self.expected = weights(self.reference)

    def train(self, out: Path, *more: str) -> list[str]:
        """The words of the command."""
        return ["train", str(self.photos), "--out", str(out), *self.settings, *more]

    def _interrupted(self, number: int, sent: int) -> tuple[Outcome, int]:
        """A run that is signalled again and again at random moments until it finishes."""
        out, signals = self.folder / f"signalled-{number}", 0
        for _ in range(60):
            more = ["--cache", self.chance.choice(("none", "ram"))]
            moment = self.chance.uniform(0, self.seconds)
            status = in_child(self.train(out, *more), self.folder / "log", (moment, sent))
            if status == 0:
                outcome = "same weights" if same_weights(weights(out), self.expected) else "other weights"
                shutil.rmtree(out)
                return outcome, signals
            signals += 1
            if status not in (-sent, 128 + sent):
                return f"exit {status}", signals
            if "Traceback" in (self.folder / "log").read_text():
                return "traceback", signals
        return "never finished", signals

    def kills(self, trials: int) -> Iterator[tuple[Outcome, int]]:
        """SIGKILL at random moments; ``trials`` counts kills."""
        yield from self._signals(trials, signal.SIGKILL)

    def terminations(self, trials: int) -> Iterator[tuple[Outcome, int]]:
        """SIGTERM at random moments."""
        yield from self._signals(trials, signal.SIGTERM)

    def _signals(self, trials: int, sent: int) -> Iterator[tuple[Outcome, int]]:
        number = 0
        while trials > 0:
            outcome, sends = self._interrupted(number, sent)
            yield outcome, max(1, sends)
            trials, number = trials - max(1, sends), number + 1

    def images(self, trials: int) -> Iterator[tuple[Outcome, int]]:
        """Damaged images: each is decoded or listed as unreadable."""
        files = sorted(path for path in self.photos.rglob("*") if path.is_file())
        damaged = self.folder / "damaged"
        damaged.mkdir()
        for number in range(trials):
            path = self.chance.choice(files)
            target = damaged / f"{number}{path.suffix}"
            target.write_bytes(mutated(path.read_bytes(), self.chance))
            unreadable = UnreadableImages(1, 1.0)
            try:
                load_images(open_source([str(target)]), 32, workers=0, unreadable=unreadable)
                yield "decoded", 1
            except UnweaveError as error:
                yield ("unreadable" if "\n" not in str(error) else "several lines"), 1
            except Exception as error:
                yield f"{type(error).__name__} from {path.suffix}", 1
            target.unlink()

    def run_files(self, trials: int) -> Iterator[tuple[Outcome, int]]:
        """Damaged files of a run: it is refused in one line, or nothing that was learned differs."""
        out = self.folder / "run"
        for _ in range(trials):
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(self.reference, out)
            name = self.chance.choice(
                ("checkpoint.safetensors", "checkpoint.safetensors", "metrics.jsonl", "config.yaml")
            )
            (out / name).write_bytes(mutated((out / name).read_bytes(), self.chance))
            yield self._use(out, name), 1

    def _use(self, out: Path, name: str) -> Outcome:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                status = unweave(self.train(out, "--quiet"))
            if status == 0:
                model = load(out)
        except UnweaveError:
            return "refused"
        except BaseException as error:
            return f"{type(error).__name__} after damage to {name}"
        if status != 0:
            lines = said.getvalue().splitlines()
            return "refused" if len(lines) == 1 else f"{len(lines)} lines after damage to {name}"
        changed = not same_weights({**model.encoder.state_dict()}, self.expected)
        return f"other weights after damage to {name}" if changed else "loaded"

    def names(self, trials: int) -> Iterator[tuple[Outcome, int]]:
        """Hostile file names: every readable image gets its row, under a name that leads back to the file."""
        import pyarrow.parquet as pq

        images = self.folder / "names"
        for _ in range(trials):
            shutil.rmtree(images, ignore_errors=True)
            images.mkdir()
            some = self.chance.sample(NAMES, k=self.chance.randint(1, len(NAMES)))
            bad = set(self.chance.sample(some, k=len(some) // 3))
            for i, name in enumerate(some):
                path = images / name
                path.parent.mkdir(exist_ok=True)  # "[/b].png" is in the folder "["
                Image.new("RGB", (40, 40), (9 * i, 99, 99)).save(path)
                if name in bad:
                    path.write_bytes(b"no image")
            out = self.folder / "names.parquet"
            words = ["embed", str(self.reference), str(images), "--out", str(out), "--workers", "0", "--max-bad", "1"]
            with contextlib.redirect_stderr(io.StringIO()):
                try:
                    status = unweave(words)
                except BaseException as error:
                    yield type(error).__name__, 1
                    continue
            rows = pq.read_table(out).num_rows if status == 0 else -1
            yield ("complete" if rows == len(some) - len(bad) else f"{rows} rows of {len(some) - len(bad)}"), 1

    def flags(self, trials: int) -> Iterator[tuple[Outcome, int]]:
        """Wrong flags: one line, exit status 2, nothing written that a later run would take for its own."""
        for number in range(trials):
            wrong = FLAGS[number % len(FLAGS)].split()
            status = in_child(self.train(self.folder / "flags", *wrong), self.folder / "log", (60, signal.SIGKILL))
            text = (self.folder / "log").read_text()
            shutil.rmtree(self.folder / "flags", ignore_errors=True)
            if "Traceback" in text or status not in (0, 2):
                yield f"exit {status} for {' '.join(wrong)}", 1
            else:
                yield ("refused" if status == 2 else "complete"), 1


def run_campaign(name: str, make: Callable[[int], Iterator[tuple[Outcome, int]]], trials: int) -> dict[str, Any]:
    started, outcomes = time.perf_counter(), Counter[str]()
    for outcome, count in make(trials):
        outcomes[outcome] += count
    failures = sum(count for outcome, count in outcomes.items() if outcome not in GOOD)
    row = {
        "campaign": name,
        "fault": make.__doc__.partition(":")[0].partition(";")[0].strip(".") if make.__doc__ else name,
        "trials": sum(outcomes.values()),
        "failures": failures,
        "outcomes": dict(outcomes.most_common()),
        "seconds": round(time.perf_counter() - started, 1),
    }
    print(f"{name}: {row['trials']} trials, {failures} failures, {row['outcomes']}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a few faults of each kind, as a test")
    parser.add_argument("--only", default="", help="one campaign")
    options = parser.parse_args()
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["unweave.pretraining", "timm", "lightning_fabric"]
    )
    started, here = time.perf_counter(), provenance()  # the commit at the start: a campaign takes long
    full = {"kills": 150, "terminations": 25, "images": 3600, "run_files": 1600, "names": 40, "flags": len(FLAGS)}
    quick = {"kills": 2, "terminations": 1, "images": 60, "run_files": 12, "names": 1, "flags": 4}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        campaigns = Campaigns(Path(folder), options.seed, epochs=3 if options.quick else 8)
        for name, trials in (quick if options.quick else full).items():
            if options.only in ("", name):
                rows.append(run_campaign(name, getattr(campaigns, name), trials))
    settings = {"seed": options.seed, "flags": SMALL, "wrong_flags": FLAGS}
    seconds = round(time.perf_counter() - started, 1)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        report = {**here, "settings": settings, "seconds": seconds, "rows": rows}
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
