"""``unweave report``."""

from pathlib import Path
from typing import Annotated

import tyro


def report(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    data: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = None,
    /,
    *,
    out: Path | None = None,
    root: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    workers: int | None = None,
) -> None:
    """Show what each space of a run contains: writes report.html and report.json, prints the verdict.

    The sensitivity of each space to each group, nearest neighbours, pairs of views, curves and, with labels, the kNN
    accuracy. `unweave train` writes one too, on images that it keeps out of training.

    Args:
        run: Folder of a run.
        data: Images, as for `unweave train`, best such as the run was not trained on; at most 2,000 are used. By
            default the images that the run has kept out of training.
        out: Folder for the files; RUN by default.
        root: Folder of a torchvision data set, if DATA is its name.
        image_column: Column of the images in Parquet or CSV, if there are several.
        label_column: Column of the labels.
        workers: Processes that decode images; one for each core by default.
    """
    from unweave.data.sources import check_exists

    if data is not None:
        check_exists(data, root)
    from unweave.pretraining import write_run_report

    flags = {"root": root, "image_column": image_column, "label_column": label_column, "workers": workers}
    made = write_run_report(
        run, data, to=out, progress=True, **{name: value for name, value in flags.items() if value is not None}
    )
    print(made.verdict)
    print((run if out is None else out) / "report.html")
