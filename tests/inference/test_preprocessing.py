"""Another program that follows the exported description gives the same input and the same embeddings."""

import json

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

import unweave as uw
import unweave.augment as A
from small_models import save_pictures, small_model
from unweave.inference import describe_preprocessing, export_model


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    out = tmp_path_factory.mktemp("exported")
    export_model(small_model(), out)
    return out


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return save_pictures(tmp_path_factory.mktemp("pictures"))


def preprocess(path, said):
    """With Pillow and numpy, from the description alone."""
    with Image.open(path) as image:
        if said["exif_orientation"] == "applied":
            image = ImageOps.exif_transpose(image)
        if "A" in image.mode or "transparency" in image.info:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, said["background"]), image)
        image = image.convert(said["channels"])
    assert said["crop"] == "central square"
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    resize = said["resize"]
    image = image.crop((left, top, left + side, top + side)).resize(
        (resize["width"], resize["height"]),
        Image.Resampling[resize["filter"].upper()],
        reducing_gap=resize["reducing_gap"],
    )
    pixels = np.asarray(image, said["input"]["dtype"]) / np.float32(said["divide_by"])
    assert said["input"]["layout"] == "NCHW"
    return pixels.transpose(2, 0, 1)[None]


def test_the_written_steps_give_the_models_input(exported, pictures):
    said, model = json.loads((exported / "model.json").read_text())["preprocessing"], uw.load(exported)
    assert said["input"]["shape"][1:] == list(model.input_shape)
    for path in pictures:
        expected = model.decoder(path).transpose(2, 0, 1)[None] / 255
        assert abs(preprocess(path, said) - expected).max() <= 1.01 / 255, path.name


def test_the_written_normalisation_is_the_encoders(exported, pictures):
    said, model = json.loads((exported / "model.json").read_text())["preprocessing"], uw.load(exported)
    mean, std = (np.float32(said["normalize"][name])[:, None, None] for name in ("mean", "std"))
    images = preprocess(pictures[0], said)
    with torch.no_grad():
        z = model.encoder(torch.from_numpy((images - mean) / std))["content"]
        torch.testing.assert_close(z, model(torch.from_numpy(images))["content"])


def test_onnx_holds_its_preprocessing_and_gives_the_embeddings_of_files(exported, pictures):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(exported / "model.onnx"))
    said = json.loads(session.get_modelmeta().custom_metadata_map["preprocessing"])
    assert said == json.loads((exported / "model.json").read_text())["preprocessing"]
    images = np.concatenate([preprocess(path, said) for path in pictures])
    found = session.run(["content"], {said["input"]["name"]: images})[0]
    model = uw.load(exported)
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(found), model(torch.from_numpy(images))["content"])
    expected = model.embed(pictures)["content"]
    assert (torch.from_numpy(found) - expected).abs().max() < 0.02 * expected.abs().max()  # pixels are rounded


def test_a_normalisation_is_stated_only_where_it_is_all():
    normalize = A.Normalize((0.5,), (0.5,))
    assert describe_preprocessing((1, 8, 8), [])["normalize"] == {"mean": [0.0], "std": [1.0]}
    assert describe_preprocessing((1, 8, 8), [normalize])["normalize"] == {"mean": [0.5], "std": [0.5]}
    both = describe_preprocessing((1, 8, 8), [A.RandomSolarize(0.5, p=1.0), normalize])
    assert both["normalize"] is None
    assert len(both["inside_model"]) == 2
