"""The official folder layouts of the paper's data sets: which images are to fit and to test, and their labels.

Every reader takes the folder of the archive, or a folder above it such as the ``root`` of torchvision's data sets. A
validation split is used to fit, since the penalty is chosen by cross-validation.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unweave.data.sources.base import Source
from unweave.data.tasks.base import ListedImages
from unweave.errors import UnweaveError

Parts = tuple[tuple[Source, dict[str, np.ndarray]], tuple[Source, dict[str, np.ndarray]]]
"""Images and labels by content, to fit and to test."""

CALTECH_TO_FIT = 30
"""Images of each class to fit, as published; the others are tested."""
VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip


def find_folder(path: Path, marker: str) -> Path:
    """The folder that contains ``marker``: ``path``, or a folder at most two levels below it."""
    for pattern in ("", "*", "*/*"):
        for folder in [path] if not pattern else sorted(path.glob(pattern)):
            if (folder / marker).exists():
                return folder
    raise UnweaveError(f"{path} does not have the official layout: there is no {marker} in it or two levels below")


def aircraft(path: Path) -> Parts:
    """FGVC-Aircraft, 100 variants."""
    data = find_folder(path, "images_variant_trainval.txt")
    files = (data / f"images_variant_{part}.txt" for part in ("trainval", "test"))
    lists = [[line.split(" ", 1) for line in _lines(file)] for file in files]
    return _by_class(data / "images", lists, suffix=".jpg")


def caltech101(path: Path) -> Parts:
    """Caltech-101 without its background class: 30 random images of each class to fit, the others to test."""
    root = find_folder(path, "101_ObjectCategories") / "101_ObjectCategories"
    fit: list[tuple[str, str]] = []
    test: list[tuple[str, str]] = []
    classes = sorted(f.name for f in root.iterdir() if f.is_dir() and f.name != "BACKGROUND_Google")
    for number, name in enumerate(classes):
        files = sorted(file.name for file in (root / name).glob("*.jpg"))
        order = np.random.default_rng(number).permutation(len(files))
        chosen = set(order[: min(CALTECH_TO_FIT, len(files) - 1)].tolist())
        for i, file in enumerate(files):
            (fit if i in chosen else test).append((f"{name}/{file}", name))
    return _by_class(root, (fit, test))


def cars(path: Path) -> Parts:
    """Stanford Cars, 196 classes."""
    kit = find_folder(path, "cars_train_annos.mat")
    root = kit.parent if (kit.parent / "cars_train").is_dir() else kit
    names = [str(name) for name in _matlab(kit / "cars_meta.mat", "class_names")]
    labelled = "cars_test_annos_withlabels.mat"
    test = next((folder / labelled for folder in (root, kit) if (folder / labelled).exists()), root / labelled)
    listed = []
    for part, file in (("cars_train", kit / "cars_train_annos.mat"), ("cars_test", test)):
        annotations = _matlab(file, "annotations")
        listed.append([(f"{part}/{a['fname']}", names[int(a["class"]) - 1]) for a in annotations])
    return _by_class(root, listed)


def cifar10(path: Path) -> Parts:
    """CIFAR-10, by torchvision, which checks the files before it unpickles them."""
    return _cifar(path, "CIFAR10", "cifar-10-batches-py")


def cifar100(path: Path) -> Parts:
    """CIFAR-100, 100 fine classes, by torchvision."""
    return _cifar(path, "CIFAR100", "cifar-100-python")


def _cifar(path: Path, name: str, marker: str) -> Parts:
    import torchvision.datasets as sets

    from unweave.data.sources.dataset import DatasetSource

    root = path.parent if path.name == marker else find_folder(path, marker)
    parts = []
    for train in (True, False):
        try:
            images = getattr(sets, name)(root, train=train)
        except (RuntimeError, OSError, ValueError) as error:
            reason = " ".join(str(error).split()).split(" You can use")[0]
            raise UnweaveError(f"torchvision's {name} cannot be read from {root}: {reason}") from None
        labels = np.asarray(images.classes)[np.asarray(images.targets)]
        parts.append((DatasetSource(images), {"classes": labels}))
    return parts[0], parts[1]


def cub(path: Path) -> Parts:
    """CUB-200-2011: classes, boxes and 15 key points."""
    root = find_folder(path, "train_test_split.txt")
    names = dict(_pairs(root / "images.txt"))
    order = list(names)
    classes = dict(_pairs(root / "classes.txt"))
    owner = dict(_pairs(root / "image_class_labels.txt"))
    boxes = {line[0]: [float(value) for value in line[1:5]] for line in _words(root / "bounding_boxes.txt")}
    parts = len(_lines(root / "parts" / "parts.txt"))
    points = {image: np.full(2 * parts, np.nan) for image in order}
    for image, part, x, y, visible in (line[:5] for line in _words(root / "parts" / "part_locs.txt")):
        if visible == "1":
            points[image][2 * int(part) - 2 : 2 * int(part)] = float(x), float(y)
    to_fit = dict(_pairs(root / "train_test_split.txt"))
    found = []
    for wanted in ("1", "0"):
        chosen = [image for image in order if to_fit[image] == wanted]
        if not chosen:
            split = "training" if wanted == "1" else "test"
            raise UnweaveError(f"{root / 'train_test_split.txt'} lists no {split} images")
        labels = {
            "classes": np.array([classes[owner[image]] for image in chosen]),
            "boxes": np.array([boxes[image] for image in chosen]),
            "points": np.stack([points[image] for image in chosen]),
        }
        found.append((ListedImages(root / "images", [names[image] for image in chosen]), labels))
    return found[0], found[1]


def dtd(path: Path) -> Parts:
    """Describable Textures, 47 classes, the first of its ten splits."""
    root = find_folder(path, "labels/train1.txt")
    train, val, test = (_lines(root / "labels" / f"{part}1.txt") for part in ("train", "val", "test"))
    return _by_class(root / "images", ([(name, name.split("/")[0]) for name in part] for part in (train + val, test)))


def flowers(path: Path) -> Parts:
    """Oxford Flowers, 102 classes: 10 + 10 images of each to fit."""
    root = find_folder(path, "setid.mat")
    labels = _matlab(root / "imagelabels.mat", "labels")
    listed = [
        [(f"image_{i:05}.jpg", f"{labels[i - 1]:03}") for name in names for i in _matlab(root / "setid.mat", name)]
        for names in (("trnid", "valid"), ("tstid",))
    ]
    return _by_class(root / "jpg", listed)


def pets(path: Path) -> Parts:
    """Oxford-IIIT Pets, 37 breeds."""
    root = find_folder(path, "annotations/trainval.txt")
    listed = []
    for part in ("trainval", "test"):
        words = _words(root / "annotations" / f"{part}.txt")
        listed.append([(line[0], line[0].rsplit("_", 1)[0]) for line in words])
    return _by_class(root / "images", listed, suffix=".jpg")


def sun397(path: Path) -> Parts:
    """SUN397, the first of its ten splits: 50 images of each class to fit, 50 to test."""
    lists = find_folder(path, "Training_01.txt")
    train, test = (_lines(lists / f"{part}_01.txt") for part in ("Training", "Testing"))
    near = (lists, lists.parent, path)
    roots = [folder for base in near for folder in (base, base / "SUN397")]
    root = next((folder for folder in roots if (folder / train[0].lstrip("/")).exists()), None)
    if root is None:
        raise UnweaveError(f"{path}: the images that {lists / 'Training_01.txt'} lists are not there, nor in SUN397/")
    return _by_class(root, ([(name.lstrip("/"), name.rsplit("/", 1)[0]) for name in part] for part in (train, test)))


def voc2007(path: Path) -> Parts:
    """PASCAL VOC2007, 20 labels: trainval to fit, test to test."""
    found = []
    for split in ("trainval", "test"):
        marker = f"ImageSets/Main/{VOC_CLASSES[0]}_{split}.txt"
        try:
            root = find_folder(path, marker)
        except UnweaveError:
            archive = "VOCtest_06-Nov-2007.tar" if split == "test" else "VOCtrainval_06-Nov-2007.tar"
            raise UnweaveError(f"{path} has no {split} split of VOC2007, {marker}: extract {archive} there") from None
        columns = [dict(_words(root / "ImageSets" / "Main" / f"{name}_{split}.txt")) for name in VOC_CLASSES]
        images = list(columns[0])
        labels = np.array([[int(column[image]) for column in columns] for image in images])
        source = ListedImages(root / "JPEGImages", [f"{image}.jpg" for image in images])
        found.append((source, {"labels": labels}))
    return found[0], found[1]


def _by_class(root: Path, lists: Iterable[Iterable[Sequence[str]]], suffix: str = "") -> Parts:
    """The names and classes of the images to fit, and of those to test."""
    parts = []
    for listed in map(list, lists):
        source = ListedImages(root, [name + suffix for name, _ in listed])
        parts.append((source, {"classes": np.array([label for _, label in listed])}))
    return parts[0], parts[1]


def _lines(file: Path) -> list[str]:
    """The lines of a list, without comments and empty lines."""
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError as error:
        raise UnweaveError(f"{file} cannot be read: {error.strerror}; it is part of the official layout") from None
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise UnweaveError(f"{file} lists no images")
    return found


def _words(file: Path) -> list[list[str]]:
    return [line.split() for line in _lines(file)]


def _pairs(file: Path) -> list[tuple[str, str]]:
    """A number and the rest of the line."""
    return [(number, rest) for number, _, rest in (line.partition(" ") for line in _lines(file))]


def _matlab(file: Path, name: str) -> Any:
    """A variable of a MATLAB file, as a list of its elements."""
    from scipy.io import loadmat

    try:
        return np.atleast_1d(loadmat(file, squeeze_me=True)[name])
    except OSError as error:
        raise UnweaveError(f"{file} cannot be read: {error.strerror or error}; it is part of the layout") from None
    except (KeyError, ValueError, NotImplementedError) as error:
        raise UnweaveError(f"{file} is not the official file: {' '.join(str(error).split())}") from None
