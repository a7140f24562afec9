"""Small data sets in the official layouts of the paper's 13 tasks, and pre-training images in folders of classes.

Every task has ``FIT`` images of each class to fit and ``TEST`` to test. The classes differ in colour.
"""

import pickle
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torchvision.datasets as sets
from PIL import Image
from scipy.io import savemat

from unweave.data.tasks.layouts import VOC_CLASSES

FIT, TEST = 6, 2
NAMES = ("albatross", "banana", "canoe")
COLORS = ((200, 60, 60), (60, 200, 60), (60, 60, 200))


def image(path, size=(12, 8), color="red"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def pixels(number, label, size=20):
    """Noise around the colour of a class, different for each image."""
    noise = np.random.default_rng(1000 * label + number).integers(-50, 50, (size, size, 3))
    return (np.array(COLORS[label]) + noise).astype(np.uint8)


def photo(path, number, label):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(number, label)).save(path)


def each():
    """The numbers of all images: class, number in its class, and whether it is to fit."""
    return [(label, i, i < FIT) for label in range(len(NAMES)) for i in range(FIT + TEST)]


def write_aircraft(data):
    root = data / "fgvc-aircraft-2013b" / "data"
    lines = {True: [], False: []}
    for label, i, fit in each():
        lines[fit].append(f"{label}{i:06} {NAMES[label].title()} 10{label}")
        photo(root / "images" / f"{label}{i:06}.jpg", i, label)
    write(root / "variants.txt", *(f"{name.title()} 10{label}" for label, name in enumerate(NAMES)))
    write(root / "images_variant_trainval.txt", *lines[True])
    write(root / "images_variant_test.txt", *lines[False])


def write_caltech101(data):
    for label, i, _ in each():
        photo(data / "caltech101" / "101_ObjectCategories" / NAMES[label] / f"image_{i + 1:04}.jpg", i, label)


def write_cars(data):
    root = data / "stanford_cars"
    (root / "devkit").mkdir(parents=True)
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": np.array(NAMES, dtype=object)})
    for part, file in (("train", "devkit/cars_train_annos.mat"), ("test", "cars_test_annos_withlabels.mat")):
        listed = [(label + 1, f"{label}{i:04}.jpg") for label, i, fit in each() if fit == (part == "train")]
        savemat(root / file, {"annotations": np.array(listed, dtype=[("class", "O"), ("fname", "O")])})
        for label, name in listed:
            photo(root / f"cars_{part}" / name, int(name[1:5]), label - 1)


def write_cifar(data, kind, count=2):
    """The files of ``kind``, a data set of torchvision's, with ``count`` images of each of two classes in each."""
    folder = data / kind.base_folder
    folder.mkdir(parents=True)
    key = "labels" if kind is sets.CIFAR10 else "fine_labels"
    for number, (file, _) in enumerate(kind.train_list + kind.test_list):
        labels = [0, 1] * count
        images = [pixels(100 * number + i, label, 32).transpose(2, 0, 1).ravel() for i, label in enumerate(labels)]
        (folder / file).write_bytes(pickle.dumps({"data": np.stack(images), key: labels}))
    (folder / kind.meta["filename"]).write_bytes(pickle.dumps({kind.meta["key"]: ["cat", "dog"]}))


def small_cifar():
    """A context in which torchvision accepts files other than the published ones."""
    return patch.multiple("torchvision.datasets.cifar", check_integrity=lambda *arguments: True)


def write_cub(data):
    root = data / "CUB_200_2011"
    lines = {file: [] for file in ("images", "image_class_labels", "train_test_split", "bounding_boxes")}
    points = []
    for number, (label, i, fit) in enumerate(each(), 1):
        name = f"{label + 1:03}.{NAMES[label]}/{i}.jpg"
        photo(root / "images" / name, i, label)
        lines["images"].append(f"{number} {name}")
        lines["image_class_labels"].append(f"{number} {label + 1}")
        lines["train_test_split"].append(f"{number} {int(fit)}")
        lines["bounding_boxes"].append(f"{number} {i % 5}.0 {i % 3}.0 {10 + label}.0 {8 + i % 4}.0")
        points += [f"{number} {part} {5 + (i + part) % 7}.0 {4 + label + i % 3}.0 1" for part in (1, 2)]
        points.append(f"{number} 3 0.0 0.0 0" if i % 2 else f"{number} 3 {i}.0 9.0 1")
    for file, found in lines.items():
        write(root / f"{file}.txt", *found)
    write(root / "classes.txt", *(f"{label} {label:03}.{name}" for label, name in enumerate(NAMES, 1)))
    write(root / "parts" / "parts.txt", "1 back", "2 beak", "3 left leg")
    write(root / "parts" / "part_locs.txt", *points)


def write_dtd(data):
    """With all 47 classes, most of one image: data with fewer are not called DTD."""
    root = data / "dtd"
    lines = {"train": [], "val": [], "test": []}
    for label, i, fit in each():
        lines[("train", "val")[i % 2] if fit else "test"].append(f"{NAMES[label]}/{i}.jpg")
        photo(root / "images" / NAMES[label] / f"{i}.jpg", i, label)
    for number in range(47 - len(NAMES)):
        lines["train"].append(f"texture{number:02}/0.jpg")
        photo(root / "images" / f"texture{number:02}" / "0.jpg", number, 0)
    for split, names in lines.items():
        write(root / "labels" / f"{split}1.txt", *names)


def write_flowers(data):
    root = data / "flowers-102"
    numbers = {"trnid": [], "valid": [], "tstid": []}
    for number, (label, i, fit) in enumerate(each(), 1):
        numbers[("trnid", "valid")[i % 2] if fit else "tstid"].append(number)
        photo(root / "jpg" / f"image_{number:05}.jpg", i, label)
    savemat(root / "imagelabels.mat", {"labels": [[label + 1 for label, _, _ in each()]]})
    savemat(root / "setid.mat", {name: [found] for name, found in numbers.items()})


def write_pets(data):
    root = data / "oxford-iiit-pet"
    lines = {True: [], False: []}
    for label, i, fit in each():
        lines[fit].append(f"{NAMES[label]}_cat_{i} {label + 1} 1 1")
        photo(root / "images" / f"{NAMES[label]}_cat_{i}.jpg", i, label)
    write(root / "annotations" / "trainval.txt", *lines[True])
    write(root / "annotations" / "test.txt", *lines[False])


def write_sun397(data):
    root = data / "SUN397"
    lines = {True: [], False: []}
    for label, i, fit in each():
        name = f"/{NAMES[label][0]}/{NAMES[label]}/outdoor/sun_{i}.jpg"
        lines[fit].append(name)
        photo(root / name[1:], i, label)
    write(root / "ClassName.txt", *(f"/{name[0]}/{name}/outdoor" for name in NAMES))
    write(root / "Training_01.txt", *lines[True])
    write(root / "Testing_01.txt", *lines[False])


def write_voc2007(data):
    """Every image has one of three labels, sometimes two; the other labels are of every seventh image."""
    root = data / "VOCdevkit" / "VOC2007"
    for label, i, _ in each():
        photo(root / "JPEGImages" / f"{label}{i:05}.jpg", i, label)
    for place, name in enumerate(VOC_CLASSES):
        for split in ("trainval", "test"):
            lines = []
            for number, (label, i, fit) in enumerate(each()):
                if fit == (split == "trainval"):
                    present = label == place % 3 or (number + place) % 7 == 0
                    lines.append(f"{label}{i:05} {' 1' if present else '-1'}")
            write(root / "ImageSets" / "Main" / f"{name}_{split}.txt", *lines)


WRITERS = {
    "aircraft": write_aircraft,
    "caltech101": write_caltech101,
    "cars": write_cars,
    "cifar10": lambda data: write_cifar(data, sets.CIFAR10),
    "cifar100": lambda data: write_cifar(data, sets.CIFAR100, 6),
    "cub": write_cub,
    "dtd": write_dtd,
    "flowers": write_flowers,
    "pets": write_pets,
    "sun397": write_sun397,
    "voc2007": write_voc2007,
}


def write_tasks(data: Path, names=tuple(WRITERS)) -> None:
    for name in names:
        WRITERS[name](data)


def write_pretraining(folder: Path, fit=10, validation=10) -> None:
    """Folders train and val, each with a folder of every class."""
    for label, name in enumerate(NAMES):
        for i in range(fit + validation):
            photo(folder / ("train" if i < fit else "val") / name / f"{i}.jpg", i, label)


def run_in_child(out: Path, data: Path, only: str, **settings) -> None:
    """A quick study as a function that a process can be started with; each training from the start is a line of log."""
    from unweave.reproduce.transfer import run

    trained = run.pretrain

    def pretrain(images, folder, **rest):
        done = trained(images, folder, **rest)
        if done.resumed_from == 0:
            with open(out.parent / "log", "a") as log:
                log.write(f"{folder.name}\n")
        return done

    with patch.object(run, "pretrain", pretrain):
        run.run_transfer(out, data, scale="paper", quick=True, only=only, device="cpu", **settings)


def fail_to_score(arguments) -> int:
    """The ``unweave`` command where a probe fails."""
    from unweave import UnweaveError
    from unweave.cli.main import main

    with patch("unweave.reproduce.transfer.scores.probe_task", side_effect=UnweaveError("no probe")):
        return main(arguments)
