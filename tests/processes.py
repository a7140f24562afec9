"""Processes for tests, forked from a server that has imported unweave once: each starts in milliseconds.

A test that starts an interpreter of its own would spend most of its time importing torch.
"""

import contextlib
import io
import multiprocessing
import os
import socket
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

# The server of some versions of Python looks for what it preloads in PYTHONPATH alone.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["processes_preload"])


@dataclass
class Finished:
    returncode: int
    stdout: str
    stderr: str


class Child:
    """A function running in another process, with its output in files."""

    def __init__(self, folder: Path, function, *arguments, env=None, cwd=None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._out, self._err = folder / "stdout", folder / "stderr"
        self.process = CONTEXT.Process(
            target=_run, args=(self._out, self._err, env or {}, cwd, function, arguments), daemon=False
        )
        self.process.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_running(self) -> bool:
        return self.process.exitcode is None

    def wait(self, timeout: float = 120) -> Finished:
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.process.kill()
            raise TimeoutError(f"still running after {timeout} s: {self._err.read_text()[-2000:]}")
        return Finished(self.process.exitcode, self._out.read_text(), self._err.read_text())


def unweave(folder: Path, arguments, **options) -> Finished:
    """The ``unweave`` command with these arguments."""
    return Child(folder, command, list(map(str, arguments)), **options).wait()


def command(arguments) -> int:
    from unweave.cli.main import main

    return main(arguments)


def torchrun_environment(processes: int) -> list[dict[str, str]]:
    """The variables that torchrun sets for each of its processes."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    common = {
        "TORCHELASTIC_RUN_ID": "test", "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes),
        "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    return [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]


def _run(out: Path, err: Path, env, cwd, function, arguments) -> None:
    """In the child: output goes to files, and the function's result is the exit status."""
    os.setpgrp()
    os.environ.update(env)
    if cwd is not None:
        os.chdir(cwd)
    for path, number in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", 0), write_through=True)
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", 0), write_through=True)
    multiprocessing.set_start_method("fork", force=True)  # the default; a child of a fork server inherits its own
    import torch

    torch.set_num_threads(1)
    status = 1
    try:
        status = int(function(*arguments) or 0)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(status)
