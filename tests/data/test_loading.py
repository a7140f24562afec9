"""Batches are the images that were asked for, in order, however they are made."""

import os
import shutil
import time

import numpy as np
import pytest
import torch
from PIL import Image

from processes import Child
from unweave.data import TensorImages, load_images, loading, open_source
from unweave.data.decode import Decoder, decode
from unweave.data.loading import StreamedImages
from unweave.data.unreadable import UnreadableImages
from unweave.errors import UnweaveError

N, SIZE = 75, 16


@pytest.fixture(autouse=True)
def _several_chunks_a_batch(monkeypatch):
    monkeypatch.setattr(loading, "CHUNK_BYTES", 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Image i is of the gray level 3·i."""
    path = tmp_path_factory.mktemp("images")
    for i in range(N):
        Image.new("RGB", (20, 24), (3 * i,) * 3).save(path / f"{i:03}.png")
    return path


def numbers(images: torch.Tensor) -> list[int]:
    assert images.dtype == torch.uint8
    assert images.shape[1:] == (3, SIZE, SIZE)
    return (images[:, 0, 0, 0] // 3).tolist()


@pytest.mark.parametrize("cache", ["ram", "none", "auto"])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_in_the_order_asked_for(folder, cache, workers):
    images = load_images(open_source(folder), SIZE, cache=cache, workers=workers)
    assert isinstance(images, StreamedImages if cache == "none" else TensorImages)
    assert len(images) == N
    order = [torch.randperm(N)[:n] for n in (70, 32, 1, 64)]
    assert [numbers(batch) for batch in images.batches(order, torch.device("cpu"))] == [o.tolist() for o in order]
    assert numbers(images[torch.tensor([4, 2])]) == [4, 2]


def test_workers_that_are_ahead_leave_alone_what_is_being_read(folder, monkeypatch):
    monkeypatch.setattr(loading, "CHUNK", 2)
    images = load_images(open_source(folder), SIZE, cache="none", workers=2)
    order = torch.randperm(N)[:60].split(2)
    for index, chunk in zip(order, images.chunks(order), strict=True):
        time.sleep(0.02)  # the workers fill all there is to fill
        assert numbers(chunk) == index.tolist()


def test_small_images_travel_in_larger_chunks(folder, monkeypatch):
    source = open_source(folder)
    assert StreamedImages(source, Decoder(size=SIZE), 0, UnreadableImages(N, 0.0)).chunk == 32
    monkeypatch.setattr(loading, "CHUNK_BYTES", 60 * 3 * SIZE**2)
    images = load_images(source, SIZE, cache="none", workers=0)
    assert images.chunk == 60
    assert [numbers(b) for b in images.batches([torch.arange(N)], torch.device("cpu"))] == [list(range(N))]


def test_pixels_are_the_decoders(folder):
    images = load_images(open_source(folder), SIZE, workers=0)
    expected = np.stack([decode(folder / f"{i:03}.png", SIZE) for i in range(N)])
    assert np.array_equal(images.images.permute(0, 2, 3, 1).numpy(), expected)


def test_workers_that_have_no_shared_memory_use_a_pipe(folder, monkeypatch):
    monkeypatch.setattr(loading, "free_shared_memory", lambda: 0)
    images = load_images(open_source(folder), SIZE, cache="none", workers=2)
    (batch,) = images.batches([torch.arange(40)], torch.device("cpu"))
    assert numbers(batch) == list(range(40))


def spoiled(folder, tmp_path, which):
    path = tmp_path / "spoiled"
    shutil.copytree(folder, path)
    for i in which:
        (path / f"{i:03}.png").write_bytes(b"" if i % 2 else b"no image at all")
    return path


@pytest.mark.parametrize("cache", ["ram", "none"])
def test_the_next_readable_image_stands_in_for_one_that_is_not(folder, tmp_path, cache):
    path = spoiled(folder, tmp_path, (3, 10, 11, 74))
    unreadable = UnreadableImages(N, 0.1, tmp_path / "unreadable.jsonl")
    images = load_images(open_source(path), SIZE, cache=cache, workers=2, unreadable=unreadable)
    (batch,) = images.batches([torch.tensor([2, 3, 10, 11, 12, 74])], torch.device("cpu"))
    assert numbers(batch) == [2, 4, 12, 12, 12, 0]
    again = UnreadableImages(N, 0.1, tmp_path / "unreadable.jsonl")
    assert sorted(again.found) == [3, 10, 11, 74]
    assert again.found[3] == ("003.png", "the file is empty")
    assert again.found[10][1].startswith("not an image")


@pytest.mark.parametrize(("cache", "listed"), [("ram", 20), ("none", 8)])
def test_too_many_bad_ones_stop_the_run_in_one_line_and_a_cache_lists_them_all(folder, tmp_path, cache, listed):
    path = spoiled(folder, tmp_path, range(20))
    unreadable = UnreadableImages(N, 0.1, tmp_path / "unreadable.jsonl")

    def read_all():
        images = load_images(open_source(path), SIZE, cache=cache, workers=2, unreadable=unreadable)
        list(images.batches([torch.arange(N)], torch.device("cpu")))

    with pytest.raises(
        UnweaveError, match=rf"{listed} of 75 images cannot be read, more than `max_bad` 0.1 allows"
    ) as error:
        read_all()
    assert "\n" not in str(error.value)
    assert len(UnreadableImages(N, 1.0, tmp_path / "unreadable.jsonl")) == listed


def test_a_folder_removed_while_it_is_read_is_one_line(folder, tmp_path):
    path = spoiled(folder, tmp_path, ())
    images = load_images(open_source(path), SIZE, cache="none", workers=2, unreadable=UnreadableImages(N, 1.0))
    batches = images.batches([torch.arange(N)] * 50, torch.device("cpu"))
    next(batches)
    shutil.rmtree(path)
    with pytest.raises(UnweaveError, match="was removed"):
        list(batches)


def test_a_batch_source_left_early_leaves_no_thread_behind(folder):
    import threading

    images = load_images(open_source(folder), SIZE, cache="none", workers=1)
    batches = images.batches([torch.arange(N)] * 50, torch.device("cpu"))
    next(batches)
    batches.close()
    assert not [t for t in threading.enumerate() if t.name == "unweave-prefetch" and t.is_alive()]


def test_caches_that_cannot_be_had(folder, monkeypatch):
    if not torch.cuda.is_available():
        with pytest.raises(UnweaveError, match="`cache` gpu: there is no GPU"):
            load_images(open_source(folder), SIZE, cache="gpu")
    monkeypatch.setattr(loading, "available_memory", lambda: 1000)
    with pytest.raises(UnweaveError, match="`cache` ram"):
        load_images(open_source(folder), SIZE, cache="ram")
    assert isinstance(load_images(open_source(folder), SIZE, cache="auto"), StreamedImages)


def test_our_research_data_streams_as_it_is_cached(shared_data):
    source = open_source(shared_data / "flowers102")
    cached = load_images(source, 64, cache="ram", workers=2)
    streamed = load_images(source, 64, cache="none", workers=2)
    order = [torch.randperm(len(source))[:100] for _ in range(3)]
    for a, b in zip(*(x.batches(order, torch.device("cpu")) for x in (cached, streamed)), strict=True):
        assert torch.equal(a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("cache", ["gpu", "ram", "none"])
def test_batches_reach_the_gpu_whole(folder, cache):
    device = torch.device("cuda", 0)
    images = load_images(open_source(folder), SIZE, cache=cache, workers=2, device=device)
    order = [torch.randperm(N)[:50] for _ in range(40)]
    for index, batch in zip(order, images.batches(order, device), strict=True):
        assert batch.device == device
        assert numbers(batch) == index.tolist()


def nice_of_a_worker():
    before = os.nice(0)
    loading.start_worker(0)
    return os.nice(0) - before


def test_workers_have_a_lower_priority_than_the_process_that_trains(tmp_path):
    assert Child(tmp_path, nice_of_a_worker).wait().returncode == 5
