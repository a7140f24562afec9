"""Several processes of one command."""

import os
import signal
import sys
import time

import pytest

from processes import Child
from unweave import UnweaveError
from unweave.reproduce.workers import NUMBER, start_workers

NOTE = f"import os, pathlib, sys; pathlib.Path(sys.argv[1], os.environ['{NUMBER}']).touch(); print('done')"
FAIL = f"import os, sys; sys.exit('no disk' if os.environ['{NUMBER}'] == '3' else 0)"


def test_every_worker_runs_the_command_and_all_but_the_first_write_a_log(tmp_path):
    assert start_workers(3, tmp_path, [sys.executable, "-c", NOTE, str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {"1", "2", "3", "worker-2.log", "worker-3.log"}
    assert (tmp_path / "worker-3.log").read_text() == "done\n"


def test_one_worker_and_a_worker_itself_start_none(tmp_path, monkeypatch):
    assert not start_workers(1, tmp_path, ["false"])
    monkeypatch.setenv(NUMBER, "2")
    assert not start_workers(3, tmp_path, ["false"])


def test_a_worker_that_fails_is_named_with_its_log(tmp_path):
    with pytest.raises(UnweaveError, match=r"1 of 3 workers failed: see .*worker-3\.log"):
        start_workers(3, tmp_path, [sys.executable, "-c", FAIL])
    assert "no disk" in (tmp_path / "worker-3.log").read_text()


def test_the_message_of_the_first_worker_is_on_the_terminal(tmp_path):
    with pytest.raises(UnweaveError, match="1 of 2 workers failed: its message is above; the same command"):
        start_workers(2, tmp_path, [sys.executable, "-c", FAIL.replace("'3'", "'1'")])


@pytest.mark.parametrize("count", [0, -2])
def test_a_wrong_number_is_one_line(tmp_path, count):
    with pytest.raises(UnweaveError, match="`workers` must be at least 1"):
        start_workers(count, tmp_path)


SLEEP = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1], str(os.getpid())).touch(); time.sleep(60)"


def start_sleepers(folder):
    from pathlib import Path

    try:
        start_workers(2, Path(folder), [sys.executable, "-c", SLEEP, folder])
    except KeyboardInterrupt:
        return 7
    return 0


def test_sigterm_stops_all_workers(tmp_path):
    child = Child(tmp_path, start_sleepers, str(tmp_path))
    deadline = time.monotonic() + 30
    while len(pids := [path.name for path in tmp_path.iterdir() if path.name.isdigit()]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait().returncode == 7
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
