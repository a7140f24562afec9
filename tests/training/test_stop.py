import os
import signal

import torch

from unweave.training.stop import StopRequest


def test_sigterm_is_heard_inside_and_left_alone_outside():
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest(torch.device("cpu")) as stop:
        assert not stop.asked(1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.asked(2)
    assert signal.getsignal(signal.SIGTERM) is before
