"""The paper's tasks from small folders in the official layouts, beside torchvision, and from the real data."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torchvision.datasets as sets
from PIL import Image
from scipy.io import savemat

from small_tasks import image, small_cifar, write, write_aircraft, write_cars, write_cifar, write_pets
from unweave.data.decode import decode
from unweave.data.tasks import TASKS, crop_boxes, crop_points, open_labelled, open_tasks
from unweave.errors import UnweaveError


def names_and_classes(part):
    return [(part.source.name(i), str(label)) for i, label in enumerate(part.labels)]


def theirs(dataset, files):
    """Names and classes by torchvision."""
    return [(str(file), dataset.classes[dataset[i][1]]) for i, file in enumerate(files)]


def only(name, path):
    (task,) = open_tasks(name, path)
    return task


def test_there_are_13_tasks_in_the_papers_groups():
    assert len(TASKS) == 13
    groups = {
        group: {name for name, task in TASKS.items() if task.group == group} for group in ("Spatial", "Appearance")
    }
    assert groups == {"Spatial": {"cub-box", "cub-keypoints"}, "Appearance": {"dtd", "flowers", "pets"}}
    per_class = {name for name, task in TASKS.items() if task.metric == "mean_per_class"}
    assert per_class == {"aircraft", "caltech101", "flowers", "pets"}


def test_dtd(tmp_path):
    root = tmp_path / "dtd" / "dtd"
    splits = {"train": ("banded/a.jpg", "dotted/b.jpg"), "val": ("dotted/c.jpg",), "test": ("banded/d.jpg",)}
    for split, names in splits.items():
        write(root / "labels" / f"{split}1.txt", *names)
        for name in names:
            image(root / "images" / name)
    expected = []
    for split in ("train", "val"):
        dataset = sets.DTD(tmp_path, split=split)
        expected += theirs(dataset, [f.relative_to(root / "images") for f in dataset._image_files])
    for path in (tmp_path, tmp_path / "dtd", root):  # torchvision's root, and the archive's own folder
        task = only("dtd", path)
        assert names_and_classes(task.fit) == expected
        assert names_and_classes(task.test) == [("banded/d.jpg", "banded")]
    (root / "labels" / "test1.txt").unlink()
    with pytest.raises(UnweaveError, match="test1"):
        open_tasks("dtd", tmp_path)


def test_aircraft(tmp_path):
    write_aircraft(tmp_path)
    task = only("aircraft", tmp_path)
    for part, split in ((task.fit, "trainval"), (task.test, "test")):
        dataset = sets.FGVCAircraft(tmp_path, split=split)
        files = [file.rsplit("/", 1)[1] for file in dataset._image_files]
        assert names_and_classes(part) == theirs(dataset, files)


def test_caltech101(tmp_path):
    root = tmp_path / "caltech101" / "101_ObjectCategories"
    for name, count in {"accordion": 33, "ant": 31, "BACKGROUND_Google": 5}.items():
        for i in range(1, count + 1):
            image(root / name / f"image_{i:04}.jpg", (4, 4))
    task = only("caltech101", tmp_path)
    found = names_and_classes(task.fit) + names_and_classes(task.test)
    dataset = sets.Caltech101(tmp_path)
    files = [f"{dataset.categories[y]}/image_{i:04}.jpg" for i, y in zip(dataset.index, dataset.y, strict=True)]
    assert sorted(found) == sorted((file, dataset.categories[y]) for file, y in zip(files, dataset.y, strict=True))
    assert [list(task.fit.labels).count(name) for name in ("accordion", "ant")] == [30, 30]
    assert names_and_classes(only("caltech101", tmp_path).fit) == names_and_classes(task.fit)


def test_cars(tmp_path):
    write_cars(tmp_path)
    task = only("cars", tmp_path)
    for part, split in ((task.fit, "train"), (task.test, "test")):
        dataset = sets.StanfordCars(tmp_path, split=split)
        expected = [(file.split("stanford_cars/")[1], dataset.classes[y]) for file, y in dataset._samples]
        assert names_and_classes(part) == expected


@pytest.mark.parametrize(("name", "kind"), [("cifar10", sets.CIFAR10), ("cifar100", sets.CIFAR100)])
def test_cifar(tmp_path, name, kind):
    write_cifar(tmp_path, kind, count=1)
    with small_cifar():
        for path in (tmp_path, tmp_path / kind.base_folder):
            task = only(name, path)
            assert len(task.fit.source) == 2 * len(kind.train_list)
            assert task.test.labels.tolist() == ["cat", "dog"]
        theirs = kind(tmp_path, train=False)
    np.testing.assert_array_equal(np.asarray(task.test.source.read(1)), theirs.data[1])


def test_flowers(tmp_path, monkeypatch):
    root = tmp_path / "flowers-102"
    root.mkdir()
    savemat(root / "imagelabels.mat", {"labels": np.array([[2, 1, 2, 1, 1]])})
    savemat(root / "setid.mat", {"trnid": [[2, 5]], "valid": [[1, 4]], "tstid": [[4, 3]]})
    for i in range(1, 6):
        image(root / "jpg" / f"image_{i:05}.jpg")
    monkeypatch.setattr(sets.Flowers102, "_check_integrity", lambda self: True)
    task = only("flowers", tmp_path)
    for part, splits in ((task.fit, ("train", "val")), (task.test, ("test",))):
        parts = [sets.Flowers102(tmp_path, split=split) for split in splits]
        expected = [
            (file.name, f"{y + 1:03}") for d in parts for file, y in zip(d._image_files, d._labels, strict=True)
        ]
        assert names_and_classes(part) == expected


def test_pets(tmp_path):
    write_pets(tmp_path)
    task = only("pets", tmp_path)
    for part, split in ((task.fit, "trainval"), (task.test, "test")):
        files = [file.name for file in sets.OxfordIIITPet(tmp_path, split=split)._images]
        assert [name for name, _ in names_and_classes(part)] == files
        assert all(name.startswith(f"{breed}_") for name, breed in names_and_classes(part))
    assert names_and_classes(task.fit)[0] == ("albatross_cat_0.jpg", "albatross_cat")


@pytest.mark.parametrize("lists", ["Partitions", "SUN397"])
def test_sun397(tmp_path, lists):
    write(tmp_path / lists / "Training_01.txt", "/a/abbey/sun_1.jpg", "/b/bar/outdoor/sun_2.jpg")
    write(tmp_path / lists / "Testing_01.txt", "/a/abbey/sun_3.jpg")
    write(tmp_path / "SUN397" / "ClassName.txt", "/a/abbey", "/b/bar/outdoor")
    for name in ("a/abbey/sun_1.jpg", "b/bar/outdoor/sun_2.jpg", "a/abbey/sun_3.jpg"):
        image(tmp_path / "SUN397" / name)
    task = only("sun397", tmp_path)
    dataset = sets.SUN397(tmp_path)
    files = [str(file.relative_to(tmp_path / "SUN397")) for file in dataset._image_files]
    classes = dict(zip(files, dataset._labels, strict=True))
    found = names_and_classes(task.fit) + names_and_classes(task.test)
    assert {name for name, _ in found} == set(classes)
    assert len({(label, classes[name]) for name, label in found}) == 2  # the same classes by other names
    assert task.fit.source.read(0).is_file()


def test_voc2007(tmp_path):
    from unweave.data.tasks.layouts import VOC_CLASSES

    root = tmp_path / "VOCdevkit" / "VOC2007"
    main = root / "ImageSets" / "Main"
    for name in VOC_CLASSES:
        value = {"cat": (" 1", " 0"), "dog": ("-1", " 1")}.get(name, ("-1", "-1"))
        write(main / f"{name}_trainval.txt", f"000005 {value[0]}", f"000007 {value[1]}")
    with pytest.raises(UnweaveError, match="test split"):
        open_tasks("voc2007", tmp_path)
    for name in VOC_CLASSES:
        write(main / f"{name}_test.txt", f"000009 {' 1' if name == 'bird' else '-1'}")
    task = only("voc2007", tmp_path)
    cat, dog, bird = (VOC_CLASSES.index(name) for name in ("cat", "dog", "bird"))
    assert task.fit.labels[:, [cat, dog]].tolist() == [[1, -1], [0, 1]]
    assert task.test.labels[0].tolist() == [1 if i == bird else -1 for i in range(20)]
    assert task.fit.source.read(1) == root / "JPEGImages" / "000007.jpg"


@pytest.fixture
def birds(tmp_path):
    """CUB with one training and one test image, 300×200, in which a white pixel block marks box and beak."""
    root = tmp_path / "CUB_200_2011"
    write(root / "images.txt", "1 001.Albatross/a.png", "2 002.Ani/b.png")
    write(root / "image_class_labels.txt", "1 1", "2 2")
    write(root / "classes.txt", "1 001.Albatross", "2 002.Ani")
    write(root / "train_test_split.txt", "1 1", "2 0")
    write(root / "bounding_boxes.txt", "1 120.0 60.0 80.0 40.0", "2 0.0 0.0 300.0 200.0")
    write(root / "parts" / "parts.txt", "1 back", "2 beak")
    write(root / "parts" / "part_locs.txt", "1 1 0.0 0.0 0", "1 2 150.0 90.0 1", "2 1 50.0 0.0 1", "2 2 250.0 200.0 1")
    for name in ("001.Albatross/a.png", "002.Ani/b.png"):
        image(root / "images" / name, (300, 200))
    marked = Image.new("RGB", (300, 200))
    marked.paste("white", (120, 60, 200, 100))
    marked.save(root / "images" / "001.Albatross" / "a.png")
    return tmp_path


def test_cub_has_three_tasks_on_the_same_images(birds):
    classes, boxes, points = open_tasks("cub", birds)
    assert names_and_classes(classes.fit) == [("001.Albatross/a.png", "001.Albatross")]
    assert names_and_classes(classes.test) == [("002.Ani/b.png", "002.Ani")]
    assert boxes.fit.source is points.fit.source
    # The central square of 300×200 begins at x = 50 and has 200 pixels.
    np.testing.assert_allclose(boxes.fit.targets(50), [[17.5, 15, 20, 10]])
    np.testing.assert_allclose(boxes.test.targets(50), [[-12.5, 0, 75, 50]])
    np.testing.assert_allclose(points.fit.targets(50), [[np.nan, np.nan, 25, 22.5]])
    np.testing.assert_allclose(points.test.targets(50), [[0, 0, 50, 50]])


def test_a_box_lies_where_the_decoder_puts_what_it_marks(birds):
    box = open_tasks("cub-box", birds)[0].fit
    pixels = decode(box.source.read(0), 100)
    rows, columns = np.nonzero(pixels[..., 0] > 127)
    x, y, width, height = box.targets(100)[0]
    assert (columns.min(), columns.max() + 1) == pytest.approx((x, x + width), abs=1)
    assert (rows.min(), rows.max() + 1) == pytest.approx((y, y + height), abs=1)


def test_boxes_and_points_move_alike_for_tall_and_odd_images():
    frames = np.array([[101, 200], [200, 101], [64, 64]])
    corners = np.array([[3.0, 70.0]] * 3)
    boxes = crop_boxes(np.concatenate([corners, [[10.0, 20.0]] * 3], 1), frames, 64)
    np.testing.assert_allclose(boxes[:, :2], crop_points(corners, frames, 64))
    far = crop_points(corners + np.array([10, 20]), frames, 64)
    np.testing.assert_allclose(boxes[:, :2] + boxes[:, 2:], far)
    np.testing.assert_allclose(boxes[2], [3, 70, 10, 20])
    np.testing.assert_allclose(boxes[0, 1], (70 - 49) * 64 / 101)


def parquet(path, labels, **columns):
    import io

    stream = io.BytesIO()
    Image.new("RGB", (8, 8)).save(stream, "PNG")
    table = pa.table({"image": [{"bytes": stream.getvalue(), "path": None}] * len(labels), "label": labels, **columns})
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}
    meta = {"huggingface": json.dumps({"info": {"features": features}})}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(meta), path)


def test_parquet_splits_of_hugging_face(tmp_path):
    parquet(tmp_path / "data" / "train-00000-of-00002.parquet", [0, 1])
    parquet(tmp_path / "data" / "train-00001-of-00002.parquet", [1])
    parquet(tmp_path / "data" / "validation-00000-of-00001.parquet", [0])
    with pytest.raises(UnweaveError, match="test split"):
        open_tasks("dtd", tmp_path)
    parquet(tmp_path / "data" / "test-00000-of-00001.parquet", [1, -1])
    task = only("dtd", tmp_path)
    assert task.fit.labels.tolist() == ["cat", "dog", "dog", "cat"]
    assert task.test.labels.tolist() == ["dog"]  # −1 is an image without a label
    assert len(task.fit.source) == 4
    task.fit.source.read(3)


@pytest.mark.parametrize("splits", [("train", "test"), ("train", "val")])
def test_a_folder_with_splits_keeps_them_and_classes_go_by_name(tmp_path, splits):
    for split, names in zip(splits, (("cat", "dog", "owl"), ("dog", "owl")), strict=True):
        for name in names:
            image(tmp_path / split / name / "a.png")
    task = open_labelled(tmp_path)
    assert task.fit.labels.tolist() == ["cat", "dog", "owl"]
    assert task.test.labels.tolist() == ["dog", "owl"]


def test_a_column_of_any_kind_is_a_task(tmp_path):
    file = tmp_path / "birds.parquet"
    columns = {
        "bbox": [[0.0, 0, 4, 4], [4.0, 4, 2, 2]], "keypoints": [[1.0, 1, 2, 2], [3.0, 3, 4, 4]],
        "visible": [[True, False], [True, True]], "tags": [[1, 0, 0], [1, 1, 0]], "price": [1.5, 2.0],
        "pose": [[0.1], [0.7]],
    }  # fmt: skip
    parquet(file, [0, 1], **columns)
    tasks = {name: open_labelled(file, label_column=name) for name in ("label", *columns) if name != "visible"}
    assert {name: (task.kind, task.metric) for name, task in tasks.items()} == {
        "label": ("classes", "accuracy"), "bbox": ("regression", "r2"), "keypoints": ("regression", "r2"),
        "tags": ("multilabel", "map"), "price": ("regression", "r2"), "pose": ("regression", "r2"),
    }  # fmt: skip
    np.testing.assert_array_equal(tasks["bbox"].fit.targets(16), [[0, 0, 8, 8], [8, 8, 4, 4]])
    np.testing.assert_array_equal(tasks["keypoints"].fit.targets(8), [[1, 1, np.nan, np.nan], [3, 3, 4, 4]])
    np.testing.assert_array_equal(tasks["price"].fit.targets(8), [1.5, 2.0])


def test_a_missing_split_and_missing_labels_are_one_line(tmp_path):
    image(tmp_path / "a" / "train" / "cat" / "a.png")
    image(tmp_path / "b" / "a.png")
    for call in (
        lambda: open_labelled(tmp_path / "a"),
        lambda: open_labelled(tmp_path / "b"),
        lambda: open_tasks("dtd", tmp_path / "b"),
        lambda: open_tasks("dtd", tmp_path / "nothing"),
        lambda: open_tasks("imagenet-9000", tmp_path),
    ):
        with pytest.raises(UnweaveError) as error:
            call()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "folder", "fit", "test", "outputs"),
    [
        ("pets", "pets", 3680, 3669, 37),
        ("flowers", "flowers102", 2040, 6149, 102),
        ("cars", "cars", 8137, 8033, 196),
        ("caltech101", "caltech101", 3030, 5647, 101),
        ("voc2007", "voc2007", 2500, 2508, 20),
        ("cub-class", "cub200", 5994, 5794, 200),
    ],
)
def test_the_real_data(shared_data, name, folder, fit, test, outputs):
    task = only(name, shared_data / folder)
    assert (len(task.fit.source), len(task.test.source)) == (fit, test)
    assert len(task.fit.labels) == fit
    found = task.fit.labels.shape[1] if task.content == "labels" else len(set(task.fit.labels.tolist()))
    assert found == outputs


def test_real_boxes_and_points_scale_with_the_image(shared_data):
    _, boxes, points = open_tasks("cub", shared_data / "cub200")
    rows = range(0, 5794, 100)
    np.testing.assert_allclose(boxes.test.targets(128, rows), 2 * boxes.test.targets(64, rows))
    own, box = points.test.targets(64, rows).reshape(len(rows), -1, 2), boxes.test.targets(64, rows)
    known = ~np.isnan(own[..., 0])
    inside = (own >= box[:, None, :2] - 4).all(2) & (own <= box[:, None, :2] + box[:, None, 2:] + 4).all(2)
    assert inside[known].mean() > 0.97  # the parts of a bird are in its box
