"""The number of threads, and the hint where they do not get the cores."""

import time

import pytest
import torch

import small_runs as small
from unweave.errors import UnweaveWarning
from unweave.training import load_checkpoint, threads
from unweave.training.threads import CoreUse, cpu_threads, fastest_threads

CPU = torch.device("cpu")


def test_threads_are_set_for_a_run_and_restored_after():
    before = torch.get_num_threads()
    with cpu_threads(CPU, 3, None):
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == before


def test_a_resumed_run_keeps_its_number_unless_another_is_given():
    with cpu_threads(CPU, None, 2):
        assert torch.get_num_threads() == 2
    with cpu_threads(CPU, 1, 2):
        assert torch.get_num_threads() == 1


def test_the_number_is_part_of_the_checkpoint(tmp_path):
    small.run(tmp_path, launch=small.uw.LaunchConfig(accelerator="cpu", threads=2), steps=2)
    assert load_checkpoint(tmp_path / "checkpoint.safetensors")["threads"] == 2


def test_fewer_threads_are_chosen_where_they_are_clearly_faster(monkeypatch):
    seconds = {8: 1.0, 4: 0.9, 2: 0.4, 1: 0.7}
    monkeypatch.setattr(threads, "_seconds", seconds.__getitem__)
    assert fastest_threads(8) == 2
    seconds[2] = 0.9
    assert fastest_threads(8) == 1
    seconds[1] = 0.9
    assert fastest_threads(8) == 8


def test_idle_cores_are_reported_once(monkeypatch, recwarn):
    monkeypatch.setattr(threads, "WATCHED_SECONDS", 0.02)
    use = CoreUse(threads=2)
    for _ in range(4):
        time.sleep(0.03)
        use.check()
    assert [warning.category for warning in recwarn] == [UnweaveWarning]


def test_busy_cores_are_not_reported(monkeypatch, recwarn):
    monkeypatch.setattr(threads, "WATCHED_SECONDS", 0.02)
    monkeypatch.setattr(threads, "BUSY", 0.05)  # this machine may be busy with other tests
    use = CoreUse(threads=1)
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    use.check()
    assert not recwarn.list


@pytest.mark.parametrize("number", [0, -1])
def test_a_number_below_one_is_refused(number):
    with pytest.raises(small.uw.UnweaveError, match="`threads`"):
        small.uw.LaunchConfig(threads=number)
