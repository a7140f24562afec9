import dataclasses
import json

import pytest
import torch

from unweave.errors import UnweaveError
from unweave.reproduce.identifiability.objectives import OBJECTIVES
from unweave.reproduce.identifiability.run import (
    QUICK,
    Data,
    IdentifiabilityConfig,
    Stack,
    run_identifiability,
    stacks,
    train_stack,
)
from unweave.reproduce.identifiability.scores import _own_and_leak
from unweave.reproduce.identifiability.settings import INSIDE, SETTINGS

TINY = dataclasses.replace(
    QUICK, steps=4, batch=60, hidden=(8,), restarts=2, compared=((2, 2),), fit=60, test=60, landmarks=20
)


def test_a_row_for_every_run_a_figure_and_a_readme(tmp_path):
    rows = run_identifiability(tmp_path, TINY, device="cpu")
    stored = json.loads((tmp_path / "table.json").read_text())
    assert stored["rows"] == rows
    expected = {"setting", "objective", "ablation", "styles", "dim_c", "seed"}
    expected |= {"content_r2", "diagonal", "leak", "exogenous", "mcc"}
    assert expected <= set(rows[0])
    assert {row["setting"] for row in rows} == set(SETTINGS)
    assert {row["objective"] for row in rows} == set(OBJECTIVES)
    assert len({row["ablation"] for row in rows}) == 5
    text = (tmp_path / "README.md").read_text()
    assert "conjecture" in text
    assert all(f"`{name}`" in text for name in SETTINGS)
    assert (tmp_path / "figure.svg").stat().st_size > 1000


def test_an_interrupted_run_resumes_with_what_is_missing(tmp_path):
    first = run_identifiability(tmp_path, dataclasses.replace(TINY, compared=()), device="cpu")
    more = dataclasses.replace(TINY, compared=(), shapes=((2, 2), (1, 2)))
    assert run_identifiability(tmp_path, more, device="cpu")[: len(first)] == first


@pytest.mark.usefixtures("one_thread")
def test_content_and_style_are_recovered_in_a_short_time():
    config = dataclasses.replace(QUICK, steps=1200, batch=256)
    (row,) = train_stack(Stack(styles=1, dim_c=1, settings=("b",)), config, "cpu")
    assert row["content_r2"] > 0.95
    assert row["diagonal"] > 0.95
    assert row["leak"] < 0.05
    assert row["mcc"] > 0.97


@pytest.mark.parametrize("ablation", ["none", "all pairs"])
def test_pairs_share_content_and_the_style_of_their_kind_alone(ablation):
    stack = Stack(styles=2, dim_c=2, settings=INSIDE, ablation=ablation)
    config = dataclasses.replace(TINY, seeds=(0, 1))
    data = Data(stack, config, "cpu")
    for latents in data.parts:
        latents.observe = lambda content, style: torch.cat([content, style], -1)  # latents in place of observations
    a, b = data.pairs(60, torch.Generator().manual_seed(0))
    same = (a == b).view(len(a), -1, 3, 4)
    assert same[..., :2].all()
    assert [[bool(same[:, :, kind, 2 + m].all()) for m in (0, 1)] for kind in (0, 1, 2)] == [
        [False, False], [True, False], [False, True],
    ]  # fmt: skip
    of_one_sample = a.view(len(a), -1, 3, 4)[..., :2]
    assert bool((of_one_sample[:, :, 0] == of_one_sample[:, :, 1]).all()) == (ablation == "all pairs")


def test_own_and_leak_worked_by_hand():
    scores = torch.tensor([[0.9, 0.7, 0.1, 0.0, 0, 0], [0.0, 0.3, 0.8, 0.2, 0, 0], [0.0, 0.1, 0.1, 0.6, 0, 0]])
    floors = torch.zeros(3, 6)
    floors[1, 1] = 0.25  # r² of content from the true first style
    own, leak = _own_and_leak(scores, floors, dim_c=2, styles=2)
    torch.testing.assert_close(own, torch.tensor([0.8, 0.8, 0.6]))
    assert leak == pytest.approx(0.2)


def test_which_entropies_each_objective_and_ablation_has():
    ours, theorem = OBJECTIVES["ours"], OBJECTIVES["theorem"]
    assert theorem.groups(2, "none") == [[0, 1, 2]]
    assert ours.groups(2, "none") == ours.groups(2, "all pairs") == [[0], [0, 1, 2]]
    assert ours.groups(2, "no content entropy") == [[0, 1, 2]]
    assert ours.groups(2, "per-space entropy") == [[0], [1], [2]]
    assert ours.groups(2, "no style entropy") == [[0]]


def test_the_whole_grid_has_every_shape_and_no_run_twice():
    config = IdentifiabilityConfig()
    names = [row for stack in stacks(config) for row in stack.rows(config)]
    assert len(names) == len(set(names))
    assert {(styles, dim_c) for _, _, _, styles, dim_c, _ in names} == {(m, d) for m in (1, 2, 4, 8) for d in (2, 5)}


@pytest.mark.parametrize(
    "settings", [{"seeds": ()}, {"shapes": ((0, 2),)}, {"shapes": ((1, 0),)}, {"objectives": ("odd",)}, {"batch": 12}]
)
def test_impossible_settings_are_refused_in_one_line(settings):
    with pytest.raises(UnweaveError) as error:
        IdentifiabilityConfig(**settings)
    assert "\n" not in str(error.value)
