"""A run's metrics as a file of JSON lines."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unweave.distributed import rank
from unweave.errors import UnweaveError
from unweave.files import write_text


class MetricsFile:
    """One JSON object per line. Lines of steps after ``keep_until``, which a resumed run repeats, are dropped.

    With ``tensorboard``, a folder, the same numbers are written there for TensorBoard.
    """

    def __init__(self, path: Path, keep_until: int = 0, *, tensorboard: Path | None = None) -> None:
        self.path = path
        self.rows: list[dict[str, float]] = []
        if path.exists() and keep_until:
            self.rows = [row for row in read_metrics(path) if row["step"] <= keep_until]
        self._board = _tensorboard(tensorboard, keep_until) if tensorboard is not None and rank() == 0 else None
        if rank() == 0:
            with _writing(path):
                write_text(path, "".join(json.dumps(row) + "\n" for row in self.rows))

    def write(self, row: dict[str, float]) -> None:
        """Appends a line."""
        self.rows.append(row)
        if rank() != 0:
            return
        with _writing(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if self._board is not None:
            for name, value in row.items():
                self._board.add_scalar(name, value, int(row["step"]))
            self._board.flush()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UnweaveError(f"cannot write to {path}: {reason}; the same command resumes the run") from None


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The complete lines; others belong to a run that was killed, or were damaged."""
    rows = []
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UnweaveError(f"cannot read {path}: {error.strerror or error}") from None
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        numbers = isinstance(row, dict) and all(isinstance(value, (int, float)) for value in row.values())
        if numbers and isinstance(row.get("step"), int):
            rows.append(row)
    return rows


def _tensorboard(folder: Path, first: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UnweaveError("`tensorboard` needs TensorBoard: pip install 'unweave[tensorboard]'") from None
    return SummaryWriter(str(folder), purge_step=first)
