"""Small tensors that never change, kept where they are used."""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


def constant(values: tuple[Any, ...], device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """``values`` as a tensor on a device. To a GPU they are copied once: each copy would wait for all work before it.

    Not to be written to.

    >>> constant((1, 2), torch.device("cpu"))
    tensor([1., 2.])
    """
    if device.type == "cpu" or torch.compiler.is_compiling():
        return torch.tensor(values, device=device, dtype=dtype)
    return _kept(values, device, dtype)


@lru_cache(maxsize=256)
def _kept(values: tuple[Any, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):  # or autograd could not use it later
        return torch.tensor(values, device=device, dtype=dtype)
