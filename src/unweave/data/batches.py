"""Batches of images for the training loop: from tensors, data sets and data loaders.

The loop needs a ``BatchSource``; ``as_batch_source`` makes one from what users have.

Legend: n images in a batch.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from unweave.data.identity import identify_tensor
from unweave.data.prefetch import empty_for, prefetch
from unweave.data.resources import default_workers
from unweave.errors import UnweaveError

IMAGE_KEYS = ("image", "img", "images", "pixel_values")
"""Keys under which a dictionary may hold its image."""


class BatchOrder(Protocol):
    """The images of each step of a run, as index tensors."""

    first_step: int
    last_step: int
    batch_size: int
    """Images per step in this process."""

    def __iter__(self) -> Iterator[Tensor]: ...
    def epoch_seed(self, epoch: int) -> int:
        """A seed for each pass over the data."""
        ...


class BatchSource(Protocol):
    """Something that has a number of images and yields them in batches.

    It may have two more members: ``identity``, a text by which a resumed run recognises the images, and
    ``prepare(device)``, which the loop calls once everything was checked and before the first batch.

    Examples:
        >>> import torch, unweave as uw
        >>> class Noise:
        ...     def __len__(self):
        ...         return 100
        ...     def batches(self, order, device):
        ...         return (torch.rand(len(index), 3, 8, 8, device=device) for index in order)
        >>> [batch.shape for batch in Noise().batches([torch.arange(4)], "cpu")]
        [torch.Size([4, 3, 8, 8])]
    """

    def __len__(self) -> int:
        """The number of images."""
        ...

    def batches(self, order: Any, device: torch.device) -> Iterator[Tensor]:
        """The images (n, c, h, w), uint8 or float in [0, 1], of each index of ``order``, on ``device``."""
        ...


def as_batch_source(images: Any) -> BatchSource:
    """A batch source from a tensor of images, a ``Dataset``, a ``DataLoader``, or an object indexed by tensors.

    Items and batches may be images, tuples whose first entry is the image, or dictionaries with an image.

    Examples:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> len(as_batch_source(TensorDataset(torch.rand(6, 3, 8, 8), torch.arange(6))))
        6
    """
    if hasattr(images, "batches"):
        return images
    if isinstance(images, Tensor):
        return TensorImages(images)
    if isinstance(images, DataLoader):
        return DataLoaderImages(images)
    if isinstance(images, IterableDataset):
        raise UnweaveError("an IterableDataset has no order of its own: pass a DataLoader of it")
    if not (hasattr(images, "__len__") and hasattr(images, "__getitem__")):
        raise UnweaveError(
            f"`images` must be a tensor, a Dataset, a DataLoader, or have a length and items, not {type(images)}"
        )
    return DatasetImages(images) if isinstance(images, (Dataset, list, tuple)) else IndexedImages(images)


class TensorImages:
    """Images in one tensor (n, c, h, w), on the GPU or in memory.

    Examples:
        >>> import torch
        >>> images = TensorImages(torch.rand(6, 3, 8, 8))
        >>> next(images.batches([torch.arange(4)], torch.device("cpu"))).shape
        torch.Size([4, 3, 8, 8])
    """

    def __init__(self, images: Tensor, identity: str | None = None) -> None:
        self.images, self._identity = images, identity

    @property
    def identity(self) -> str:
        """By which a resumed run recognises the images."""
        if self._identity is None:
            self._identity = identify_tensor(self.images)
        return self._identity

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Tensor) -> Tensor:
        return self.images[index.to(self.images.device)].to(index.device)

    def batches(self, order: Iterable[Tensor], device: torch.device) -> Iterator[Tensor]:
        """The images of each index in turn, on ``device``."""
        here, shape = self.images.device, self.images.shape[1:]
        if here == device or here.type != "cpu" or self.images.dtype != torch.uint8:
            return (self.images[index.to(here, non_blocking=True)].to(device) for index in order)
        gathered = (
            torch.index_select(self.images, 0, index, out=empty_for(device, len(index), *shape)) for index in order
        )
        return prefetch(gathered, device)


class IndexedImages:
    """Images of an object that accepts an index tensor (n,) and returns images (n, c, h, w), as ``Sprites`` does.

    Examples:
        >>> import torch, unweave as uw
        >>> source = IndexedImages(uw.Sprites(size=16))
        >>> next(source.batches([torch.arange(2)], torch.device("cpu"))).shape
        torch.Size([2, 3, 16, 16])
    """

    def __init__(self, images: Any) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def batches(self, order: Iterable[Tensor], device: torch.device) -> Iterator[Tensor]:
        """The images of each index in turn, on ``device``."""
        return (self._images[index.to(device, non_blocking=True)] for index in order)


class DatasetImages:
    """Images of a map-style ``Dataset`` or a list, loaded by worker processes in the order of the training loop.

    Examples:
        >>> import torch
        >>> from PIL import Image
        >>> dataset = [(Image.new("RGB", (8, 8)), "label") for _ in range(5)]
        >>> next(DatasetImages(dataset, workers=0).batches([torch.tensor([4, 2])], torch.device("cpu"))).shape
        torch.Size([2, 3, 8, 8])
    """

    def __init__(self, dataset: Any, *, workers: int | None = None) -> None:
        self._dataset = dataset
        self._workers = default_workers() if workers is None else workers

    def __len__(self) -> int:
        return len(self._dataset)

    def batches(self, order: Iterable[Tensor], device: torch.device) -> Iterator[Tensor]:
        """The images of each index in turn, on ``device``."""
        loader = DataLoader(
            self._dataset,
            batch_sampler=_Lists(order),
            collate_fn=_stack_or_error,
            num_workers=self._workers,
            pin_memory=device.type == "cuda",
            generator=torch.Generator(),  # without one, the loader would draw from the global generator
        )
        for batch in loader:
            if isinstance(batch, UnweaveError):
                raise batch
            yield batch.to(device, non_blocking=True)


class _Lists:
    """A batch sampler from index tensors."""

    def __init__(self, order: Iterable[Tensor]) -> None:
        self._order = order

    def __iter__(self) -> Iterator[list[int]]:
        return (index.tolist() for index in self._order)


class DataLoaderImages:
    """Images of a ``DataLoader``, in its own order and with its own batch size.

    Each pass over the loader is seeded, so that a run which resumes repeats the order and skips the batches it has
    seen. Under several processes the loader needs a ``DistributedSampler``. Incomplete batches are dropped.

    Examples:
        >>> import torch
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> len(DataLoaderImages(DataLoader(TensorDataset(torch.rand(6, 3, 8, 8)), batch_size=2)))
        6
    """

    def __init__(self, loader: "DataLoader[Any]") -> None:
        self._loader = loader

    def __len__(self) -> int:
        try:
            return len(self._loader.dataset)  # type: ignore[arg-type]
        except TypeError:
            raise UnweaveError("the data set of this DataLoader has no length: set `steps`") from None

    def batches(self, order: BatchOrder, device: torch.device) -> Iterator[Tensor]:
        """The loader's batches from ``order.first_step`` on."""
        step, epoch = 0, 0
        while step < order.last_step:
            before = step
            for batch in self._epoch(order.epoch_seed(epoch), epoch):
                images = image_of(batch)
                if not isinstance(images, Tensor):
                    raise UnweaveError(f"the DataLoader's batches must hold a tensor, not {type(images).__name__}")
                if len(images) < order.batch_size and step > before:
                    continue  # the last one of a pass
                if len(images) != order.batch_size:
                    raise UnweaveError(
                        f"the DataLoader has batches of {len(images)} images, `batch_size` is {order.batch_size} in "
                        "each process; make them equal"
                    )
                step += 1
                if step > order.first_step:
                    yield images.to(device, non_blocking=True)
                if step == order.last_step:
                    return
            epoch += 1
            if step == before:
                raise UnweaveError("the DataLoader has no batches")

    def _epoch(self, seed: int, epoch: int) -> Iterator[Any]:
        """One pass over the loader. It draws its order when it is created or when its first batch is requested."""
        if hasattr(self._loader.sampler, "set_epoch"):
            self._loader.sampler.set_epoch(epoch)
        if self._loader.generator is not None:
            self._loader.generator.manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            batches = iter(self._loader)
            first = next(batches, None)
        if first is not None:
            yield first
            yield from batches


def image_of(item: Any) -> Any:
    """The image of a data set's item: itself, the first entry of a tuple, or a dictionary's image."""
    if isinstance(item, Mapping):
        for key in IMAGE_KEYS:
            if key in item:
                return item[key]
        raise UnweaveError(f"a dictionary with the keys {sorted(map(str, item))} has no image under {IMAGE_KEYS}")
    return item[0] if isinstance(item, (tuple, list)) else item


def stack_images(items: Sequence[Any]) -> Tensor:
    """One tensor (n, c, h, w) from items of a data set."""
    images = [_as_tensor(image_of(item)) for item in items]
    shapes = {tuple(image.shape) for image in images}
    if len(shapes) > 1:
        raise UnweaveError(
            f"images of different shapes ({', '.join(map(str, sorted(shapes)))}) cannot be one batch; resize them in "
            "the data set's transform"
        )
    return torch.stack(images)


def _stack_or_error(items: Sequence[Any]) -> Tensor | UnweaveError:
    """A worker returns its error: raised there, the message would contain the worker's traceback."""
    try:
        return stack_images(items)
    except UnweaveError as error:
        return error


def _as_tensor(image: Any) -> Tensor:
    if isinstance(image, Tensor):
        return image
    if isinstance(image, Image.Image):
        image = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    if not isinstance(image, np.ndarray) or image.ndim not in (2, 3):
        raise UnweaveError(f"an image must be a tensor, a PIL image or an array, not {type(image).__name__}")
    tensor = torch.from_numpy(np.array(image))
    return tensor[None] if tensor.ndim == 2 else tensor.permute(2, 0, 1)
