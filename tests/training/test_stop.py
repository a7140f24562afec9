import os
import signal

import pytest
import torch

from unweave.training.stop import StopRequest


def test_sigterm_is_heard_inside_and_left_alone_outside():
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest(torch.device("cpu")) as stop:
        assert not stop.asked(1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.asked(2)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.fixture
def _ctrl_c_is_not_ignored():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background ignores it
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c_is_not_ignored")
def test_ctrl_c_is_heard_once_and_raised_the_second_time(capsys):
    before = signal.getsignal(signal.SIGINT)
    with StopRequest(torch.device("cpu")) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked(1)
        assert stop.interrupted
        assert "Ctrl-C again" in capsys.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
