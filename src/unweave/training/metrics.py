"""A run's metrics as a file of JSON lines, and its progress bar."""

import json
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from unweave.console import message_console
from unweave.distributed import rank
from unweave.errors import UnweaveError


class MetricsFile:
    """One JSON object per line. Lines of steps after ``keep_until``, which a resumed run repeats, are dropped.

    With ``tensorboard``, a folder, the same numbers are written there for TensorBoard.
    """

    def __init__(self, path: Path, keep_until: int = 0, *, tensorboard: Path | None = None) -> None:
        self.path = path
        self.rows: list[dict[str, float]] = []
        if path.exists() and keep_until:
            for line in path.read_text().splitlines():
                try:
                    row = json.loads(line)
                except json.JSONDecodeError:
                    continue  # an incomplete line of a run that was killed
                if row["step"] <= keep_until:
                    self.rows.append(row)
        self._board = _tensorboard(tensorboard, keep_until) if tensorboard is not None and rank() == 0 else None
        if rank() == 0:
            path.write_text("".join(json.dumps(row) + "\n" for row in self.rows))

    def write(self, row: dict[str, float]) -> None:
        """Appends a line."""
        self.rows.append(row)
        if rank() != 0:
            return
        try:
            with open(self.path, "a") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise UnweaveError(
                f"cannot write to {self.path}: {error.strerror}; the same command resumes the run"
            ) from None
        if self._board is not None:
            for name, value in row.items():
                self._board.add_scalar(name, value, int(row["step"]))
            self._board.flush()


def _tensorboard(folder: Path, first: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UnweaveError("`tensorboard` needs TensorBoard: pip install 'unweave[tensorboard]'") from None
    return SummaryWriter(str(folder), purge_step=first)


class ProgressBar:
    """A progress bar on a terminal; a line for every tenth where output goes to a file.

    Examples:
        >>> with ProgressBar(2, 0, "training", show=False) as bar:
        ...     bar.advance(1)
    """

    def __init__(self, steps: int, first: int, description: str, *, show: bool, step: str = "step") -> None:
        self._console = message_console()
        self._show, self._steps, self._text = show, steps, ""
        self._live = show and self._console.is_terminal
        self._step, self._description, self._tenths = step, description, first * 10 // max(1, steps)
        self._first, self._started = first, time.perf_counter()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._live,
        )
        self._task = self._bar.add_task(description, total=steps, completed=first, text="")

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, loss: float, images_per_second: float | None = None) -> None:
        """Shows the loss and the rate."""
        rate = f"  {images_per_second:,.0f} images/s" if images_per_second else ""
        self._text = f"loss {loss:.3f}{rate}"
        self._bar.update(self._task, text=self._text)

    def advance(self, step: int) -> None:
        """Sets the number of steps done."""
        self._bar.update(self._task, completed=step)
        tenths = step * 10 // self._steps
        if self._show and not self._live and tenths > self._tenths:
            self._tenths = tenths
            line = f"{self._description}: {self._step} {step} of {self._steps}"
            line = "  ".join(filter(None, (line, self._text, self._left(step))))
            self._console.print(line)

    def _left(self, step: int) -> str:
        seconds = (time.perf_counter() - self._started) / max(1, step - self._first) * (self._steps - step)
        return f"{int(seconds // 3600)}:{int(seconds // 60 % 60):02}:{int(seconds % 60):02} left"
