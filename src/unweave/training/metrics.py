"""What a run says while it trains: a file of JSON lines, and a progress bar."""

import json
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from unweave.errors import UnweaveError
from unweave.processes import rank


class MetricsFile:
    """One JSON object a line. Lines after ``keep_until`` steps, left by a run that was stopped, are dropped.

    With ``tensorboard`` the same numbers go to TensorBoard's files in the folder ``tensorboard`` beside it.
    """

    def __init__(self, path: Path, keep_until: int = 0, *, tensorboard: bool = False) -> None:
        self.path = path
        self.rows: list[dict[str, float]] = []
        if path.exists() and keep_until:
            for line in path.read_text().splitlines():
                try:
                    row = json.loads(line)
                except json.JSONDecodeError:
                    continue  # half a line, from a run that was killed while writing it
                if row["step"] <= keep_until:
                    self.rows.append(row)
        self._board = _tensorboard(path.parent / "tensorboard", keep_until) if tensorboard and rank() == 0 else None
        if rank() == 0:
            path.write_text("".join(json.dumps(row) + "\n" for row in self.rows))

    def write(self, row: dict[str, float]) -> None:
        """Adds a line, and flushes it."""
        self.rows.append(row)
        if rank() != 0:
            return
        try:
            with open(self.path, "a") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise UnweaveError(f"cannot write to {self.path}: {error.strerror}; the same command goes on") from None
        if self._board is not None:
            for name, value in row.items():
                self._board.add_scalar(name, value, int(row["step"]))
            self._board.flush()


def _tensorboard(folder: Path, first: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UnweaveError("--tensorboard needs TensorBoard: pip install 'unweave[tensorboard]'") from None
    return SummaryWriter(str(folder), purge_step=first)


class ProgressBar:
    """A live bar on a terminal; a line now and then where output goes to a file."""

    def __init__(self, steps: int, first: int, description: str, *, show: bool, step: str = "step") -> None:
        self._console = Console(file=sys.stderr)
        self._show, self._steps, self._said_last = show, steps, ""
        self._live = show and self._console.is_terminal
        self._step, self._description, self._said = step, description, first * 10 // steps
        self._first, self._started = first, time.perf_counter()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[said]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._live,
        )
        self._task = self._bar.add_task(description, total=steps, completed=first, said="")

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, loss: float, images_per_second: float | None = None) -> None:
        """The loss and the pace beside the bar."""
        pace = f"  {images_per_second:,.0f} images/s" if images_per_second else ""
        self._said_last = f"loss {loss:.3f}{pace}"
        self._bar.update(self._task, said=self._said_last)

    def advance(self, step: int) -> None:
        """``step`` steps are done."""
        self._bar.update(self._task, completed=step)
        tenth = step * 10 // self._steps
        if self._show and not self._live and tenth > self._said:
            self._said = tenth
            said = f"{self._description}: {self._step} {step} of {self._steps}"
            self._console.print("  ".join(filter(None, (said, self._said_last, self._left(step)))))

    def _left(self, step: int) -> str:
        seconds = (time.perf_counter() - self._started) / max(1, step - self._first) * (self._steps - step)
        return f"{int(seconds // 3600)}:{int(seconds // 60 % 60):02}:{int(seconds % 60):02} left"
