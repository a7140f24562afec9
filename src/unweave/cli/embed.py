"""``unweave embed`` and ``unweave export``."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from unweave.cli.flags import flags_of
from unweave.inference.config import EmbedConfig
from unweave.settings import with_settings

Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


@dataclass(frozen=True, kw_only=True)
class _Settings:
    embedding: EmbedConfig = field(default_factory=EmbedConfig)


Flags = flags_of(_Settings, default=_Settings())


def embed(
    run: Run,
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    /,
    *,
    out: Annotated[str, tyro.conf.arg(metavar="PATH")],
    root: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    flags: Annotated[Flags, tyro.conf.OmitArgPrefixes, tyro.conf.arg(name="")],  # type: ignore[valid-type]
) -> None:
    """Write h and the embedding in every space of every image to a Parquet or CSV file, with its path and class.

    A folder gets several Parquet files. The same command resumes it, and under torchrun or srun the processes share
    the images.

    Args:
        run: Folder of a run or of an export.
        data: Images, as for `unweave train`; also Parquet files at s3://, gs://, hdfs:// and file:// addresses.
        out: A file, .parquet (a list for each space) or .csv (a column for each number), or a folder: FOLDER/.
        root: Folder of a torchvision data set, if DATA is its name.
        image_column: Column of the images, if a table has several.
        label_column: Column of the labels.
        flags: Settings.
    """
    from unweave.data.sources import check_exists

    settings = with_settings(EmbedConfig(), asdict(flags)["embedding"])
    check_exists(data, root)
    from unweave.console import ProgressBar, message_console
    from unweave.data import open_source
    from unweave.distributed import this_process
    from unweave.errors import UnweaveError, printable
    from unweave.inference import embed_images, load
    from unweave.inference.embed import usable_device
    from unweave.inference.folder import EmbeddingFolder, check_folder, is_folder
    from unweave.inference.tables import check_output

    place = this_process()
    usable_device(settings.device)
    if is_folder(out):
        check_folder(Path(out))
    elif place.count > 1:
        raise UnweaveError(f"`out` {out} is a file, but there are {place.count} processes: name a folder")
    else:
        check_output(Path(out))
    model = load(run)
    source = open_source(
        data, root=root, image_column=image_column, label_column=label_column, channels=model.input_shape[0],
        random_access=False,
    )  # fmt: skip
    with ProgressBar(len(source), 0, "embedding", show=place.rank == 0, step="image") as bar:
        unreadable = embed_images(model, source, out, config=settings, on_progress=bar.advance)
    console = message_console()
    if is_folder(out):
        folder = EmbeddingFolder.open(Path(out))
        if not folder.complete:
            count = f"{len(folder.finished())} of {folder.count} files of {out} are complete"
            console.print(f"process {place.rank} of {place.count} has finished: {count}")
            return
        folder.add_unreadable(unreadable)  # of processes that have finished since
    console.print(f"{len(source) - len(unreadable):,} images in {out}: {', '.join(model.outputs)}")
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
