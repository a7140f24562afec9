import dataclasses
import json

import pytest
import torch

from unweave.errors import UnweaveError
from unweave.reproduce.numerical import QUICK, NumericalConfig, run_numerical
from unweave.reproduce.numerical.run import perturbed_directions

TINY = dataclasses.replace(QUICK, sizes=(3, 8), seeds=(0,), steps=30, batch=64, fit=200, test=200, landmarks=50)


def test_one_row_a_run_and_a_figure(tmp_path):
    rows = run_numerical(tmp_path, TINY, device="cpu")
    stored = json.loads((tmp_path / "table.json").read_text())
    assert stored["rows"] == rows
    assert {"command", "commit", "settings", "hardware", "seconds", "versions"} <= set(stored)
    assert [(r["dim_z"], r["weights"], r["seed"]) for r in rows] == [
        (3, "fixed", 0), (3, "adapted", 0), (8, "fixed", 0), (8, "adapted", 0),
    ]  # fmt: skip
    assert {"setting", "content_r2", "style_r2", "style_floor"} <= set(rows[0])
    assert rows[0]["lambda"] == 1 < rows[1]["lambda"]
    assert (tmp_path / "figure.svg").stat().st_size > 1000
    assert all(len(row["perturbed"]) == len(row["style_r2_by_direction"]) == 5 for row in rows)
    [line] = [
        line for line in (tmp_path / "README.md").read_text().splitlines() if line.startswith("| independent | 0.3")
    ]
    ratios = [ratio for ratio in rows[3]["perturbed"] if ratio >= 0.3]  # the one adapted run that content fits
    assert line.split("|")[3].strip() == str(len(ratios))


def test_an_interrupted_run_resumes_with_what_is_missing(tmp_path):
    first = run_numerical(tmp_path, TINY, device="cpu")
    both = run_numerical(tmp_path, dataclasses.replace(TINY, settings=("independent", "causal")), device="cpu")
    assert both[: len(first)] == first
    assert {row["setting"] for row in both[len(first) :]} == {"causal"}
    assert all(row["style_floor"] > 0.1 for row in both[len(first) :])


@pytest.mark.parametrize("settings", [{"sizes": (0, 5)}, {"settings": ("odd",)}, {"seeds": ()}])
def test_impossible_settings_are_refused_in_one_line(settings):
    with pytest.raises(UnweaveError) as error:
        NumericalConfig(**settings)
    assert "\n" not in str(error.value)


def test_a_strange_table_is_not_overwritten(tmp_path):
    (tmp_path / "table.json").write_text("mine")
    with pytest.raises(UnweaveError, match="choose another `out`"):
        run_numerical(tmp_path, TINY, device="cpu")
    assert (tmp_path / "table.json").read_text() == "mine"


def test_directions_of_style_are_sorted_by_how_much_they_are_perturbed():
    generator = torch.Generator().manual_seed(0)
    mixing, size = torch.linalg.qr(torch.randn(3, 3, generator=generator)).Q, torch.tensor([1.0, 0.1, 3.0])
    style = torch.randn(1, 20_000, 3, generator=generator)
    ratios, directions = perturbed_directions(
        style @ mixing, (style + size * torch.randn(style.shape, generator=generator)) @ mixing
    )
    # The squared change over twice the mean variance of the two views.
    assert ratios[0].tolist() == pytest.approx([0.01 / 2.01, 1 / 3, 9 / 11], rel=0.03)
    along = (style @ mixing @ directions)[0]
    assert torch.corrcoef(torch.cat([along, style[0]], 1).T)[:3, 3:].abs().argmax(1).tolist() == [1, 0, 2]
