"""Whether the GPU kernels can be compiled on this machine."""

import warnings
from functools import cache
from importlib.util import find_spec


@cache
def triton_works() -> bool:
    """Whether Triton can compile the GPU kernels, which needs a C compiler and Python's headers."""
    if find_spec("triton") is None:
        return False
    try:
        from unweave._triton_probe import probe

        probe()
    except Exception as error:  # errors of the compiler, the linker and Triton have no common base
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        warnings.warn(
            f"the GPU kernels cannot be compiled on this machine, slower code is used: {reason[:200]} (they need a C "
            "compiler and Python's headers: on Debian, apt install gcc python3-dev)",
            stacklevel=2,
        )
        return False
    return True
