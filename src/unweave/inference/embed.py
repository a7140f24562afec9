"""``unweave embed``: the features of every image as a Parquet file."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from unweave._version import __version__
from unweave.data.loading import StreamedImages
from unweave.data.resources import default_workers
from unweave.data.sources.base import MISSING, Source, escape_name
from unweave.data.unreadable import UnreadableImages
from unweave.errors import UnweaveError
from unweave.files import atomic_write
from unweave.inference.model import SpacesModel
from unweave.settings import require_number


def embed_images(
    model: SpacesModel,
    source: Source,
    out: str | Path,
    *,
    batch_size: int = 256,
    device: torch.device | str = "cpu",
    workers: int | None = None,
    max_bad: float = 0.01,
    on_progress: Callable[[int], None] | None = None,
) -> UnreadableImages:
    """Writes a row for each image: ``path``, ``label`` (null where there is none), ``h`` and a column for each space.

    The features are lists of float32. Images that cannot be read have no row; they are returned.

    Examples:
        >>> import tempfile, unweave as uw
        >>> from PIL import Image
        >>> model = SpacesModel(uw.Encoder(uw.SmallConvNet(16), ("content",), dim=4), input_shape=(3, 16, 16))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Image.new("RGB", (20, 16), "red").save(f"{folder}/a.png")
        ...     unreadable = embed_images(model, uw.data.open_source(folder), f"{folder}/z.parquet", workers=0)
        ...     pq.read_table(f"{folder}/z.parquet").column_names
        ['path', 'label', 'h', 'content']
    """
    require_number("batch_size", batch_size, ">= 1")
    out, device = Path(out), torch.device(device)
    unreadable = UnreadableImages(len(source), max_bad)
    model.to(device)
    writer: pq.ParquetWriter | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(out) as temporary:
            try:
                for table in _tables(model, source, unreadable, batch_size, device, workers, on_progress):
                    writer = writer or pq.ParquetWriter(temporary, table.schema, compression="zstd")
                    writer.write_table(table)
                if writer is None:
                    raise UnweaveError("none of the images can be read")
            finally:
                if writer is not None:
                    writer.close()
    except OSError as error:
        raise UnweaveError(f"cannot write {out}: {error.strerror or error}") from None
    return unreadable


def _tables(
    model: SpacesModel,
    source: Source,
    unreadable: UnreadableImages,
    batch_size: int,
    device: torch.device,
    workers: int | None,
    on_progress: Callable[[int], None] | None,
) -> Iterator[pa.Table]:
    stream = StreamedImages(source, model.decoder, default_workers() if workers is None else workers, unreadable)
    order = torch.arange(len(source)).split(batch_size)
    done = 0
    for index, images in zip(order, stream.batches(order, device), strict=True):
        done += len(index)
        kept = [row for row, i in enumerate(index.tolist()) if i not in unreadable]
        if kept:
            with torch.inference_mode():
                features = model(images[kept])
            yield _table(source, index[kept].tolist(), features)
        if on_progress:
            on_progress(done)


def _table(source: Source, numbers: list[int], features: dict[str, Tensor]) -> pa.Table:
    labels = [None if source.labels is None else source.labels[i] for i in numbers]
    columns: dict[str, Any] = {
        "path": pa.array([escape_name(source.name(i)) for i in numbers], pa.string()),
        "label": pa.array([None if label == MISSING else label for label in labels], pa.int64()),
    }
    for space, z in features.items():
        flat = pa.array(z.float().cpu().contiguous().view(-1).numpy())
        columns[space] = pa.FixedSizeListArray.from_arrays(flat, z.shape[1])
    return pa.table(columns).replace_schema_metadata({"unweave": __version__})
