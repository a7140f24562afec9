"""Which images a report is made of, and the report of a run on photographs."""

from pathlib import Path
from typing import Any

import torch

from unweave.data import load_images
from unweave.data.config import DataConfig
from unweave.data.sources.base import MISSING, Source, Subset
from unweave.data.unreadable import UnreadableImages
from unweave.errors import UnweaveError
from unweave.inference import load
from unweave.pretraining.config import PretrainConfig, from_yaml
from unweave.provenance import provenance
from unweave.report import ReportImages, RunReport, make_report, write_report
from unweave.settings import with_settings
from unweave.training import RunFolder

FEWEST, MOST = 32, 500
"""Images that are kept out of training, if the fraction of them is at least the first number; at most the second."""
MEASURED = 2000
"""Images of DATA that a report measures at most."""
FITTED = 4000
"""Training images among which kNN looks for neighbours."""


def hold_out(source: Source, fraction: float) -> tuple[Source, Source | None]:
    """The images to train on, and those kept out of training for the report: none of a small data set.

    Which images are kept out depends on their number alone.
    """
    count = min(MOST, int(len(source) * fraction))
    if count < FEWEST:
        return source, None
    chosen = torch.randperm(len(source), generator=torch.Generator().manual_seed(3))[:count].sort().values.tolist()
    kept_out = set(chosen)
    return Subset(source, [i for i in range(len(source)) if i not in kept_out]), Subset(source, chosen)


def write_run_report(
    out: str | Path, data: Any = None, *, to: Path | None = None, progress: bool = False, **settings: Any
) -> RunReport:
    """Measures the model of a run's folder and writes ``report.html`` and ``report.json``.

    Args:
        out: the run's folder.
        data: images, as ``pretrain`` accepts them; by default those that the run has kept out of training, or if there
            are none, those it was trained on.
        to: the folder to write to; by default the run's.
        progress: show a progress bar.
        settings: how the images are read, by name, such as ``workers``.

    Examples:
        >>> import tempfile, unweave as uw
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for i in range(8):
        ...         Image.new("RGB", (40, 40), (30 * i, 99, 99)).save(f"{folder}/{i}.png")
        ...     small = {"size": 32, "backbone": "test_resnet", "dim": 8, "hidden": 16, "workers": 0}
        ...     run = uw.pretrain(folder, f"{folder}/run", steps=1, batch_size=8, progress=False, report=False, **small)
        ...     report = write_run_report(f"{folder}/run")
        >>> report.groups
        ('spatial', 'appearance')
    """
    folder = RunFolder(out)
    config, trained_on = PretrainConfig(), None
    if folder.config.is_file():
        saved = folder.load_config()
        config, trained_on = from_yaml(saved, config, str(folder.config)), saved.get("source")
    config = with_settings(config, settings)
    if data is None and trained_on is None:
        raise UnweaveError(f"{out} does not say which images it was trained on: give `data` to report on")
    source = config.data.open(trained_on if data is None else data)
    fitted, held_out = None, None
    if data is None:
        fitted, held_out = hold_out(source, config.report.held_out)
    chosen = source if held_out is None else held_out
    was_held_out = held_out is not None or (data is not None and str(data) != trained_on)
    size = config.decode_size if trained_on is not None else None
    return report_run(
        out, chosen, config.data, held_out=was_held_out, fitted=fitted, to=to, decode_size=size, progress=progress
    )


def report_run(
    out: str | Path,
    source: Source,
    data: DataConfig,
    *,
    held_out: bool,
    fitted: Source | None = None,
    to: Path | None = None,
    decode_size: int | None = None,
    progress: bool = False,
) -> RunReport:
    """Measures the model of a run on the images of ``source``; writes ``report.html`` and ``report.json``.

    Args:
        out: the run's folder.
        source: the images, of which at most 2,000 are used.
        data: how they are decoded.
        held_out: whether the run was not trained on them.
        fitted: training images among which kNN looks for neighbours, where there are labels.
        to: the folder to write to; by default the run's.
        decode_size: side of the images from which views are cut; by default 8/7 of the network's input.
        progress: show a progress bar.
    """
    folder = RunFolder(out)
    model, views = load(out), folder.load_views()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    size = decode_size or model.size * 8 // 7
    some = _sample(source, MEASURED)
    images = _decode(some, data, size, model.size, held_out=held_out)
    known = None
    if fitted is not None and fitted.labels is not None and images.labels is not None:
        known = _decode(_sample(fitted, FITTED), data, None, model.size, held_out=False)
    report = make_report(model, views, images, metrics=folder.load_metrics(), fitted=known, progress=progress)
    write_report(folder.path if to is None else to, report, provenance=provenance())
    return report


def _sample(source: Source, most: int) -> Source:
    if len(source) <= most:
        return source
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(5))[:most]
    return Subset(source, order.sort().values.tolist())


def _decode(source: Source, data: DataConfig, large: int | None, small: int, *, held_out: bool) -> ReportImages:
    """The readable images, in the size from which views are cut and in the size of the network's input."""
    unreadable = UnreadableImages(len(source), 1.0)

    def read(size: int) -> Any:
        images = load_images(
            source, size, channels=data.channels, max_pixels=data.max_pixels, cache="ram", workers=data.workers,
            unreadable=unreadable,
        )  # fmt: skip
        return images[torch.arange(len(images))]

    decoded = read(small)
    whole = decoded if large is None else read(large)
    labels = None if source.labels is None else torch.tensor(source.labels)
    kept = [i for i in range(len(source)) if i not in unreadable and (labels is None or labels[i] != MISSING)]
    if len(kept) < 2:
        raise UnweaveError(f"a report needs at least 2 readable images, not {len(kept)}")
    rows = torch.tensor(kept)
    return ReportImages(whole[rows], decoded[rows], None if labels is None else labels[rows], held_out)
