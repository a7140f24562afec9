"""The model of a run gives the same features from its folder, its export and ONNX."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors import safe_open
from torch import nn

import unweave as uw
import unweave.augment as A
from processes import Child
from small_runs import CPU, photo_config, pretrain
from unweave.cli.main import main
from unweave.data import open_source
from unweave.data.decode import decode
from unweave.data.sources.base import MISSING
from unweave.errors import UnweaveError
from unweave.inference import SpacesModel, embed_images, export_model
from unweave.training import save_checkpoint

NAMES = ("h", "content", "spatial", "appearance")


@pytest.fixture(scope="module")
def trained(photo_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "run"
    pretrain(photo_folder, out, epochs=1, probe="none", backbone="test_resnet", depth=2)
    return out


@pytest.fixture(scope="module")
def images(photo_folder):
    paths = sorted(photo_folder.rglob("*.jpg"))[:9]
    return torch.from_numpy(np.stack([decode(path, 32) for path in paths])).permute(0, 3, 1, 2)


def test_loading_names_the_spaces_and_is_ready_to_use(trained, images):
    model = uw.load(trained)
    assert not model.training
    assert model.spaces == NAMES[1:]
    with torch.no_grad():
        out = model(images)
        assert {name: tuple(z.shape) for name, z in out.items()} == {"h": (9, 96), **dict.fromkeys(NAMES[1:], (9, 8))}
        torch.testing.assert_close(model(images.float() / 255)["content"], out["content"])


def test_features_are_those_the_encoder_was_trained_to_give(trained, images):
    model = uw.load(trained)
    prepared = photo_config().views.build().prepare(images)
    with torch.no_grad():
        torch.testing.assert_close(model.encoder(prepared)["spatial"], model(images)["spatial"])


def test_loading_draws_no_random_numbers(trained):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    uw.load(trained)
    assert torch.equal(torch.rand(2), expected)


def test_an_export_gives_the_same_features(trained, images, tmp_path):
    model = uw.load(trained)
    export_model(model, tmp_path, onnx=False)
    assert {p.name for p in tmp_path.iterdir()} == {"model.safetensors", "model.json"}
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata()["format"] == "pt"
    again = uw.load(tmp_path)
    with torch.no_grad():
        for name, z in model(images).items():
            assert torch.equal(again(images)[name], z)


def test_onnx_gives_the_same_features_for_any_number_of_images(trained, images, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = uw.load(trained)
    export_model(model, tmp_path)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    assert [o.name for o in session.get_outputs()] == list(NAMES)
    for n in (1, 9):
        outputs = session.run(None, {"images": (images[:n].float() / 255).numpy()})
        with torch.no_grad():
            for z, expected in zip(outputs, model(images[:n]).values(), strict=True):
                torch.testing.assert_close(torch.from_numpy(z), expected, atol=1e-4, rtol=1e-4)


def test_one_image_from_a_path(trained, photo_folder, images):
    model = uw.load(trained)
    path = sorted(photo_folder.rglob("*.jpg"))[0]
    one = model.embed(str(path))
    with torch.no_grad():
        torch.testing.assert_close(one["content"], model(images[:1])["content"][0], atol=1e-5, rtol=1e-4)
    with pytest.raises(UnweaveError, match="cannot be read"):
        model.embed(b"not an image")


def test_embeddings_are_written_with_path_and_label(trained, photo_folder, tmp_path):
    model, source = uw.load(trained), open_source(photo_folder)
    source.labels[3] = MISSING
    done = []
    embed_images(model, source, tmp_path / "z.parquet", batch_size=25, workers=1, on_progress=done.append)
    assert done == [25, 50, 60]
    table = pq.read_table(tmp_path / "z.parquet")
    assert table.column_names == ["path", "label", "class_name", *NAMES]
    assert table["path"].to_pylist() == [source.name(i) for i in range(60)]
    assert table["label"].to_pylist() == [None if label == MISSING else label for label in source.labels]
    folders = [source.name(i).split("/")[0] for i in range(60)]
    assert table["class_name"].to_pylist() == [None if i == 3 else folder for i, folder in enumerate(folders)]
    expected = model.embed(photo_folder / source.name(41))
    for name in NAMES:
        found = torch.tensor(table[name][41].as_py())
        torch.testing.assert_close(found, expected[name], atol=1e-4, rtol=1e-3)
    assert [p.name for p in tmp_path.iterdir()] == ["z.parquet"]


def test_unreadable_images_have_no_row(trained, photo_folder, tmp_path):
    (tmp_path / "photos").mkdir()
    for i, path in enumerate(sorted(photo_folder.rglob("*.jpg"))[:5]):
        (tmp_path / "photos" / f"{i}.jpg").write_bytes(b"" if i == 2 else path.read_bytes())
    source = open_source(tmp_path / "photos")
    with pytest.raises(UnweaveError, match="`max_bad`"):
        embed_images(uw.load(trained), source, tmp_path / "z.parquet", workers=0)
    assert not list(tmp_path.glob("*z.parquet*"))
    unreadable = embed_images(uw.load(trained), source, tmp_path / "z.parquet", workers=0, max_bad=0.5)
    assert list(unreadable.found) == [2]
    table = pq.read_table(tmp_path / "z.parquet")
    assert table["path"].to_pylist() == ["0.jpg", "1.jpg", "3.jpg", "4.jpg"]
    assert table["label"].to_pylist() == [None] * 4


def test_images_are_identified_by_number_where_paths_repeat(trained, photo_folder, tmp_path):
    """In Parquet files of data sets with one folder per class, file names repeat."""
    good = sorted(photo_folder.rglob("*.jpg"))[0].read_bytes()
    rows = [{"bytes": good if i != 3 else b"broken", "path": f"image_{i % 2}.jpg"} for i in range(8)]
    pq.write_table(pa.table({"image": rows, "label": list(range(8))}), tmp_path / "x.parquet")
    unreadable = embed_images(
        uw.load(trained), open_source(tmp_path / "x.parquet"), tmp_path / "z.parquet", workers=0, max_bad=0.2
    )
    assert list(unreadable.found) == [3]
    assert pq.read_table(tmp_path / "z.parquet")["label"].to_pylist() == [0, 1, 2, 4, 5, 6, 7]


HOSTILE = [
    "tab\there.jpg",
    "new\nline.jpg",
    "[/b]markup[red].jpg",
    "quote'\".jpg",
    b"bytes\xff\xfe.jpg".decode("utf-8", "surrogateescape"),
]


def test_hostile_names_keep_their_rows_and_are_listed_readably(trained, photo_folder, tmp_path, capfd):
    folder = tmp_path / "photos"
    folder.mkdir()
    good = sorted(photo_folder.rglob("*.jpg"))
    for name, file in zip(HOSTILE, good, strict=False):
        for path in (folder / name, folder / "zzz" / name):
            path.parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(file.read_bytes())
        (folder / "zzz" / name).touch()
    out = tmp_path / "z.parquet"
    arguments = ["embed", str(trained), str(folder), "--out", str(out), "--workers", "0", "--max-bad", "1"]
    assert main(arguments) == 0
    table = pq.read_table(out)
    assert len(table) == len(HOSTILE)
    source = open_source(folder)
    names = [source.name(i) for i in range(len(source)) if not source.name(i).startswith("zzz")]
    model = uw.load(trained)
    for name, row in zip(names, table["content"].to_pylist(), strict=True):
        torch.testing.assert_close(torch.tensor(row), model.embed(folder / name)["content"], atol=1e-4, rtol=1e-3)
    listed = capfd.readouterr().err
    assert "[/b]markup[red].jpg" in listed
    assert "\\udcff" in listed or "\\xff" in listed


def test_folders_that_are_not_runs(tmp_path, trained):
    for path, words in ((tmp_path, "not the folder of a run"), (tmp_path / "nowhere", "no such folder")):
        with pytest.raises(UnweaveError, match=words):
            uw.load(path)
    (tmp_path / "config.yaml").write_bytes((trained / "config.yaml").read_bytes())
    with pytest.raises(UnweaveError, match="no checkpoint"):
        uw.load(tmp_path)
    (tmp_path / "model.json").write_text("nonsense")
    with pytest.raises(UnweaveError, match=r"model\.json is damaged") as error:
        uw.load(tmp_path)
    assert "\n" not in str(error.value)


def train_on_sprites(out, encoder, views):
    config = uw.TrainConfig(steps=2, batch_size=8, launch=CPU)
    objective = uw.DisentangledLoss(uw.SimCLR(), spaces=views.spaces)
    uw.train(uw.Sprites(16), views, encoder, objective, config, out, progress=False)
    return encoder


OWN_VIEWS = uw.Views({"hue": [A.ColorJitter(hue=0.5)]}, ungrouped=[A.Normalize((0.1,) * 3, (0.2,) * 3)])
SPRITES = uw.Sprites(16)[torch.arange(5)]


def test_a_run_with_groups_of_ones_own_is_loaded_embedded_and_exported(tmp_path):
    output = {"content": "linear", "hue": "nonnegative"}
    encoder = uw.Encoder(uw.SmallConvNet(16, pooled=True), OWN_VIEWS.spaces, dim=4, hidden=8, output=output)
    train_on_sprites(tmp_path / "run", encoder, OWN_VIEWS)
    with torch.no_grad():
        expected = encoder(OWN_VIEWS.prepare(SPRITES))
        for folder in (tmp_path / "run", tmp_path / "export"):
            model = uw.load(folder)
            assert (model.spaces, model.input_shape) == (("content", "hue"), (3, 16, 16))
            for name, z in expected.items():
                torch.testing.assert_close(model(SPRITES)[name], z)
            export_model(model, tmp_path / "export", onnx=False)


def test_a_run_with_an_encoder_of_ones_own_is_loaded_with_that_encoder(tmp_path):
    def make():
        return uw.Encoder(nn.Sequential(nn.Flatten(), nn.Linear(768, 5)), OWN_VIEWS.spaces, dim=2, feature_dim=5)

    trained = train_on_sprites(tmp_path, make(), OWN_VIEWS)
    with pytest.raises(UnweaveError, match=r"call uw\.load\(path, encoder=…\)"):
        uw.load(tmp_path)
    with torch.no_grad():
        z = uw.load(tmp_path, encoder=make())(SPRITES)["content"]
        torch.testing.assert_close(z, trained(OWN_VIEWS.prepare(SPRITES))["content"])
        export_model(uw.load(tmp_path, encoder=make()), tmp_path / "export", onnx=False)
        assert torch.equal(uw.load(tmp_path / "export", encoder=make()).embed(SPRITES)["content"], z)
    with pytest.raises(UnweaveError, match="do not fit the encoder"):
        uw.load(tmp_path, encoder=uw.Encoder("resnet18", OWN_VIEWS.spaces))


def test_a_checkpoint_without_a_model_is_one_line(tmp_path):
    for state in ({"step": 1}, {"model": 3, "encoder": {}}, {"model": {}, "encoder": {}}):
        save_checkpoint(tmp_path / "checkpoint.safetensors", state)
        with pytest.raises(UnweaveError, match=str(tmp_path)) as error:
            uw.load(tmp_path)
        assert "\n" not in str(error.value)


def test_published_weights_are_not_downloaded_to_load_a_run(tmp_path, monkeypatch):
    import timm

    create, asked = timm.create_model, []
    monkeypatch.setattr(timm, "create_model", lambda *a, pretrained, **k: asked.append(pretrained) or create(*a, **k))
    encoder = uw.Encoder("test_resnet", OWN_VIEWS.spaces, dim=4, hidden=8, pretrained=True)
    train_on_sprites(tmp_path, encoder, OWN_VIEWS)
    uw.load(tmp_path)
    assert asked == [True, False]


def load_without_the_loop(path):
    import sys

    for name in [name for name in sys.modules if name.split(".")[0] in ("unweave", "lightning_fabric")]:
        del sys.modules[name]
    import unweave

    unweave.load(path)
    return int(bool({"unweave.training.loop", "lightning_fabric"} & set(sys.modules)))


def test_loading_imports_neither_the_training_loop_nor_fabric(trained, tmp_path):
    done = Child(tmp_path, load_without_the_loop, trained).wait()
    assert done.returncode == 0, done.stderr


def test_a_model_is_a_module_with_any_preparation():
    model = SpacesModel(uw.Encoder(uw.SmallConvNet(16), ("content",), dim=4), OWN_VIEWS.preparation, (3, 16, 16))
    assert not model.training
    torch.testing.assert_close(model(SPRITES)["h"], model.encoder(OWN_VIEWS.prepare(SPRITES))["h"])
