"""Features in blocks: arrays or tensors of any precision, in memory or mapped from a file larger than memory.

Legend: n rows, d features, r the rank of the centred features.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unweave.data.resources import available_memory
from unweave.errors import UnweaveError

BLOCK = 2**23
"""Numbers that are converted at a time."""


class Features:
    """Rows of an array or tensor (n, d), converted block by block on a device.

    Args:
        x: a tensor, or anything that numpy converts to an array; a ``numpy.memmap`` is never read as a whole.
        device: where computations take place; by default where ``x`` is.
        name: the argument that errors name.

    Examples:
        >>> x = Features(np.ones((5, 2), np.float16))
        >>> len(x), x.dim, next(x.blocks(torch.float32))[1].dtype
        (5, 2, torch.float32)
    """

    def __init__(self, x: Any, device: torch.device | str | None = None, name: str = "features") -> None:
        self._rows: Tensor | None = None
        if isinstance(x, Features):
            self._rows = x._rows
            x, device = x._x, x.device if device is None else device
        try:
            self._x: Tensor | np.ndarray = x.detach() if isinstance(x, Tensor) else np.asanyarray(x)
        except ValueError:
            raise UnweaveError(f"`{name}` must be a matrix (n, d): its rows have different lengths") from None
        if self._x.ndim != 2 or not all(self._x.shape):
            raise UnweaveError(f"`{name}` must be a matrix (n, d), not of the shape {tuple(self._x.shape)}")
        if isinstance(self._x, np.ndarray) and self._x.dtype.kind not in "fiub":
            raise UnweaveError(f"`{name}` must be numbers, not {self._x.dtype}")
        self.device = torch.device(device or (self._x.device if isinstance(self._x, Tensor) else "cpu"))
        self.name = name

    def __len__(self) -> int:
        return len(self._x if self._rows is None else self._rows)

    def take(self, rows: Tensor) -> "Features":
        """Some of the rows, which are not copied."""
        taken = Features(self)
        taken._rows = rows.cpu() if self._rows is None else self._rows[rows.cpu()]
        return taken

    @property
    def dim(self) -> int:
        """The number of features."""
        return int(self._x.shape[1])

    def blocks(self, dtype: torch.dtype, rows: Tensor | None = None) -> Iterator[tuple[slice, Tensor]]:
        """The place and the values of some rows at a time; raises where they are not finite."""
        step = max(1, BLOCK // self.dim)
        if self._rows is not None:
            rows = self._rows if rows is None else self._rows[rows.cpu()]
        for start in range(0, len(self) if rows is None else len(rows), step):
            if rows is None:
                index: Any = slice(start, start + step)
            else:
                index = rows[start : start + step]
                index = index.to(self._x.device) if isinstance(self._x, Tensor) else index.cpu().numpy()
            part = self._x[index]
            if isinstance(part, np.ndarray):
                part = torch.from_numpy(np.array(part))
            block = part.to(self.device, dtype)
            # A sum is faster; where it is not finite, it may have overflowed.
            if not torch.isfinite(block.sum()) and not torch.isfinite(block).all():
                self._refuse(block, start)
            yield slice(start, start + len(block)), block

    def _refuse(self, block: Tensor, start: int) -> None:
        row = start + int((~torch.isfinite(block)).any(1).nonzero()[0])
        raise UnweaveError(
            f"`{self.name}` contain NaN or infinity, first in row {row}: remove such rows, or look for their cause"
        )

    def mean(self, rows: Tensor | None = None) -> Tensor:
        """The mean of each feature (d,), in double precision."""
        total = torch.zeros(self.dim, dtype=torch.float64, device=self.device)
        for _, block in self.blocks(torch.float64, rows):
            total += block.sum(0)
        return total / (len(self) if rows is None else len(rows))


def as_tensor(x: Any, name: str) -> Tensor:
    """A tensor or array as a tensor; raises where it is not numbers or not finite.

    Examples:
        >>> as_tensor(np.ones(2, np.float32), "x")
        tensor([1., 1.])
    """
    if not isinstance(x, Tensor):
        array = np.asarray(x)
        if array.dtype.kind not in "fiub":
            raise UnweaveError(f"`{name}` must be numbers, not {array.dtype}")
        x = torch.from_numpy(np.array(array))
    x = x.detach()
    if x.is_floating_point() and not torch.isfinite(x).all():
        raise UnweaveError(f"`{name}` contain NaN or infinity")
    return x


@dataclass(frozen=True)
class Rotation:
    """Centred features in the basis of their principal axes: their Gram matrix there is diagonal."""

    mean: Tensor
    """(d,)"""
    basis: Tensor
    """(d, r), orthonormal."""
    variance: Tensor
    """(r,), of each rotated feature, positive."""

    def apply(self, x: Features, dtype: torch.dtype) -> Tensor:
        """(n, r); mapped from a temporary file where it does not fit in memory."""
        shape = (len(x), self.basis.shape[1])
        size = shape[0] * shape[1] * dtype.itemsize
        if x.device.type == "cpu" and size > available_memory() / 3:
            numpy_type = np.float64 if dtype == torch.float64 else np.float32
            with tempfile.TemporaryFile() as file:
                rotated = torch.from_numpy(np.memmap(file, numpy_type, "w+", shape=shape))
        else:
            rotated = torch.empty(shape, dtype=dtype, device=x.device)
        basis = self.basis.to(dtype)
        for place, block in x.blocks(torch.float64):
            rotated[place] = (block - self.mean).to(dtype) @ basis
        return rotated


def rotation_of(x: Features) -> Rotation:
    """The principal axes of the features, from the smaller one of their Gram and kernel matrices."""
    n, mean = len(x), x.mean()
    wide = x.dim > n
    if wide:
        centred = torch.empty(n, x.dim, dtype=torch.float64, device=x.device)
        for place, block in x.blocks(torch.float64):
            centred[place] = block - mean
        gram = centred @ centred.T
    else:
        gram = torch.zeros(x.dim, x.dim, dtype=torch.float64, device=x.device)
        for _, block in x.blocks(torch.float64):
            centred = block - mean
            gram.addmm_(centred.T, centred)
    values, vectors = torch.linalg.eigh(gram)
    # What rounding leaves of constant features is far below the square of their mean.
    least = float(values[-1].clamp(min=0)) * max(n, x.dim) * 2**-52 + n * (1e-12 * float(mean.abs().max())) ** 2
    kept = values > max(least, 1e-300)
    values, vectors = values[kept], vectors[:, kept]
    if wide:
        vectors = centred.T @ (vectors / values.sqrt())
    return Rotation(mean, vectors, values / n)
