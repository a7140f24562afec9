"""Messages and progress for people, on the standard error stream."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def message_console(*, quiet: bool = False) -> Console:
    """A console that prints text as it is: file names are not read as markup, and undecodable bytes are escaped."""
    return Console(stderr=True, quiet=quiet, soft_wrap=True, highlight=False, markup=False, emoji=False)


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
