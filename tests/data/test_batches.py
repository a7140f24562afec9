"""Tensors, data sets and data loaders as sources of batches."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from unweave.data import DataLoaderImages, DatasetImages, TensorImages, as_batch_source
from unweave.errors import UnweaveError
from unweave.training.sampling import ShuffledOrder

N = 20
CPU = torch.device("cpu")
PIXELS = torch.arange(N, dtype=torch.uint8).view(N, 1, 1, 1).expand(N, 3, 4, 4).contiguous()
"""Image i has the value i."""


def numbers(batch):
    assert batch.shape[1:] == (3, 4, 4)
    return batch[:, 0, 0, 0].long().tolist()


class Items(Dataset):
    def __init__(self, item):
        self.item = item

    def __len__(self):
        return N

    def __getitem__(self, i):
        return self.item(i)


KINDS = {
    "tensor": lambda i: PIXELS[i],
    "tuple": lambda i: (PIXELS[i], i % 3, "name"),
    "list": lambda i: [PIXELS[i], i],
    "dict": lambda i: {"label": i, "image": PIXELS[i]},
    "pil": lambda i: (Image.fromarray(PIXELS[i].permute(1, 2, 0).numpy()), i),
    "palette": lambda i: Image.fromarray(PIXELS[i].permute(1, 2, 0).numpy()).convert("RGBA"),
    "array": lambda i: np.asarray(PIXELS[i].permute(1, 2, 0)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_map_style_data_set_is_read_in_the_order_asked_for(kind):
    source = as_batch_source(Items(KINDS[kind]))
    assert isinstance(source, DatasetImages)
    assert len(source) == N
    order = [torch.tensor([7, 3]), torch.tensor([0, 19, 5])]
    assert [numbers(batch) for batch in source.batches(order, CPU)] == [[7, 3], [0, 19, 5]]


def test_worker_processes_change_nothing():
    order = list(torch.randperm(N).split(4))
    batches = DatasetImages(Items(KINDS["tuple"]), workers=2).batches(order, CPU)
    assert [numbers(batch) for batch in batches] == [index.tolist() for index in order]


def test_a_list_is_a_data_set_and_a_tensor_is_indexed():
    assert isinstance(as_batch_source([KINDS["pil"](i) for i in range(4)]), DatasetImages)
    source = as_batch_source(PIXELS)
    assert isinstance(source, TensorImages)
    assert [numbers(b) for b in source.batches([torch.tensor([2, 9])], CPU)] == [[2, 9]]


def order(first=0, last=10, batch=4):
    return ShuffledOrder(images=N, global_batch=batch, seed=3, first_step=first, last_step=last)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_keeps_its_order_and_resumes_where_it_was(workers):
    loader = DataLoader(Items(KINDS["dict"]), batch_size=4, shuffle=True, num_workers=workers)
    source = as_batch_source(loader)
    assert isinstance(source, DataLoaderImages)
    whole = [numbers(batch) for batch in source.batches(order(), CPU)]
    assert len(whole) == 10
    for epoch in (whole[:5], whole[5:]):
        assert sorted(n for batch in epoch for n in batch) == list(range(N))
    assert whole[:5] != whole[5:]
    assert [numbers(batch) for batch in source.batches(order(first=7), CPU)] == whole[7:]


def test_a_data_loader_does_not_touch_the_global_generator():
    loader = DataLoader(Items(KINDS["tensor"]), batch_size=4, shuffle=True)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    list(as_batch_source(loader).batches(order(), CPU))
    assert torch.equal(torch.rand(3), expected)


def test_incomplete_batches_of_a_data_loader_are_dropped():
    loader = DataLoader(Items(KINDS["tensor"]), batch_size=6)
    batches = [numbers(b) for b in as_batch_source(loader).batches(order(last=4, batch=6), CPU)]
    assert [len(batch) for batch in batches] == [6, 6, 6, 6]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(PIXELS)


def test_a_stream_has_batches_but_no_length():
    source = as_batch_source(DataLoader(Stream(), batch_size=4))
    assert [numbers(b) for b in source.batches(order(last=6), CPU)][5] == [0, 1, 2, 3]
    with pytest.raises(UnweaveError, match="`steps`"):
        len(source)


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (7, "`images` must be"),
        (Stream(), "DataLoader"),
        (Items(lambda i: {"pixels": PIXELS[i]}), "no image under"),
        (Items(lambda i: torch.zeros(3, 4, 4 + i)), "different shapes"),
        (Items(lambda i: "a.jpg"), "must be a tensor, a PIL image or an array"),
        (DataLoader(TensorDataset(PIXELS), batch_size=5), "batches of 5 images, `batch_size` is 4"),
        (DataLoader(TensorDataset(PIXELS[:0]), batch_size=4), "no batches"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(images, words):
    with pytest.raises(UnweaveError, match=words) as error:
        list(as_batch_source(images).batches(order(), CPU))
    assert "\n" not in str(error.value)
