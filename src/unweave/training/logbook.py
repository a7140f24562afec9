"""What is done beside training, when its time has come: metrics, evaluations, checkpoints, the look for a bad loss."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from unweave.errors import UnweaveError
from unweave.objectives import DisentangledLoss
from unweave.objectives.disentangled import Terms
from unweave.processes import rank
from unweave.training.config import TrainConfig
from unweave.training.metrics import MetricsFile, ProgressBar
from unweave.training.optimizer import learning_rate
from unweave.training.resume import save_run


class Evaluation(Protocol):
    """Looks at the encoder every now and then while it is trained."""

    every: int
    """Steps between two looks; the last step always has one."""

    def __call__(self, encoder: nn.Module) -> dict[str, float]:
        """What goes to the metrics."""
        ...


@dataclass
class Logbook:
    """Kept while a run goes on: ``after`` each step it writes down what is due."""

    config: TrainConfig
    checkpoint: Path
    about: dict[str, Any]
    encoder: nn.Module
    optimizer: torch.optim.Optimizer
    objective: DisentangledLoss
    metrics: MetricsFile
    bar: ProgressBar
    evaluation: Evaluation | None = None

    def __post_init__(self) -> None:
        self._saved = time.monotonic()
        self._first_bad: Tensor | None = None
        spent_before = self.metrics.rows[-1].get("seconds", 0.0) if self.metrics.rows else 0.0
        self._started = time.perf_counter() - spent_before
        self._restart_clock()

    def after(self, step: int, terms: Terms, *, stopping: bool) -> None:
        """``step`` steps are done; ``stopping`` says that this is the last for now."""
        self._steps_timed += 1
        self._watch(step, terms.loss.detach())
        every, finished = self.config.checkpoint_every, step == self.config.steps
        last = finished or stopping
        save = last or (every > 0 and step % every == 0) or self._minutes_are_over()
        look = self.evaluation is not None and (finished or step % self.evaluation.every == 0)
        if last or look or step % self.config.log_every == 0:
            self._write(step, terms, look=look)
        if save:
            self._stop_if_bad()
            save_run(self.checkpoint, step, self.encoder, self.optimizer, self.objective, self.about)
            self._saved = time.monotonic()
        if save or look:
            self._restart_clock()
        self.bar.advance(step)

    def _write(self, step: int, terms: Terms, *, look: bool) -> None:
        self._stop_if_bad()
        row = {"step": step, "lr": learning_rate(step - 1, self.config), **terms.as_dict()}
        # Images a second since the last line, evaluations and checkpoints not counted.
        row["images_per_second"] = self.config.batch_size * self._steps_timed / (time.perf_counter() - self._timed_from)
        # Since the first step, all calls together.
        row["seconds"] = time.perf_counter() - self._started
        self._restart_clock()
        if look and self.evaluation is not None and rank() == 0:  # the others wait for the first
            self.encoder.eval()
            with torch.no_grad():
                row |= self.evaluation(self.encoder)
            train_mode(self.encoder)
        self.metrics.write(row)
        self.bar.show(row["loss"], row["images_per_second"])

    def _restart_clock(self) -> None:
        self._steps_timed, self._timed_from = 0, time.perf_counter()

    def _minutes_are_over(self) -> bool:
        minutes = self.config.checkpoint_minutes
        return minutes is not None and time.monotonic() - self._saved > 60 * minutes

    def _watch(self, step: int, loss: Tensor) -> None:
        """Remembers the first step with a bad loss, on the device: to ask for it at every step would wait."""
        if self._first_bad is None:
            self._first_bad = torch.zeros((), dtype=torch.int64, device=loss.device)
        bad = ~torch.isfinite(loss) & (self._first_bad == 0)
        self._first_bad = torch.where(bad, step, self._first_bad)

    def _stop_if_bad(self) -> None:
        if self._first_bad is not None and (step := int(self._first_bad)):
            path = self.checkpoint
            kept = f"the last good checkpoint is {path}" if path.exists() else "there was no checkpoint yet"
            raise UnweaveError(f"the loss was not a finite number at step {step}; {kept}; try a smaller lr or clip=1")


def train_mode(encoder: nn.Module) -> None:
    """A backbone that is not trained keeps the statistics of its batch norm too."""
    encoder.train()
    backbone = getattr(encoder, "backbone", None)
    if isinstance(backbone, nn.Module) and not any(p.requires_grad for p in backbone.parameters()):
        backbone.eval()
