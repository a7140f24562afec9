import os
import signal

import pytest
import torch

from unweave.training.signals import StopSignals


def test_sigterm_is_handled_inside_and_its_handler_restored_afterwards():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals(torch.device("cpu")) as signals:
        assert not signals.received(1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received(2)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.fixture
def _default_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores SIGINT
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_default_handler")
def test_ctrl_c_is_handled_once_and_raised_the_second_time(capsys):
    before = signal.getsignal(signal.SIGINT)
    with StopSignals(torch.device("cpu")) as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received(1)
        assert signals.interrupted
        assert "Ctrl-C again" in capsys.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
