"""Choice of settings: trials with a tuning seed, scored on held-out parts of the images to fit, not on test images."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from unweave import load, pretrain
from unweave.reproduce.results import ResultsTable, Row, markdown
from unweave.reproduce.transfer.data import TransferData, pretraining_files
from unweave.reproduce.transfer.figures import draw_trials
from unweave.reproduce.transfer.processes import Processes
from unweave.reproduce.transfer.run import QUICK, folder_name, row_scores
from unweave.reproduce.transfer.scores import ScoresFile, score_model
from unweave.reproduce.transfer.seeds import comparable_trials, models_of
from unweave.reproduce.transfer.settings import Scale, chosen_models, read_scale
from unweave.training import Run, RunFolder

SEED = 1000
"""The seed of all trials; no reported model has it."""
PENALTIES = tuple(10.0**power for power in range(-4, 5))
FIT = 5000
"""Images on which the probe of the classes of pre-training is fitted."""
KEY = ("model", "trial")
FEATURES = ("z", "h")
"""By whose average trials are compared."""


def run_tuning(
    out: Path,
    data: Path,
    *,
    pretraining: Path | None = None,
    only: str = "",
    device: str | None = None,
    quick: bool = False,
    changes: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Trains and scores the trials of the miniature scale that ``out``/tuning.json does not contain yet.

    Args:
        out: folder for the results.
        data: folder of the tasks' data sets.
        pretraining: folder of the pre-training images; by default ``tiny-imagenet`` in ``data``.
        only: names of models, or parts of them, separated by commas.
        device: cpu or cuda.
        quick: a test, as of ``run_transfer``.
        changes: settings of `unweave train` that replace those of every trial.
    """
    scale = read_scale("mini")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    photographs = pretraining or data / "tiny-imagenet"
    found = TransferData(data, photographs, device=device, fit=FIT, validation=True, few=quick)
    changes = {"accelerator": device, **(QUICK if quick else {}), **(changes or {}), "seed": SEED}
    models = chosen_models(scale, only)
    processes = Processes(scale.config(models[0], changes).training.launch)
    (out / "trials").mkdir(parents=True, exist_ok=True)
    table = ResultsTable(out / "tuning.json", KEY, scale)
    with table.counting() if processes.first else nullcontext():
        for model in models:
            for trial in range(len(scale.tried(model))):
                folder = out / "trials" / f"{folder_name(model)}-{trial}"
                with processes.claimed(folder) as mine:
                    table.read_again()
                    if processes.agree(mine and (model, trial) not in table.done):
                        with processes.training(out / "trials"):
                            run = train_trial(scale, found, model, trial, folder, changes)
                        if processes.first:
                            table.add([trial_row(scale, found, model, trial, folder, run)])
                            RunFolder(folder).checkpoint.unlink()
    if processes.first:
        table.read_again()
        trials = comparable_trials(table.rows)
        draw_trials(out / "trials.svg", trials)
        print(best_table(trials))
    return table.rows


def best_table(trials: Sequence[Row]) -> str:
    """The trial of every model with the largest mean of z's and h's average, in points."""
    body = []
    for model in models_of(trials):
        mine = [trial for trial in trials if trial["model"] == model]
        best = max(mine, key=lambda trial: sum(trial["scores"][name]["average"] for name in FEATURES))
        scores = (f"{100 * best['scores'][name]['average']:.1f}" for name in FEATURES)
        settings = ", ".join(f"{name} {value}" for name, value in best["settings"].items())
        body.append([model, str(len(mine)), str(best["trial"]), *scores, settings or "—"])
    return markdown(["model", "trials", "best", *FEATURES, "settings"], body)


def train_trial(
    scale: Scale, data: TransferData, model: str, trial: int, folder: Path, changes: Mapping[str, Any]
) -> Run:
    """Trains a model with the settings of a trial."""
    config = scale.trial(model, trial, changes)
    run = pretrain(pretraining_files(data.pretraining), folder, config=config)
    if run.stopped:
        raise KeyboardInterrupt
    return run


def trial_row(scale: Scale, data: TransferData, model: str, trial: int, folder: Path, run: Run) -> Row:
    """One trial: its settings and the validation scores of z and h."""
    common = scale.views_config()
    scores = score_model(
        load(folder),
        common.views.build(),
        data,
        ScoresFile(folder / "scores.json"),
        decode_size=common.decode_size,
        penalties=PENALTIES,
    )
    last = run.metrics[-1]
    return {
        "model": model,
        "trial": trial,
        "settings": dict(scale.tried(model)[trial]),
        "scores": {name: row_scores(scores, name) for name in scores["top1"]},
        "training": {name: round(value, 5) for name, value in last.items() if "/" in name or name == "loss"},
        "seconds": round(run.seconds, 1),
    }
