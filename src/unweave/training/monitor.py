"""What happens beside training: metrics, evaluations, checkpoints, and the check for a loss that is not finite."""

import time
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from unweave.console import ProgressBar
from unweave.distributed import rank
from unweave.errors import UnweaveError
from unweave.objectives import LossTerms
from unweave.training.config import TrainConfig
from unweave.training.metrics import MetricsFile
from unweave.training.state import TrainingState
from unweave.training.threads import CoreUse


class Evaluation(Protocol):
    """Evaluates the encoder at intervals during training.

    It may also have ``prepare(device)``, which is called once everything was checked and before the first step.

    Examples:
        >>> class Norm:
        ...     every = 100
        ...     def __call__(self, encoder):
        ...         return {"norm": float(sum(p.detach().norm() for p in encoder.parameters()))}
    """

    every: int
    """Steps between two evaluations; there is always one after the last step."""

    def __call__(self, encoder: nn.Module) -> dict[str, float]:
        """Numbers for the metrics."""
        ...


@dataclass
class Monitor:
    """Called after each step; writes what is due."""

    config: TrainConfig
    steps: int
    state: TrainingState
    metrics: MetricsFile
    bar: ProgressBar
    evaluation: Evaluation | None = None

    def __post_init__(self) -> None:
        self._last_save = time.monotonic()
        self._first_bad: Tensor | None = None
        earlier = self.metrics.rows[-1].get("seconds", 0.0) if self.metrics.rows else 0.0
        self._started = time.perf_counter() - earlier
        on_cpu = next(self.state.encoder.parameters()).device.type == "cpu"
        self._core_use = CoreUse(torch.get_num_threads()) if on_cpu and rank() == 0 else None
        self._restart_clock()

    def after(self, step: int, terms: LossTerms, *, stopping: bool) -> None:
        """Called when ``step`` steps are done; ``stopping`` if the run stops here before its end."""
        self._steps_timed += 1
        self._watch(step, terms.loss.detach())
        every, finished = self.config.checkpoint_every, step == self.steps
        last = finished or stopping
        save = last or (every > 0 and step % every == 0) or self._save_is_due()
        evaluate = self.evaluation is not None and (finished or step % self.evaluation.every == 0)
        if last or evaluate or step % self.config.log_every == 0:
            self._write(step, terms, evaluate=evaluate)
        if save:
            self._raise_if_bad()
            self.state.save(step)
            self._last_save = time.monotonic()
        if save or evaluate:
            self._restart_clock()
            if self._core_use:
                self._core_use.restart()
        self.bar.advance(step)

    def _write(self, step: int, terms: LossTerms, *, evaluate: bool) -> None:
        self._raise_if_bad()
        lr = self.config.optim.learning_rate(step - 1, self.steps, self.config.batch_size)
        row = {"step": step, "lr": lr, **terms.as_dict()}
        # Since the last line, without evaluations and checkpoints.
        row["images_per_second"] = self.config.batch_size * self._steps_timed / (time.perf_counter() - self._timed_from)
        # Since the first step, over all calls that resumed the run.
        row["seconds"] = time.perf_counter() - self._started
        self._restart_clock()
        if self._core_use:
            self._core_use.check()
        if evaluate and self.evaluation is not None and rank() == 0:  # the other processes wait for the first
            self.state.encoder.eval()
            with torch.no_grad():
                row |= self.evaluation(self.state.encoder)
            train_mode(self.state.encoder)
        self.metrics.write(row)
        self.bar.show(row["loss"], row["images_per_second"])

    def _restart_clock(self) -> None:
        self._steps_timed, self._timed_from = 0, time.perf_counter()

    def _save_is_due(self) -> bool:
        minutes = self.config.checkpoint_minutes
        return minutes is not None and time.monotonic() - self._last_save > 60 * minutes

    def _watch(self, step: int, loss: Tensor) -> None:
        """Records the first step with a bad loss on the device: reading the loss at every step would wait for it."""
        if self._first_bad is None:
            self._first_bad = torch.zeros((), dtype=torch.int64, device=loss.device)
        bad = ~torch.isfinite(loss) & (self._first_bad == 0)
        self._first_bad = torch.where(bad, step, self._first_bad)

    def _raise_if_bad(self) -> None:
        if self._first_bad is not None and (step := int(self._first_bad)):
            path = self.state.folder.checkpoint
            kept = f"the last good checkpoint is {path}" if path.exists() else "there was no checkpoint yet"
            raise UnweaveError(f"the loss was not finite at step {step}; {kept}; try a smaller `lr`, or `clip` 1")


def train_mode(encoder: nn.Module) -> None:
    """Training mode; a backbone that is not trained keeps the statistics of its batch norm."""
    encoder.train()
    backbone = getattr(encoder, "backbone", None)
    if isinstance(backbone, nn.Module) and not any(p.requires_grad for p in backbone.parameters()):
        backbone.eval()
