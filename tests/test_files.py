"""Atomic writes, partial writes and locks."""

import errno
import fcntl
import os

import pytest

from unweave.errors import UnweaveWarning
from unweave.files import atomic_write, locked, process_runs, remove_partial_writes, write_text


def test_a_symbolic_link_stays_a_link_and_its_target_is_replaced(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "file", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_device_is_not_replaced(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(OSError, match="not a regular file"):
        write_text(fifo, "x")
    assert not fifo.is_file()


def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail():
        with atomic_write(path) as temporary:
            temporary.write_text("half")
            raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert [item.name for item in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"


def test_partial_writes_of_ended_processes_are_removed_and_of_running_ones_kept(tmp_path):
    child = os.fork()
    if child == 0:
        os._exit(0)
    while process_runs(child):  # it has ended, though it was not waited for
        pass
    ended, running = (tmp_path / f".file.{pid}.tmp" for pid in (child, os.getpid()))
    ended.touch()
    running.touch()
    remove_partial_writes(tmp_path / "file")
    os.waitpid(child, 0)
    assert running.exists()
    assert not ended.exists()


def test_a_file_system_without_locks_is_reported(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(UnweaveWarning, match="cannot be locked"), locked(tmp_path) as held:
        assert held


def test_a_second_lock_is_refused(tmp_path):
    with locked(tmp_path) as first, locked(tmp_path, timeout=0) as second:
        assert (first, second) == (True, False)
