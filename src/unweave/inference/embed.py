"""``unweave embed``: the features of every image as a table."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unweave.data.identity import identify_source
from unweave.data.loading import StreamedImages
from unweave.data.resources import default_workers
from unweave.data.sources import open_source
from unweave.data.sources.base import Source
from unweave.data.unreadable import UnreadableImages
from unweave.distributed import this_process
from unweave.errors import UnweaveError
from unweave.files import remove_partial_writes
from unweave.inference.config import EmbedConfig
from unweave.inference.folder import EmbeddingFolder, check_folder, identify, is_folder
from unweave.inference.model import SpacesModel
from unweave.inference.tables import TableWriter, check_names, check_not_source, check_output, table_writer
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

    In Parquet files features are lists of float32 or float16; in a CSV file they are columns ``content_0``,
    ``content_1``, … ``label`` is the number of the class and ``class_name`` its name; both are null where there is
    none.

    Args:
        model: the model, which is moved to the device.
        images: what ``open_source`` takes.
        out: a file that ends with .parquet or .csv, and without an ending is Parquet. Or a folder: a name that ends
            with a slash, an empty folder, one to be resumed, or a name without an ending where torchrun or Slurm have
            started several processes.
        config: the settings to start from.
        on_progress: called with the number of images done so far, in a folder those of all complete files included.
        settings: settings to change, by name, as the flags of ``unweave embed``.

    Returns:
        The images that cannot be read, which have no row.

    Raises:
        UnweaveError: more images cannot be read than ``max_bad`` allows, or the folder's files are of another model,
            of other images or of other settings.

    Notes:
        A folder gets several Parquet files (see inference/folder.py), and the same call resumes it after an
        interruption. Several processes write different files, of the rows that one process would write.

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
    in_folder, out = is_folder(out), Path(out)
    device = usable_device(config.device)
    check_names(model.spaces)
    check_folder(out) if in_folder else check_output(out)
    source = open_source(images, channels=model.input_shape[0], random_access=False)
    check_not_source(out, source)
    embedding = _Embedding(model, source, config, device, UnreadableImages(len(source), config.max_bad))
    report = on_progress or (lambda done: None)
    if in_folder:
        _embed_to_folder(embedding, out, report)
    else:
        with table_writer(out, dtype=config.dtype) as writer:
            embedding.write(writer, range(len(source)), report)
            if not writer.rows:
                raise UnweaveError("none of the images can be read")
    return embedding.unreadable


@dataclass(frozen=True)
class _Embedding:
    """Images on their way through a model."""

    model: SpacesModel
    source: Source
    config: EmbedConfig
    device: torch.device
    unreadable: UnreadableImages

    def write(self, writer: TableWriter, numbers: range, on_progress: Callable[[int], None]) -> None:
        """Writes the rows of the images with these numbers."""
        self.model.to(self.device)
        decoder = replace(self.model.decoder, max_pixels=self.config.max_pixels)
        workers = default_workers() if self.config.workers is None else self.config.workers
        done = 0
        with ThreadPoolExecutor(1) as reader:
            windows = self._windows(numbers)
            following = reader.submit(next, windows, None)
            while (window := following.result()) is not None:
                some, source = window
                stream = StreamedImages(source, decoder, workers, self.unreadable, substitute=False)
                order = torch.arange(some.start, some.stop).split(self.config.batch_size)
                batches = stream.batches(order, self.device)
                # Only now, so that no thread reads while the workers are forked.
                following = reader.submit(next, windows, None)
                for index, batch in zip(order, batches, strict=True):
                    features = _features(self.model, batch)
                    kept = [row for row, i in enumerate(index.tolist()) if i not in self.unreadable]
                    writer.write(source, index[kept].tolist(), {name: z[kept] for name, z in features.items()})
                    done += len(index)
                    if kept:
                        on_progress(done)

    def _windows(self, numbers: range) -> Iterator[tuple[range, Source]]:
        """Images in order, with a source from which they can be read by worker processes."""
        in_order = getattr(self.source, "in_order", None)
        return iter([(numbers, self.source)]) if in_order is None else in_order(numbers, self.config.batch_size)


def _embed_to_folder(embedding: _Embedding, out: Path, on_progress: Callable[[int], None]) -> None:
    source, unreadable, config = embedding.source, embedding.unreadable, embedding.config
    images = getattr(source, "identity", None) or identify_source(source)
    folder = EmbeddingFolder.start(out, identify(embedding.model, images, config), len(source), config)
    folder.add_unreadable(unreadable)
    unreadable.require_few()
    for part in folder.share(this_process()):
        remove_partial_writes(folder.file(part))
        with table_writer(folder.file(part), dtype=config.dtype) as writer:
            embedding.write(writer, folder.numbers(part), _added_to(folder.images_done(), on_progress))
            folder.save_unreadable(part, unreadable)
    on_progress(folder.images_done())
    folder.add_unreadable(unreadable)  # of the other processes
    unreadable.require_few()
    if len(unreadable) == folder.images:
        raise UnweaveError("none of the images can be read")


def _added_to(before: int, on_progress: Callable[[int], None]) -> Callable[[int], None]:
    """Reports progress of a part after that of others."""
    return lambda done: on_progress(before + done)


def _features(model: SpacesModel, batch: Tensor) -> dict[str, Tensor]:
    try:
        return model.encode(batch)
    except torch.OutOfMemoryError:
        raise UnweaveError(f"the GPU's memory is full: use a smaller `batch_size` than {len(batch)}") from None


def usable_device(name: str) -> torch.device:
    """The device with this name; raises where it cannot be used.

    For "auto" it is a GPU if there is one. "auto" and "cuda" give the processes of a machine different GPUs.

    Examples:
        >>> usable_device("cpu")
        device(type='cpu')
    """
    if name in ("auto", "cuda") and torch.cuda.is_available():
        place = this_process()
        name = f"cuda:{place.local_rank % torch.cuda.device_count()}" if place.count > 1 else "cuda"
    elif name == "auto":
        name = "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except Exception as error:  # the backends of torch raise nearly any error
        reason = " ".join(str(error).split()).split(". ")[0][:120]
        raise UnweaveError(f"`device` {name!r} cannot be used on this machine ({reason}); use cpu or auto") from None
    return device
