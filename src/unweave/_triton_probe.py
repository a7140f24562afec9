"""The smallest kernel: whether Triton can compile it says whether it can compile the others."""

import torch
import triton
import triton.language as tl


@triton.jit
def _fill(out, value):
    tl.store(out, value)


def probe() -> None:
    """Compiles and runs it on the present GPU."""
    _fill[(1,)](torch.empty(1, device="cuda"), 1.0)
