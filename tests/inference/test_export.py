"""Exports of models made by hand are loaded again; damaged files are refused in one line."""

import json
import random
import resource
import shutil
import signal

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import unweave as uw
from processes import Child, command
from small_models import VIEWS, Invert, OwnEncoder, small_model
from unweave.errors import UnweaveError
from unweave.inference import SpacesModel, export_model

IMAGES = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def same_features(one, two):
    with torch.no_grad():
        a, b = one(IMAGES), two(IMAGES)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    out = tmp_path_factory.mktemp("exported")
    export_model(small_model(), out, onnx=False)
    return out


def test_a_model_made_by_hand_is_loaded_from_its_export_and_exported_again(exported, tmp_path):
    model = uw.load(exported)
    assert same_features(model, small_model())
    assert (model.spaces, model.input_shape) == (VIEWS.spaces, (3, 16, 16))
    export_model(model, tmp_path, onnx=False)
    assert (tmp_path / "model.json").read_bytes() == (exported / "model.json").read_bytes()
    assert same_features(uw.load(tmp_path), model)


def test_modules_of_ones_own_are_given_to_load(tmp_path):
    model = SpacesModel(OwnEncoder(), [Invert(), *VIEWS.preparation], (3, 16, 16))
    assert (model.outputs, model.spaces) == (("h", "mine"), ("mine",))
    export_model(model, tmp_path)
    encoder = OwnEncoder()
    nn.init.zeros_(encoder.linear.weight)
    with pytest.raises(UnweaveError, match=r"uw\.load\(path, encoder=…\)"):
        uw.load(tmp_path)
    with pytest.raises(UnweaveError, match=r"uw\.load\(path, preparation=\[…\]\)"):
        uw.load(tmp_path, encoder=encoder)
    again = uw.load(tmp_path, encoder=encoder, preparation=model.preparation)
    assert again.spaces == ("mine",)
    assert same_features(again, model)
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    found = session.run(["mine"], {"images": IMAGES.numpy()})[0]
    torch.testing.assert_close(torch.from_numpy(found), model(IMAGES)["mine"].detach())


def test_an_own_backbone_within_an_encoder_is_given_to_load(tmp_path):
    def make(seed):
        torch.manual_seed(seed)
        backbone = nn.Sequential(nn.Flatten(), nn.Linear(768, 5))
        return uw.Encoder(backbone, ("content",), dim=2, hidden=4, feature_dim=5)

    model = SpacesModel(make(0), VIEWS.preparation, (3, 16, 16))
    export_model(model, tmp_path, onnx=False)
    assert same_features(uw.load(tmp_path, encoder=make(1)), model)


def test_a_model_without_weights_is_exported(tmp_path):
    model = SpacesModel(nn.Identity(), input_shape=(3, 16, 16))
    model.encoder.forward = lambda images: {"h": images.mean((2, 3))}
    export_model(model, tmp_path, onnx=False)
    encoder = nn.Identity()
    encoder.forward = model.encoder.forward
    assert same_features(uw.load(tmp_path, encoder=encoder), model)


def test_exporting_keeps_the_models_mode_and_what_is_not_a_model_is_refused(tmp_path):
    model = small_model().train()
    export_model(model, tmp_path)
    assert model.training
    assert model.encoder.backbone.training
    with pytest.raises(UnweaveError, match="`preparation`"):
        SpacesModel(OwnEncoder(), [torch.relu], (3, 16, 16))
    with pytest.raises(UnweaveError, match="`input_shape`"):
        SpacesModel(OwnEncoder(), [], (16, 16))
    with pytest.raises(UnweaveError, match="3 means for images with 4 channels"):
        SpacesModel(OwnEncoder(), VIEWS.preparation, (4, 16, 16))
    with pytest.raises(UnweaveError, match="dictionary"):
        _ = SpacesModel(nn.Flatten(), [], (3, 16, 16)).spaces


def mutated(text, rng):
    """The text with bytes changed, or its JSON with a value changed, removed or added."""
    kind = rng.randrange(3)
    if kind == 0:
        return text[: rng.randrange(len(text))]
    if kind == 1:
        place = rng.randrange(len(text))
        return text[:place] + rng.choice('{}[]",:x0 \n\t\x00é') + text[place + rng.randrange(2) :]
    data = json.loads(text)
    places = []

    def walk(value):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            places.append((value, key))
            if isinstance(item, (dict, list)):
                walk(item)

    walk(data)
    owner, key = rng.choice(places)
    values = [None, "x", -1, 0, 3, 0.5, [], {}, [1], {"class": "unweave.models.Encoder"}, True, "unweave.nowhere.X"]
    if rng.random() < 0.3:
        del owner[key]
    else:
        owner[key] = rng.choice(values)
    return json.dumps(data)


@pytest.mark.parametrize("checked", [True, False], ids=["with the digest", "without the digest"])
def test_a_damaged_description_is_one_line(exported, tmp_path, checked):
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    text, expected = (exported / "model.json").read_text(), uw.load(exported)
    if not checked:
        save_file(load_file(exported / "model.safetensors"), tmp_path / "model.safetensors")
    rng, errors = random.Random(0), []
    for _ in range(200):
        damaged = mutated(text, rng)
        (tmp_path / "model.json").write_text(damaged)
        try:
            model = uw.load(tmp_path)
        except UnweaveError as error:
            errors.append(str(error))
        else:
            if checked:
                assert json.loads(damaged) == json.loads(text)
                assert same_features(model, expected)
    assert all("\n" not in error and str(tmp_path) in error for error in errors)
    assert len(errors) > (170 if checked else 100)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "3", "{}", "[" * 100_000, '{"encoder": 3, "preparation": 4, "input_shape": 5}', "\udcff"]
)
def test_a_description_of_a_wrong_kind_is_one_line(exported, tmp_path, text):
    save_file(load_file(exported / "model.safetensors"), tmp_path / "model.safetensors")
    (tmp_path / "model.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UnweaveError, match=str(tmp_path)) as error:
        uw.load(tmp_path)
    assert "\n" not in str(error.value)


def test_missing_and_foreign_weights_are_one_line(exported, tmp_path):
    shutil.copy(exported / "model.json", tmp_path)
    with pytest.raises(UnweaveError, match=r"model\.safetensors cannot be read"):
        uw.load(tmp_path)
    export_model(small_model(size=24), tmp_path, onnx=False)
    shutil.copy(exported / "model.json", tmp_path)
    with pytest.raises(UnweaveError, match="not the description that belongs"):
        uw.load(tmp_path)
    save_file({"x": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(UnweaveError, match="do not fit the encoder") as error:
        uw.load(tmp_path)
    assert "\n" not in str(error.value)
    (tmp_path / "model.json").unlink()
    with pytest.raises(UnweaveError, match=r"has no model\.json"):
        uw.load(tmp_path)
    with pytest.raises(UnweaveError, match="it is a file"):
        uw.load(tmp_path / "model.safetensors")


def export_to_a_full_disk(run, out):
    """A limit on the size of files has the effect of a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
    return command(["export", run, "--out", out, "--no-onnx"])


def test_an_export_to_a_full_disk_is_one_line_and_leaves_nothing(exported, tmp_path):
    done = Child(tmp_path / "child", export_to_a_full_disk, str(exported), str(tmp_path / "out")).wait()
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list((tmp_path / "out").iterdir()) == []
    done = Child(tmp_path / "child", command, ["export", str(exported), "--out", "/dev/full"]).wait()
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
