"""``unweave embed`` and ``unweave export``."""

from pathlib import Path
from typing import Annotated

import tyro

Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


def embed(
    run: Run,
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    /,
    *,
    out: Path,
    root: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    batch_size: int = 256,
    workers: int | None = None,
    max_bad: float = 0.01,
    device: str = "auto",
) -> None:
    """Write h and the embedding in every space of every image to a Parquet file, with its path and label.

    Args:
        run: Folder of a run or of an export.
        data: Images, as for `unweave train`.
        out: The Parquet file.
        root: Folder of a torchvision data set, if DATA is its name.
        image_column: Parquet column of the images, if there are several.
        label_column: Parquet column of the labels.
        batch_size: Images that pass through the network at a time.
        workers: Processes that decode images; one for each core by default.
        max_bad: Fraction of the images that may be unreadable.
        device: cpu, cuda, …; auto uses what is available.
    """
    from unweave.data.sources import check_exists

    check_exists(data, root)
    import torch

    from unweave.console import ProgressBar, message_console
    from unweave.data import open_source
    from unweave.errors import printable
    from unweave.inference import embed_images, load

    source = open_source(data, root=root, image_column=image_column, label_column=label_column)
    model = load(run)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    with ProgressBar(len(source), 0, "embedding", show=True, step="image") as bar:
        unreadable = embed_images(
            model, source, out, batch_size=batch_size, device=device, workers=workers, max_bad=max_bad,
            on_progress=bar.advance,
        )  # fmt: skip
    console = message_console()
    console.print(f"{len(source) - len(unreadable):,} images in {out}: h, {', '.join(model.spaces)}")
    for name, reason in list(unreadable.found.values())[:10]:
        console.print(f"not readable: {printable(name)}: {reason}")
    if len(unreadable) > 10:
        console.print(f"and {len(unreadable) - 10} more")


def export(run: Run, /, *, out: Path | None = None, onnx: bool = True) -> None:
    """Write a run's model as safetensors with its description, and as ONNX.

    Args:
        run: The run's folder.
        out: Folder for the files; RUN/export by default.
        onnx: Write ONNX too.
    """
    from unweave.inference import export_model, load

    for path in export_model(load(run), run / "export" if out is None else out, onnx=onnx):
        print(path)
