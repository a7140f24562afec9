"""``unweave embed``: the features of every image as a table."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unweave.data.loading import StreamedImages
from unweave.data.resources import default_workers
from unweave.data.sources import open_source
from unweave.data.unreadable import UnreadableImages
from unweave.errors import UnweaveError
from unweave.inference.config import EmbedConfig
from unweave.inference.model import SpacesModel
from unweave.inference.tables import check_not_source, check_output, table_writer
from unweave.settings import with_settings


def embed_images(
    model: SpacesModel,
    images: Any,
    out: str | Path,
    *,
    config: EmbedConfig | None = None,
    on_progress: Callable[[int], None] | None = None,
    **settings: Any,
) -> UnreadableImages:
    """Writes a row for each image: ``path``, ``label``, ``class_name``, ``h`` and a column for each space.

    In a Parquet file features are lists of float32; in a CSV file they are columns ``content_0``, ``content_1``, …
    ``label`` is the number of the class and ``class_name`` its name; both are null where there is none.

    Args:
        model: the model, which is moved to the device.
        images: what ``open_source`` takes.
        out: the file; it ends with .parquet or .csv, and without an ending it is Parquet.
        config: the settings to start from.
        on_progress: called with the number of images done so far.
        settings: settings to change, by name, as the flags of ``unweave embed``.

    Returns:
        The images that cannot be read, which have no row.

    Examples:
        >>> import tempfile, unweave as uw, pyarrow.parquet as pq
        >>> from PIL import Image
        >>> model = SpacesModel(uw.Encoder(uw.SmallConvNet(16), ("content",), dim=4), input_shape=(3, 16, 16))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Image.new("RGB", (20, 16), "red").save(f"{folder}/a.png")
        ...     unreadable = embed_images(model, folder, f"{folder}/z.parquet", workers=0)
        ...     pq.read_table(f"{folder}/z.parquet").column_names
        ['path', 'label', 'class_name', 'h', 'content']
    """
    if "device" in settings:
        settings["device"] = str(settings["device"])
    config = with_settings(config or EmbedConfig(), settings)
    device, out = usable_device(config.device), Path(out)
    check_output(out, model.spaces)
    source = open_source(images, channels=model.input_shape[0])
    check_not_source(out, source)
    workers = default_workers() if config.workers is None else config.workers
    unreadable = UnreadableImages(len(source), config.max_bad)
    stream = StreamedImages(source, replace(model.decoder, max_pixels=config.max_pixels), workers, unreadable)
    order = torch.arange(len(source)).split(config.batch_size)
    done = 0
    model.to(device)
    with table_writer(out, source) as writer:
        for index, batch in zip(order, stream.batches(order, device), strict=True):
            done += len(index)
            kept = [row for row, i in enumerate(index.tolist()) if i not in unreadable]
            if kept:
                writer.write(index[kept].tolist(), encode(model, batch if len(kept) == len(index) else batch[kept]))
            if on_progress:
                on_progress(done)
    return unreadable


def encode(model: SpacesModel, batch: Tensor) -> dict[str, Tensor]:
    """The features of a batch; where the GPU's memory is full, the error says what to change."""
    try:
        return model.encode(batch)
    except torch.OutOfMemoryError:
        raise UnweaveError(f"the GPU's memory is full: use a smaller `batch_size` than {len(batch)}") from None


def usable_device(name: str) -> torch.device:
    """The device with this name, or for "auto" a GPU if there is one; raises where it cannot be used.

    Examples:
        >>> usable_device("cpu")
        device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except Exception as error:  # the backends of torch raise nearly any error
        reason = " ".join(str(error).split()).split(". ")[0][:120]
        raise UnweaveError(f"`device` {name!r} cannot be used on this machine ({reason}); use cpu or auto") from None
    return device
