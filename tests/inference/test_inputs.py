"""An image has one embedding, whatever it is passed as."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from small_models import photograph, save_pictures, small_model
from unweave.data import open_source
from unweave.errors import UnweaveError
from unweave.inference import SpacesModel


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return save_pictures(tmp_path_factory.mktemp("pictures"))


def equal(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_one_image_has_the_same_bits_as_a_path_text_bytes_and_pil(model, pictures):
    for path in pictures:
        expected = model.embed(path)
        assert {name: z.shape for name, z in expected.items()} == {"h": (16,), "content": (3,), "hue": (2,)}
        for same in (str(path), path.read_bytes(), Image.open(path)):
            assert equal(model.embed(same), expected), path.name


def test_pixels_have_the_same_bits_as_an_array_and_a_tensor(model):
    for size in ((50, 37), (300, 200), (16, 16)):
        picture = photograph(*size)
        array = np.asarray(picture)
        tensor = torch.tensor(array).permute(2, 0, 1)
        expected = model.embed(picture)
        for same in (array, tensor, tensor.float() / 255, tensor.contiguous(), array[:, ::-1][:, ::-1]):
            assert equal(model.embed(same), expected), size
    gray = photograph(30, 20).convert("L")
    assert equal(model.embed(np.asarray(gray)), model.embed(gray))


@pytest.mark.filterwarnings("error::UserWarning")  # torch warns of arrays it must not write to
def test_lists_may_be_mixed_and_folders_and_tables_give_the_same_rows(model, pictures, tmp_path):
    folder = pictures[0].parent
    expected = model.embed(folder)
    assert expected["content"].shape == (len(pictures), 3)
    mixed = [
        str(pictures[0]), Image.open(pictures[1]), np.asarray(Image.open(pictures[2])), pictures[3],
        torch.tensor(np.asarray(Image.open(pictures[4]).convert("RGB"))).permute(2, 0, 1), pictures[5].read_bytes(),
    ]  # fmt: skip
    (folder.parent / "list.csv").write_text("path\n" + "\n".join(map(str, pictures)))
    pq.write_table(pa.table({"image": [p.read_bytes() for p in pictures]}), tmp_path / "x.parquet")
    glob, dataset = f"{folder}/*", [(Image.open(p), 0) for p in pictures]
    for same in (
        mixed, tuple(mixed), pictures, iter(pictures), glob, folder.parent / "list.csv", tmp_path / "x.parquet",
        open_source(folder), dataset, DataLoader(dataset, batch_size=2),
    ):  # fmt: skip
        assert equal(model.embed(same), expected), same
    assert model.embed([pictures[0]])["content"].shape == (1, 3)


def test_batches_of_arrays_and_tensors(model):
    pixels = np.stack([np.asarray(photograph(24, 20, seed)) for seed in range(5)])
    expected = model.embed([Image.fromarray(image) for image in pixels], batch_size=2)
    assert expected["hue"].shape == (5, 2)
    assert equal(model.embed(pixels, batch_size=2), expected)
    assert equal(model.embed(torch.from_numpy(pixels).permute(0, 3, 1, 2), batch_size=2), expected)
    exact = torch.rand(4, 3, 16, 16)
    with torch.no_grad():
        assert equal(model.embed(exact), model(exact))  # used as it is, not rounded to 8 bits


def test_features_can_be_used_in_autograd(model):
    weight = torch.zeros(3, requires_grad=True)
    (model.embed(torch.rand(4, 3, 16, 16))["content"] @ weight).sum().backward()
    assert weight.grad is not None


def test_an_image_of_the_caller_is_not_changed(model, pictures):
    image, array = Image.open(pictures[1]), np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    before = array.copy()
    model.embed([image, array])
    assert image.size == (300, 200)
    assert (array == before).all()


@pytest.mark.parametrize(
    ("images", "words"),
    [
        ("nowhere.jpg", "nowhere.jpg"),
        (["nowhere.jpg"], "nowhere.jpg"),
        ([Image.new("RGB", (9, 9)), "no\nwhere.jpg"], "image 1"),
        (b"nonsense", "cannot be read"),
        ([], "empty"),
        (torch.full((3, 16, 16), 200.0), "in \\[0, 1\\]"),
        (np.full((20, 16, 3), 200.0), "in \\[0, 1\\]"),
        (np.zeros((20, 16, 5), np.uint8), "5 channels"),
        (torch.zeros(3, 20, 20, dtype=torch.int64), "int64"),
        ([3.5], "float"),
        (np.zeros((2, 2, 2, 2, 2), np.uint8), "shape"),
    ],
)
def test_what_is_not_an_image_is_one_line(model, images, words):
    with pytest.raises(UnweaveError, match=words) as error:
        model.embed(images)
    assert "\n" not in str(error.value)


def test_large_images_are_refused_before_they_are_decoded(model, pictures):
    with pytest.raises(UnweaveError, match="`max_pixels`"):
        model.embed(pictures[1], max_pixels=1000)
    for wrong in ({"batch_size": 0}, {"workers": -1}, {"max_pixels": 0}):
        with pytest.raises(UnweaveError, match=f"`{next(iter(wrong))}`"):
            model.embed(pictures[0], **wrong)


def test_images_with_five_channels_are_arrays(tmp_path):
    model = small_model(channels=5, preparation=())
    arrays = np.random.default_rng(0).integers(0, 256, (3, 20, 24, 5), dtype=np.uint8)
    for i, array in enumerate(arrays):
        np.save(tmp_path / f"{i}.npy", array)
    expected = model.embed(arrays)
    assert equal(model.embed(tmp_path), expected)
    assert torch.allclose(model.embed(tmp_path / "1.npy")["h"], expected["h"][1], atol=1e-6)


def test_a_model_whose_input_is_not_square_embeds_tensors_alone(model, pictures):
    wide = SpacesModel(torch.nn.Identity(), [], (3, 8, 12))
    wide.encoder.forward = lambda images: {"h": images.mean((2, 3))}
    images = torch.rand(2, 3, 8, 12)
    torch.testing.assert_close(wide.embed(images)["h"], images.mean((2, 3)))
    assert wide.preprocessing["resize"] is None
    with pytest.raises(UnweaveError, match="8×12"):
        wide.embed(pictures[0])
