"""Files of named tensors (safetensors) with checksums, so that a file which was damaged on the disk is not used.

Nothing is unpickled, so any file is safe to open. Files of other programs have no checksums and are read without.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unweave.errors import UnweaveError
from unweave.files import atomic_write

CHECKSUMS = ("unweave_checksums", "unweave_checksums_copy")
"""The entries of a file's metadata that hold the checksums: two, so that damage to a name is noticed."""


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Writes tensors and texts atomically."""
    # Copies: safetensors refuses tensors that share memory.
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    checksums = {"metadata": _text_checksum(metadata), "tensors": {name: _checksum(x) for name, x in copies.items()}}
    with atomic_write(path) as temporary:
        try:
            save_file(copies, temporary, {**metadata, **dict.fromkeys(CHECKSUMS, json.dumps(checksums))})
        except SafetensorError as error:
            raise OSError(str(error)) from None


class TensorFile:
    """An open file: its texts, the names of its tensors, and each tensor, checked when it is read."""

    def __init__(self, path: Path, file: Any) -> None:
        self._path, self._file = path, file
        self.metadata: dict[str, str] = dict(file.metadata() or {})
        self.names: list[str] = list(file.keys())
        self._checksums: dict[str, Any] | None = None
        stored = [self.metadata.pop(name) for name in CHECKSUMS if name in self.metadata]
        if stored:
            checksums = json.loads(stored[0])
            self._checksums = dict(checksums["tensors"])
            if checksums["metadata"] != _text_checksum(self.metadata) or set(self._checksums) != set(self.names):
                raise damaged(path, "its header was changed")

    def get(self, name: str) -> Tensor:
        """A tensor on the CPU."""
        tensor = self._file.get_tensor(name)
        if self._checksums is not None and _checksum(tensor) != self._checksums[name]:
            raise damaged(self._path, f"the checksum of {name} does not match")
        return tensor


@contextmanager
def open_tensors(path: Path) -> Iterator[TensorFile]:
    """The file, for reading; every error is one line that names it."""
    try:
        with safe_open(path, framework="pt") as file:
            yield TensorFile(path, file)
    except UnweaveError:
        raise
    except OSError as error:
        raise UnweaveError(f"{path} cannot be read: {error.strerror or error}") from None
    except (SafetensorError, UnicodeError) as error:
        raise damaged(path, str(error)) from None
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(path, f"{type(error).__name__} {error}") from None


def damaged(path: Path, reason: str) -> UnweaveError:
    """The error for a file whose content is not what was written."""
    reason = " ".join(reason.split())[:160]
    return UnweaveError(f"{path} is damaged ({reason}): restore it from a copy, or remove it and start again")


def _checksum(tensor: Tensor) -> int:
    """Of the kind, the shape and the bytes."""
    kind = f"{tensor.dtype} {tuple(tensor.shape)}".encode()
    content: Any = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    return zlib.crc32(content, zlib.crc32(kind))


def _text_checksum(metadata: Mapping[str, str]) -> int:
    return zlib.crc32(json.dumps(sorted(metadata.items())).encode())
