"""Does a search find the right thing? Precision at 10 and mAP of each space, on photographs with known answers.

    python benchmarks/retrieval.py --run RUN --baseline SIMCLR --data DATA --out results/benchmarks/retrieval.json

RUN has the spaces content, spatial and appearance; SIMCLR, which may be left out, has content alone. DATA is a folder
with tiny-imagenet, cub200, flowers102 and cars. No image is of a training split. Every image is a query and searches
all others by cosine; queries without an answer are left out.

Questions, the space to which each belongs, and which images are relevant:

- planted appearances (photographs of Tiny ImageNet's validation split, each in 11 appearances): *same photograph* (all
  spaces but appearance); *same appearance*, whatever the photograph (appearance).
- planted framings (each photograph in 11 framings): *same photograph* (all spaces but spatial); *same framing*
  (spatial). But for the unchanged photograph, appearances and framings are of transforms or ranges that the stock
  styles do not use.
- planted styles (each photograph 11 times, with the 11 appearances and the 11 framings in random pairs): *same
  photograph*, whatever its style (content).
- planted both (each photograph in 6 appearances and 2 framings): *same photograph, other appearance* (like content,
  unlike appearance, as `unweave search` mixes them). The same appearance in the other framing counts as wrong.
- CUB: *same species* (content); *same box* (spatial): boxes, cut off at the border of the image, with an intersection
  over union of at least 0.7, whatever the species.
- Flowers, Cars: *same color* (appearance): the 2 % of the images whose mean color is nearest, in CIE Lab, over the
  central quarter of the image.

Features: each space; z, all spaces with weight 1 by the formula of `unweave search`; all but one of them, in the
vectors of an index, which are whitened; h by its cosine. Beside them: content as the network gives it, h in an index, z
and h of the baseline in both forms; a histogram of 8 × 8 × 8 colors, in square roots, so that its cosine is the
Bhattacharyya coefficient. Standard errors of the lead over h treat queries as independent.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.ops import box_iou
from torchvision.transforms.v2 import functional as T

import unweave as uw
import unweave.augment as A
from unweave.data import load_images, open_source
from unweave.data.sources.base import Source, Subset
from unweave.data.tasks import open_tasks
from unweave.evaluation import RetrievalScores, cosine_scores, same_label, score_retrieval
from unweave.evaluation.retrieval import Rows
from unweave.inference import SpacesModel
from unweave.inference.embed import encode, usable_device
from unweave.provenance import provenance, without_folders
from unweave.search.geometry import FITTED, Geometry
from unweave.search.ready import ALIKE, LEAST_SPREAD, random_cosines
from unweave.training.run_folder import RunFolder

SPACES = ("content", "spatial", "appearance")
K = 10
OVERLAP = 0.7
"""Intersection over union from which boxes count as the same."""
NEAREST = 0.02
"""The share of the images whose color counts as the same."""
UNLIKE = -0.3
"""The weight of a space with `unweave search --unlike`."""
MIXED = "like content, unlike appearance"
ALL_BUT = "all but {}".format
BATCH = 512


def gains(red: float, green: float, blue: float, images: Tensor) -> Tensor:
    factor = torch.tensor([red, green, blue]).view(3, 1, 1)
    return (images * factor).round().clamp(0, 255).to(torch.uint8)


def noisy(images: Tensor) -> Tensor:
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    return (images + 25 * noise).round().clamp(0, 255).to(torch.uint8)


APPEARANCES: dict[str, Callable[[Tensor], Tensor]] = {
    "unchanged": lambda images: images,
    "gamma 0.5": lambda images: T.adjust_gamma(images, 0.5),
    "gamma 2": lambda images: T.adjust_gamma(images, 2.0),
    "warm: gains 1.25, 1, 0.7": partial(gains, 1.25, 1.0, 0.7),
    "cool: gains 0.7, 1, 1.25": partial(gains, 0.7, 1.0, 1.25),
    "green: gains 0.8, 1.2, 0.8": partial(gains, 0.8, 1.2, 0.8),
    "posterized to 2 bits": lambda images: T.posterize(images, 2),
    "sharpness 5": lambda images: T.adjust_sharpness(images, 5.0),
    "equalized histogram": T.equalize,
    "noise of 0.1": noisy,
    "inverted": T.invert,
}
"""What the photographs of a planted appearance look like."""


def framed(top: float, left: float, height: float, width: float, images: Tensor) -> Tensor:
    """A window, in sides of the image, resized to the whole; beyond the border the image is mirrored."""
    side = images.shape[-1]
    border = side // 2
    mirrored = F.pad(images.float(), (border,) * 4, mode="reflect")
    corner = [round(border + top * side), round(border + left * side), round(height * side), round(width * side)]
    resized = T.resized_crop(mirrored, *corner, [side, side], T.InterpolationMode.BICUBIC, antialias=True)
    return resized.round().clamp(0, 255).to(torch.uint8)


FRAMINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "unchanged": lambda images: images,
    "moved right by 0.4": partial(framed, 0.0, -0.4, 1.0, 1.0),
    "moved left by 0.4": partial(framed, 0.0, 0.4, 1.0, 1.0),
    "moved down by 0.4": partial(framed, -0.4, 0.0, 1.0, 1.0),
    "moved up by 0.4": partial(framed, 0.4, 0.0, 1.0, 1.0),
    "zoomed out, 1.7 sides": partial(framed, -0.35, -0.35, 1.7, 1.7),
    "zoomed in, 0.04 of the area": partial(framed, 0.4, 0.4, 0.2, 0.2),
    "upper and lower quarter cut off, aspect 2": partial(framed, 0.25, 0.0, 0.5, 1.0),
    "left and right quarter cut off, aspect 0.5": partial(framed, 0.0, 0.25, 1.0, 0.5),
    "flattened to half its height": partial(framed, -0.5, 0.0, 2.0, 1.0),
    "upside down": T.vertical_flip,
}
"""Where the photographs of a planted framing lie; the stock crop has 0.08 to 1 of the area, an aspect of 3/4 to 4/3."""


@dataclass(frozen=True)
class Question:
    """Which images are relevant, and the features that should find them."""

    name: str
    own: str
    relevant: Rows
    about: dict[str, Any]


@dataclass(frozen=True)
class Gallery:
    """Images (n, 3, h, w) that search each other."""

    name: str
    images: Tensor
    questions: list[Question]


def planted(
    photos: Tensor, appearances: list[str], framings: list[str], device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every photograph in every style, and the numbers of its photograph, appearance and framing."""
    images, numbers = [], []
    for f, framing in enumerate(framings):
        moved = FRAMINGS[framing](photos)
        for a, appearance in enumerate(appearances):
            images.append(APPEARANCES[appearance](moved))
            numbers.append(torch.tensor([[i, a, f] for i in range(len(photos))]))
    photo, appearance_, framing_ = torch.cat(numbers).to(device).unbind(1)
    return torch.cat(images), photo, appearance_, framing_


def in_pairs_of_styles(photos: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Every photograph in every appearance, each time in another framing, and the numbers of the photographs."""
    random = torch.Generator().manual_seed(0)
    framings = torch.stack([torch.randperm(len(FRAMINGS), generator=random) for _ in photos])
    moved = torch.stack([framing(photos) for framing in FRAMINGS.values()])
    number = torch.arange(len(photos))
    images = [change(moved[framings[:, i], number]) for i, change in enumerate(APPEARANCES.values())]
    return torch.cat(images), number.repeat(len(images)).to(device)


def planted_galleries(photos: Tensor, limit: int, device: torch.device) -> Iterator[Gallery]:
    some = photos[: max(2, limit // len(APPEARANCES))]
    images, photo, appearance, _ = planted(some, [*APPEARANCES], ["unchanged"], device)
    about = {"photographs": len(some), "styles": [*APPEARANCES]}
    questions = [
        Question("same photograph", ALL_BUT("appearance"), same_label(photo), about),
        Question("same appearance", "appearance", same_label(appearance), about),
    ]
    yield Gallery("planted appearances", images, questions)
    some = photos[: max(2, limit // len(FRAMINGS))]
    images, photo, _, framing = planted(some, ["unchanged"], [*FRAMINGS], device)
    about = {"photographs": len(some), "styles": [*FRAMINGS]}
    questions = [
        Question("same photograph", ALL_BUT("spatial"), same_label(photo), about),
        Question("same framing", "spatial", same_label(framing), about),
    ]
    yield Gallery("planted framings", images, questions)
    images, photo = in_pairs_of_styles(some, device)
    about = {"photographs": len(some), "styles": [*APPEARANCES, *FRAMINGS]}
    yield Gallery("planted styles", images, [Question("same photograph", "content", same_label(photo), about)])
    appearances, framings = [*APPEARANCES][:6], [*FRAMINGS][:2]
    some = photos[: max(2, limit // 12)]
    images, photo, appearance, _ = planted(some, appearances, framings, device)

    def other_appearance(part: slice) -> Tensor:
        return (photo[part, None] == photo) & (appearance[part, None] != appearance)

    about = {"photographs": len(some), "styles": [f"{a}; {f}" for f in framings for a in appearances]}
    questions = [Question("same photograph, other appearance", MIXED, other_appearance, about)]
    yield Gallery("planted both", images, questions)


def birds(images: Tensor, species: Tensor, boxes: Tensor) -> Gallery:
    """Boxes are x, y, width and height in pixels of the images."""
    corners = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1).clamp(0, images.shape[-1])
    questions = [
        Question("same species", "content", same_label(species), {}),
        Question("same box", "spatial", lambda part: box_iou(corners[part], corners) >= OVERLAP, {"overlap": OVERLAP}),
    ]
    return Gallery("CUB", images, questions)


def colored(name: str, images: Tensor, device: torch.device) -> Gallery:
    side = images.shape[-1]
    center = images[..., side // 4 : side - side // 4, side // 4 : side - side // 4]
    colors = torch.cat([lab(part.to(device)).mean((2, 3)) for part in center.split(BATCH)])
    count = max(1, round(NEAREST * (len(colors) - 1)))

    def distances(part: slice) -> Tensor:
        return torch.cdist(colors[part], colors, compute_mode="donot_use_mm_for_euclid_dist")

    parts = [slice(start, start + BATCH) for start in range(0, len(colors), BATCH)]
    # One more than the count: the nearest color is the image's own.
    radius = torch.cat([distances(part).kthvalue(count + 1, 1).values for part in parts])
    about = {"nearest": NEAREST, "median_distance": round(radius.median().item(), 2)}
    return Gallery(
        name,
        images,
        [Question("same color", "appearance", lambda part: distances(part) <= radius[part, None], about)],
    )


def lab(images: Tensor) -> Tensor:
    """CIE L*a*b* (n, 3, h, w) of sRGB images of 8 bits, with the white point D65."""
    rgb = images.double() / 255
    linear = torch.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = torch.tensor(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]],
        dtype=torch.float64,
        device=images.device,
    )
    xyz = torch.einsum("ij,njhw->nihw", to_xyz / to_xyz.sum(1, keepdim=True), linear)
    f = torch.where(xyz > (6 / 29) ** 3, xyz.clamp(min=1e-9) ** (1 / 3), xyz * (29 / 6) ** 2 / 3 + 4 / 29)
    x, y, z = f.unbind(1)
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], 1).float()


def color_histogram(images: Tensor) -> Tensor:
    """Square roots of the shares of 8 × 8 × 8 colors, (n, 512)."""
    red, green, blue = (images // 32).long().flatten(2).unbind(1)
    counts = torch.zeros(len(images), 512, device=images.device)
    counts.scatter_add_(1, 64 * red + 8 * green + blue, torch.ones_like(red, dtype=torch.float32))
    return (counts / red.shape[1]).sqrt()


def embed(model: SpacesModel, images: Tensor, device: torch.device) -> dict[str, Tensor]:
    """h and every space, (n, d), on the device."""
    model.to(device)
    parts = [encode(model, batch.to(device)) for batch in images.split(BATCH)]
    return {name: torch.cat([part[name].float() for part in parts]) for name in parts[0]}


def weighted_scores(
    spaces: Mapping[str, Tensor], weights: Mapping[str, float], minimum: Mapping[str, float] | None = None
) -> Rows:
    """Σ wᵢ / spreadᵢ · cosᵢ, as in an index.

    An index does not show images below a minimum cosine; here they follow all others.
    """
    unit = {space: F.normalize(spaces[space], dim=1) for space in weights}
    scale = {space: weight / spread(unit[space]) for space, weight in weights.items()}

    def rows(part: slice) -> Tensor:
        total: Tensor | float = 0.0
        for space, z in unit.items():
            cosines = z[part] @ z.T
            total = total + scale[space] * cosines
            if minimum and space in minimum:
                total = total - 1e4 * (cosines < minimum[space])
        assert isinstance(total, Tensor)
        return total

    return rows


def spread(unit: Tensor) -> float:
    return max(float(random_cosines(unit.cpu().numpy()).std()), LEAST_SPREAD)


def alike(z: Tensor) -> float:
    """The smallest cosine of a liked space beside an unliked one, as `unweave search` sets it."""
    cosines = torch.from_numpy(random_cosines(F.normalize(z, dim=1).cpu().numpy()))
    return cosines.quantile(ALIKE).item()


def in_an_index(features: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The vectors of an index of these images."""
    n = len(next(iter(features.values())))
    some = torch.randperm(n, generator=torch.Generator().manual_seed(0))[:FITTED]
    geometry = Geometry.fit({name: z[some] for name, z in features.items()})
    return {name: geometry.vectors(name, z).to(z.device) for name, z in features.items()}


def searches(
    images: Tensor, run: SpacesModel, baseline: SpacesModel | None, device: torch.device, *, mixed: bool
) -> dict[str, Rows]:
    """The scores that each kind of feature gives to pairs of images."""
    plain = embed(run, images, device)
    z = in_an_index(plain)
    found = {space: cosine_scores(z[space]) for space in SPACES}
    found |= {"z": weighted_scores(z, dict.fromkeys(SPACES, 1.0)), "h": cosine_scores(plain["h"])}
    for style in SPACES[1:]:
        found[ALL_BUT(style)] = weighted_scores(z, {space: 1.0 for space in SPACES if space != style})
    if mixed:
        weights = {"content": 1.0, "appearance": UNLIKE}
        found["content − 0.3 appearance"] = weighted_scores(z, weights)
        found[MIXED] = weighted_scores(z, weights, {"content": alike(z["content"])})
    found |= {"content, not whitened": cosine_scores(plain["content"]), "h, whitened": cosine_scores(z["h"])}
    if baseline is not None:
        theirs = embed(baseline, images, device)
        indexed = in_an_index(theirs)
        for title, name in (("baseline z", "content"), ("baseline h", "h")):
            found |= {title: cosine_scores(theirs[name]), f"{title}, whitened": cosine_scores(indexed[name])}
    histograms = [color_histogram(part.to(device)) for part in images.split(BATCH)]
    return {**found, "color histogram": cosine_scores(torch.cat(histograms))}


def answer(gallery: Gallery, question: Question, found: Mapping[str, Rows]) -> dict[str, Any]:
    """The scores of all features at a question, and the lead of the question's own."""
    n = len(gallery.images)
    scores = {name: score_retrieval(rows, question.relevant, n, k=K) for name, rows in found.items()}
    own = scores[question.own]
    table = {
        name: {"precision_at_10": round(one.mean_precision, 4), "map": round(one.mean_average_precision, 4)}
        for name, one in scores.items()
    }
    table["chance"] = {
        "precision_at_10": round(own.chance_precision, 4), "map": round(own.chance_average_precision, 4)
    }  # fmt: skip
    rivals = ("h", "content") if question.own not in SPACES else ("h",)
    return {
        "data": gallery.name, "question": question.name, "own": question.own, "images": n, "queries": own.queries,
        "relevant_per_query": round(own.relevant.double().mean().item(), 1), **question.about, "scores": table,
        "ahead_of": {rival: lead(own, scores[rival]) for rival in rivals},
    }  # fmt: skip


def lead(own: RetrievalScores, other: RetrievalScores) -> dict[str, Any]:
    """Mean differences over queries with their standard errors; ahead where both means are larger."""
    found: dict[str, Any] = {}
    for name, difference in (
        ("precision_at_10", own.precision - other.precision),
        ("map", own.average_precision - other.average_precision),
    ):
        found[name] = round(difference.mean().item(), 4)
        found[f"{name}_standard_error"] = round((difference.std() / len(difference) ** 0.5).item(), 4)
    return {**found, "ahead": bool(found["precision_at_10"] > 0 and found["map"] > 0)}


def photographs(data: Path, size: int, count: int, workers: int | None) -> Tensor:
    """Photographs for planted styles."""
    source = open_source(data / "tiny-imagenet" / "validation.parquet")
    return decoded(source, chosen(len(source), count), size, workers)


def decoded(source: Source, rows: list[int], size: int, workers: int | None) -> Tensor:
    return load_images(Subset(source, rows), size, cache="ram", workers=workers).images  # type: ignore[union-attr]


def galleries(data: Path, size: int, limit: int, workers: int | None, device: torch.device) -> Iterator[Gallery]:
    yield from planted_galleries(photographs(data, size, limit // 11, workers), limit, device)
    species, boxes = (task.test for task in open_tasks("cub", data / "cub200")[:2])
    assert species is not None
    assert boxes is not None
    rows = chosen(len(species.source), limit)
    names = {name: number for number, name in enumerate(sorted(set(species.labels)))}
    labels = torch.tensor([names[name] for name in species.labels[rows]], device=device)
    corners = torch.from_numpy(boxes.targets(size, rows)).float().to(device)
    yield birds(decoded(species.source, rows, size, workers), labels, corners)
    for title, task_name, folder in (("Flowers", "flowers", "flowers102"), ("Cars", "cars", "cars")):
        (task,) = open_tasks(task_name, data / folder)
        assert task.test is not None
        rows = chosen(len(task.test.source), limit)
        yield colored(title, decoded(task.test.source, rows, size, workers), device)


def chosen(available: int, limit: int) -> list[int]:
    """The numbers of at most so many images, in random order."""
    order = torch.randperm(available, generator=torch.Generator().manual_seed(0))
    return order[:limit].tolist()


def drawn_galleries(size: int, limit: int, device: torch.device) -> Iterator[Gallery]:
    """Smooth patterns with random labels, for tests without data."""
    random = torch.Generator().manual_seed(0)
    coarse = torch.rand(limit, 3, 6, 6, generator=random)
    pictures = (F.interpolate(coarse, (size, size), mode="bicubic").clamp(0, 1) * 255).to(torch.uint8)
    yield from planted_galleries(pictures, limit, device)
    boxes = torch.rand(limit, 4, generator=random) * size / 2
    yield birds(pictures, (torch.arange(limit) % 10).to(device), boxes.to(device))
    yield colored("patterns", pictures, device)


def untrained(size: int = 32) -> SpacesModel:
    torch.manual_seed(0)
    encoder = uw.Encoder(uw.SmallConvNet(size, layers=((8, 2), (16, 2)), dim=32), SPACES, dim=8, hidden=32)
    return SpacesModel(encoder, [A.Normalize((0.5,) * 3, (0.25,) * 3)], (3, size, size))


def opened(folder: Path, spaces: tuple[str, ...], like: SpacesModel | None = None) -> SpacesModel:
    model = uw.load(folder)
    if missing := set(spaces) - set(model.spaces):
        raise SystemExit(f"{folder} has no space {sorted(missing)[0]}; it has {', '.join(model.spaces)}")
    if like is not None and model.input_shape != like.input_shape:
        raise SystemExit(f"{folder} takes images of {model.input_shape}, the run of --run takes {like.input_shape}")
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--run", type=Path, help="a run with the spaces content, spatial and appearance")
    parser.add_argument("--baseline", type=Path, help="a run of SimCLR without styles, whose images have the same size")
    parser.add_argument("--data", type=Path, help="folder with tiny-imagenet, cub200, flowers102 and cars")
    parser.add_argument("--limit", type=int, default=6000, help="images that search each other, of each data set")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument(
        "--quick", action="store_true", help="300 images; without --run an untrained network, as a test"
    )
    options = parser.parse_args()
    if not options.quick and (options.run is None or options.data is None):
        raise SystemExit("name a run with --run and the folder of the data with --data; --quick needs neither")
    started, device = time.perf_counter(), usable_device(options.device)
    limit = min(options.limit, 300) if options.quick else options.limit
    run = untrained() if options.run is None else opened(options.run, SPACES)
    baseline = None if options.baseline is None else opened(options.baseline, ("content",), run)
    about = {"k": K, "limit": limit, "device": device.type, "size": run.size, "run": described(options.run, run)}
    about["baseline"] = None if baseline is None else described(options.baseline, baseline)
    report = {**provenance("pillow"), "seconds": 0.0, "settings": about, "rows": []}
    if options.data is None:
        sets = drawn_galleries(run.size, limit, device)
    else:
        sets = galleries(options.data, run.size, limit, options.workers, device)
    for gallery in sets:
        mixed = any(question.own == MIXED for question in gallery.questions)
        found = searches(gallery.images, run, baseline, device, mixed=mixed)
        for question in gallery.questions:
            row = answer(gallery, question, found)
            report["rows"].append(row)
            said = ", ".join(
                f"{name} {one['precision_at_10']:.3f}/{one['map']:.3f}" for name, one in row["scores"].items()
            )
            print(f"{gallery.name}, {question.name} ({question.own}): precision at 10/mAP: {said}", flush=True)
        report["seconds"] = round(time.perf_counter() - started, 1)
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def described(folder: Path | None, model: SpacesModel) -> dict[str, Any]:
    about = {"identity": model.identity, "spaces": list(model.spaces)}
    if folder is None:
        return {"name": "untrained", **about}
    return {"name": folder.resolve().name, **about, "config": without_folders(RunFolder(folder).load_config())}


if __name__ == "__main__":
    main()
