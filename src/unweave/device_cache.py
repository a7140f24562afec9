"""Small constant tensors, copied to each device once."""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


def cached_tensor(values: tuple[Any, ...], device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """``values`` as a tensor on a device; read-only.

    A copy from the host to a GPU waits for the work queued before it, and cannot be captured in a CUDA graph, so each
    constant is copied once and kept.

    Examples:
        >>> cached_tensor((1, 2), torch.device("cpu"))
        tensor([1., 2.])
    """
    if device.type == "cpu" or torch.compiler.is_compiling():
        return torch.tensor(values, device=device, dtype=dtype)
    return _on_device(values, device, dtype)


@lru_cache(maxsize=256)
def _on_device(values: tuple[Any, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):  # an inference tensor could not be used by autograd later
        return torch.tensor(values, device=device, dtype=dtype)
