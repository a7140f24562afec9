"""The parts of benchmarks/retrieval.py: colors, framings, relevance, and the formula of the library's search."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import unweave as uw
from small_models import photograph

FILE = Path(__file__).parents[1] / "benchmarks" / "retrieval.py"
QUESTIONS = {
    ("planted appearances", "same photograph"): "all but appearance",
    ("planted appearances", "same appearance"): "appearance",
    ("planted framings", "same photograph"): "all but spatial",
    ("planted framings", "same framing"): "spatial",
    ("planted styles", "same photograph"): "content",
    ("planted both", "same photograph, other appearance"): "like content, unlike appearance",
    ("CUB", "same species"): "content",
    ("CUB", "same box"): "spatial",
    ("Flowers", "same color"): "appearance",
    ("Cars", "same color"): "appearance",
}


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("retrieval_benchmark", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # which dataclasses need
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def pictures():
    """(40, 3, 32, 32)."""
    return torch.stack([torch.from_numpy(np.array(photograph(32, 32, i))).permute(2, 0, 1) for i in range(40)])


def test_lab_is_that_of_the_published_primaries(benchmark):
    colors = {
        (255, 255, 255): (100, 0, 0), (0, 0, 0): (0, 0, 0), (255, 0, 0): (53.24, 80.09, 67.20),
        (0, 255, 0): (87.73, -86.18, 83.18), (0, 0, 255): (32.30, 79.19, -107.86),
    }  # fmt: skip
    images = torch.tensor([*colors], dtype=torch.uint8)[:, :, None, None]
    torch.testing.assert_close(benchmark.lab(images)[:, :, 0, 0], torch.tensor([*colors.values()]), atol=0.02, rtol=0)


def test_histograms_count_the_colors_of_each_image(benchmark, pictures):
    found = benchmark.color_histogram(pictures).square() * 32 * 32
    for image, counts in zip(pictures.permute(0, 2, 3, 1).numpy(), found, strict=True):
        expected, _ = np.histogramdd(image.reshape(-1, 3), bins=8, range=[(0, 256)] * 3)
        np.testing.assert_allclose(counts, expected.ravel(), atol=1e-3)


def test_a_framing_moves_and_mirrors_the_image(benchmark, pictures):
    moved = benchmark.framed(0.0, -0.25, 1.0, 1.0, pictures)
    assert torch.equal(moved[..., 8:], pictures[..., :-8])
    assert torch.equal(moved[..., :8], pictures[..., 1:9].flip(-1))
    half = benchmark.framed(0.25, 0.0, 0.5, 1.0, pictures)
    expected = F.interpolate(pictures[..., 8:24, :].float(), (32, 32), mode="bicubic", antialias=True)
    assert torch.equal(half, expected.round().clamp(0, 255).to(torch.uint8))


def test_planted_styles_are_different_images_of_the_same_photographs(benchmark, pictures):
    names = [*benchmark.APPEARANCES], [*benchmark.FRAMINGS]
    for appearances, framings in ((names[0], ["unchanged"]), (["unchanged"], names[1])):
        images, photo, appearance, framing = benchmark.planted(pictures[:3], appearances, framings, torch.device("cpu"))
        assert (images.dtype, images.shape) == (torch.uint8, (33, 3, 32, 32))
        assert len({image.numpy().tobytes() for image in images}) == 33
        assert torch.equal(images[:3], pictures[:3])
        assert len({*zip(photo.tolist(), appearance.tolist(), framing.tolist(), strict=True)}) == 33


def test_the_nearest_colors_are_relevant_for_every_image(benchmark):
    images = torch.randint(256, (101, 3, 16, 16), dtype=torch.uint8)
    (question,) = benchmark.colored("noise", images, torch.device("cpu")).questions
    relevant = question.relevant(slice(0, 101))
    center = benchmark.lab(images[..., 4:12, 4:12]).mean((2, 3)).double()
    nearest = torch.cdist(center, center).argsort(1)[:, :3]  # itself and 2 % of the other 100
    assert torch.equal(relevant, torch.zeros(101, 101, dtype=torch.bool).scatter(1, nearest, True))


def test_boxes_are_cut_off_at_the_border(benchmark):
    """The first two are the same inside the image; the third overlaps by 2/3, the fourth by 3/4."""
    boxes = torch.tensor([[0.0, 0, 8, 8], [-9, -9, 17, 17], [0, 0, 8, 12], [0, 0, 8, 6]])
    images = torch.zeros(4, 3, 16, 16, dtype=torch.uint8)
    _, question = benchmark.birds(images, torch.arange(4), boxes).questions
    assert question.relevant(slice(0, 1)).tolist() == [[True, True, False, True]]


@pytest.mark.parametrize("floor", [False, True])
def test_a_mix_ranks_images_as_the_librarys_search(benchmark, tmp_path, floor):
    model = benchmark.untrained()
    for i in range(40):
        photograph(32, 32, i).save(tmp_path / f"{i:02}.png")
    index = uw.Index.build(model, tmp_path, tmp_path / "index", workers=0, device="cpu", progress=False)
    z = {space: torch.from_numpy(index.vectors(space).astype(np.float32)) for space in index.spaces}
    weights = {"content": 1.0, "appearance": -0.3}
    minimum = {"content": benchmark.alike(z["content"])} if floor else None
    if floor:
        assert minimum["content"] == pytest.approx(index.alike["content"], abs=1e-3)
    scores = benchmark.weighted_scores(z, weights, minimum)(slice(0, 40)).fill_diagonal_(-torch.inf)
    for row in range(40):
        hits = index.search(row, weights=weights, minimum=minimum, k=10)
        best = scores[row].topk(len(hits)).values
        torch.testing.assert_close(torch.tensor([hit.score for hit in hits]), best, atol=0.01, rtol=0.001)
        torch.testing.assert_close(scores[row, [hit.row for hit in hits]], best, atol=0.01, rtol=0.001)


def test_every_question_is_answered_on_photographs(benchmark, shared_data, photo_run, tmp_path, monkeypatch):
    out, run = tmp_path / "out.json", str(photo_run)
    words = ["--quick", "--data", str(shared_data), "--limit", "150", "--device", "cpu", "--workers", "0"]
    words += ["--run", run, "--baseline", run]
    monkeypatch.setattr(sys, "argv", [str(FILE), *words, "--out", str(out)])
    benchmark.main()
    report = json.loads(out.read_text())
    assert {"command", "commit", "hardware", "versions", "seconds", "settings", "rows"} == set(report)
    assert {(row["data"], row["question"]): row["own"] for row in report["rows"]} == QUESTIONS
    for row in report["rows"]:
        assert {"content", "spatial", "appearance", "z", "h", "color histogram", "chance"} <= set(row["scores"])
        assert row["scores"]["content"] == row["scores"]["baseline z, whitened"]
        assert row["scores"]["content, not whitened"] == row["scores"]["baseline z"]
        assert all(0 <= value <= 1 for one in row["scores"].values() for value in one.values())
        lead = row["ahead_of"]["h"]
        own, h = row["scores"][row["own"]], row["scores"]["h"]
        assert lead["map"] == pytest.approx(own["map"] - h["map"], abs=2e-4)
        assert lead["ahead"] == (lead["map"] > 0 and lead["precision_at_10"] > 0)


def test_pairs_of_styles_show_every_photograph_in_every_appearance_and_every_framing(benchmark, monkeypatch):
    monkeypatch.setattr(benchmark, "APPEARANCES", {"a": lambda x: x, "b": lambda x: x + 1})
    monkeypatch.setattr(benchmark, "FRAMINGS", {"c": lambda x: x, "d": lambda x: x + 10})
    photos = torch.arange(0, 600, 100).view(6, 1, 1, 1).expand(-1, 3, 2, 2)
    images, number = benchmark.in_pairs_of_styles(photos, torch.device("cpu"))
    assert (images[:, 0, 0, 0] // 100 == number).all()
    styles = [set((images[number == i, 0, 0, 0] % 100).tolist()) for i in range(6)]
    assert {frozenset(s) for s in styles} == {frozenset({0, 11}), frozenset({10, 1})}
