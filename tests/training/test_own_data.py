"""Images that a user has, given to ``uw.train`` and ``uw.pretrain``; and the identity of the images of a run."""

import csv
import os
import shutil
import signal

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import small_runs as small
import unweave as uw
import unweave.augment as A
from unweave.errors import UnweaveError


def cropping_views():
    return uw.Views(
        {"color": [A.ColorJitter(hue=0.5)], "spatial": [A.RandomResizedCrop(16)]},
        ungrouped=[A.Normalize((0.5,) * 3, (0.5,) * 3)],
    )


def train(images, out, **settings):
    views = cropping_views()
    encoder = small.encoder(views.spaces)
    config = small.config(**{"steps": 2, **settings})
    return uw.train(images, views, encoder, small.objective(views.spaces), config, out, progress=False), encoder


def paths_in(folder):
    return sorted(folder.rglob("*.jpg"))


def write_csv(path, folder):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("path", "label"))
        writer.writerows((image, image.parent.name) for image in paths_in(folder))
    return path


def test_files_in_any_form_are_the_same_images(photo_folder, tmp_path):
    sources = [
        photo_folder,
        str(photo_folder),
        paths_in(photo_folder),
        [str(path) for path in paths_in(photo_folder)],
        write_csv(tmp_path / "images.csv", photo_folder),
    ]
    trained = [train(source, tmp_path / str(i))[1].state_dict() for i, source in enumerate(sources)]
    for other in trained[1:]:
        assert all(torch.equal(other[name], trained[0][name]) for name in other)


def test_pretrain_takes_lists_data_sets_and_loaders(photo_folder, tmp_path):
    class Photos(torch.utils.data.Dataset):
        def __len__(self):
            return 24

        def __getitem__(self, i):
            return Image.open(paths_in(photo_folder)[i]), i % 2

    settings = {**small.PHOTOS, "epochs": 1, "probe": "none", "progress": False}
    for i, data in enumerate((paths_in(photo_folder), Photos(), DataLoader(Photos(), batch_size=4, collate_fn=list))):
        assert uw.pretrain(data, tmp_path / str(i), **settings).steps > 0
        assert uw.load(tmp_path / str(i)).embed(paths_in(photo_folder)[0])["content"].shape[-1] == 8


def test_train_takes_tensors_and_a_data_set_of_tensors(tmp_path):
    images = torch.randint(256, (24, 3, 20, 20), dtype=torch.uint8)
    one, two = (
        train(source, tmp_path / name)[1].state_dict()
        for name, source in (("tensor", images), ("data set", TensorDataset(images)))
    )
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_files_need_views_with_a_size(photo_folder, tmp_path):
    views = small.views()
    encoder, objective = small.encoder(views.spaces), small.objective(views.spaces)
    with pytest.raises(UnweaveError, match="add a crop"):
        uw.train(photo_folder, views, encoder, objective, small.config(), tmp_path)


def test_as_many_other_images_are_not_the_same_run(photo_folder, tmp_path):
    photos = tmp_path / "photos"
    shutil.copytree(photo_folder, photos)
    settings = {"epochs": 1, "probe": "none"}
    small.pretrain(photos, tmp_path / "run", **settings)
    assert small.pretrain(photos, tmp_path / "run", **settings).resumed_from > 0
    for path in paths_in(photos):
        Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(path)
    with pytest.raises(UnweaveError, match="`allow_other_data`"):
        small.pretrain(photos, tmp_path / "run", **settings)
    assert small.pretrain(photos, tmp_path / "run", **settings, allow_other_data=True).resumed_from > 0


def test_another_tensor_is_not_the_same_run(tmp_path):
    images = torch.randint(256, (24, 3, 20, 20), dtype=torch.uint8)
    train(images, tmp_path)
    with pytest.raises(UnweaveError, match="`allow_other_data`"):
        train(images.flip(0), tmp_path)


@pytest.mark.parametrize("method", ["barlow-twins"])
def test_refusals_come_before_decoding(photo_folder, tmp_path, monkeypatch, method):
    from unweave.data import deferred

    def decoded(*_, **__):
        raise AssertionError("decoded")

    monkeypatch.setattr(deferred, "load_images", decoded)
    with pytest.raises(UnweaveError, match="`batch_size`"):
        small.pretrain(photo_folder, tmp_path / "a", method=method, batch_size=1)
    with pytest.raises(UnweaveError, match="number of images, 60"):
        small.pretrain(photo_folder, tmp_path / "b", batch_size=61)


def test_a_finished_run_says_how_to_train_longer(photo_folder, tmp_path):
    settings = {"epochs": 1, "probe": "none"}
    small.pretrain(photo_folder, tmp_path / "run", **settings)
    with pytest.raises(UnweaveError, match=r"`init`.*`out`"):
        small.pretrain(photo_folder, tmp_path / "run", **{**settings, "epochs": 2})
    longer = small.pretrain(photo_folder, tmp_path / "longer", **settings, init=str(tmp_path / "run"))
    assert longer.steps == 5


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_run_on_streamed_images_with_dropout_is_the_uninterrupted_one(
    photo_folder, tmp_path, workers, one_thread
):
    from unweave.data import load_images, open_source

    def run(out, stop_after=None):
        torch.manual_seed(0)
        images = load_images(open_source(photo_folder), 20, cache="none", workers=workers)
        views = cropping_views()

        class Stopping:
            every = 1

            def __call__(self, encoder):
                self.step = getattr(self, "step", 0) + 1
                if self.step == stop_after:
                    os.kill(os.getpid(), signal.SIGTERM)
                return {}

        encoder, objective = small.encoder(views.spaces, dropout=0.5), small.objective(views.spaces)
        config = small.config(steps=8)
        done = uw.train(images, views, encoder, objective, config, out, evaluation=Stopping(), progress=False)
        return done, encoder.state_dict()

    expected = run(tmp_path / "whole")[1]
    assert run(tmp_path / "parts", stop_after=3)[0].stopped
    torch.rand(7)  # what was drawn between the two starts does not matter
    done, resumed = run(tmp_path / "parts")
    assert 0 < done.resumed_from < 8
    assert all(torch.equal(resumed[name], expected[name]) for name in expected)
