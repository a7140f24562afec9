"""What a run says while it trains: a file of JSON lines, and a progress bar."""

import json
import sys
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from unweave.processes import rank


class MetricsFile:
    """One JSON object a line. Lines after ``keep_until`` steps, left by a run that was stopped, are dropped."""

    def __init__(self, path: Path, keep_until: int = 0) -> None:
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
        if rank() == 0:
            path.write_text("".join(json.dumps(row) + "\n" for row in self.rows))

    def write(self, row: dict[str, float]) -> None:
        """Adds a line, and flushes it."""
        self.rows.append(row)
        if rank() == 0:
            with open(self.path, "a") as file:
                file.write(json.dumps(row) + "\n")


class ProgressBar:
    """A live bar on a terminal; a line now and then where output goes to a file."""

    def __init__(self, steps: int, first: int, description: str, *, show: bool) -> None:
        self._console = Console(file=sys.stderr)
        self._show, self._steps, self._loss = show, steps, ""
        self._live = show and self._console.is_terminal
        self._description, self._said = description, first * 10 // steps
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[loss]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._live,
        )
        self._task = self._bar.add_task(description, total=steps, completed=first, loss=self._loss)

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, loss: float) -> None:
        """The loss beside the bar."""
        self._loss = f"loss {loss:.3f}"
        self._bar.update(self._task, loss=self._loss)

    def advance(self, step: int) -> None:
        """``step`` steps are done."""
        self._bar.update(self._task, completed=step)
        tenth = step * 10 // self._steps
        if self._show and not self._live and tenth > self._said:
            self._said = tenth
            self._console.print(f"{self._description}: step {step} of {self._steps} {self._loss}")
