"""Several processes of one command that share the rows of its table, on one machine."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unweave import UnweaveError
from unweave.console import message_console

NUMBER = "UNWEAVE_WORKER"
"""The variable that tells a process that it is one of the workers, and which."""
PATIENCE = 30.0
"""Seconds between two lines that say who is still running."""


def start_workers(count: int, out: Path, command: Sequence[str] | None = None) -> bool:
    """Runs a command in several processes and waits for them; false where this process shall do the work itself.

    The first worker writes to the terminal, the others to OUT/worker-N.log. Ctrl-C and SIGTERM stop all of them.

    Args:
        count: of the processes; with 1 none is started.
        out: folder of the logs.
        command: by default the present one.
    """
    if count < 1:
        raise UnweaveError(f"`workers` must be at least 1, not {count}")
    if count == 1 or NUMBER in os.environ:
        return False
    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "unweave", *sys.argv[1:]] if command is None else command
    threads = max(1, len(os.sched_getaffinity(0)) // count) if hasattr(os, "sched_getaffinity") else 1
    workers = []
    for number in range(1, count + 1):
        env = {"OMP_NUM_THREADS": str(threads), **os.environ, NUMBER: str(number)}
        if number == 1:
            workers.append(subprocess.Popen(command, env=env))
        else:
            with _log(out, number).open("w") as log:
                workers.append(subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT))
    with _passing_on_sigterm(workers) as stopped:
        try:
            _wait(workers, out)
        except KeyboardInterrupt:  # the workers have it too
            for worker in workers:
                worker.wait()
            raise
    if stopped:
        raise KeyboardInterrupt
    failed = [number for number, worker in enumerate(workers, 1) if worker.returncode]
    if failed:
        where = "its message is above" if failed == [1] else f"see {_log(out, max(failed))}"
        raise UnweaveError(f"{len(failed)} of {count} workers failed: {where}; the same command resumes the work")
    message_console().print(f"{count} workers have finished; the results are in {out}")
    return True


def _wait(workers: Sequence["subprocess.Popen[Any]"], out: Path) -> None:
    told = time.monotonic()
    while running := [number for number, worker in enumerate(workers, 1) if worker.poll() is None]:
        if 1 not in running and time.monotonic() - told > PATIENCE:
            told = time.monotonic()
            last = _log(out, running[0]).read_text(errors="replace").replace("\r", "\n").strip().rpartition("\n")[2]
            message_console().print(f"{len(running)} workers are still running; worker {running[0]}: {last[-160:]}")
        time.sleep(0.2)


def _log(out: Path, number: int) -> Path:
    return out / f"worker-{number}.log"


@contextmanager
def _passing_on_sigterm(workers: Sequence["subprocess.Popen[Any]"]) -> Iterator[list[int]]:
    """Stops the workers at SIGTERM, whose number is then in the list."""
    received: list[int] = []

    def stop(number: int, _: Any) -> None:
        received.append(number)
        for worker in workers:
            worker.terminate()

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)
