import dataclasses
import json

import pytest
import torch

from unweave import CollapseGuard, DisentangledLoss
from unweave.errors import UnweaveError
from unweave.reproduce.sprites.methods import METHODS, lambda_rule
from unweave.reproduce.sprites.report import contents, draw, in_order, score_table, share_clean, styles_left, with_shape
from unweave.reproduce.sprites.run import QUICK, SpritesConfig, row_names, run_sprites
from unweave.reproduce.sprites.scores import FACTORS, regression_targets, score_embedding
from unweave.reproduce.sprites.views import STRENGTHS

SMALL = {name: dataclasses.replace(method, dim=8) for name, method in METHODS.items()}
TINY = dataclasses.replace(
    QUICK, methods=SMALL, kinds=SpritesConfig().kinds, size=16, steps=2, batch=8, hidden=8, scored=200
)


def test_a_row_for_every_method_and_rule_and_the_rest_when_started_again(tmp_path):
    first = run_sprites(tmp_path, TINY, only="simclr", device="cpu")
    assert len(first) == 4
    found = run_sprites(tmp_path, TINY, device="cpu")
    assert found[:4] == first
    assert len(found) == 16
    stored = json.loads((tmp_path / "table.json").read_text())
    assert stored["rows"] == found
    assert {"command", "commit", "settings", "hardware", "seconds", "versions"} <= set(stored)
    expected = {"method", "weights", "rule", "strength", "seed", *FACTORS, "style_mean", "variance", "effective_rank"}
    assert expected <= set(found[0])
    assert "/ 0.93" in (tmp_path / "README.md").read_text()  # the paper's color, beside standard SimCLR's
    assert (tmp_path / "figure.svg").exists()
    assert (tmp_path / "samples.png").exists()


def test_rows_are_chosen_by_the_words_of_their_names():
    assert len(list(row_names(SpritesConfig(), 0, ""))) == 46
    assert [str(row) for row in row_names(SpritesConfig(), 0, "vicreg raised")] == [
        f"vicreg standard raised {strength} whole" for strength in STRENGTHS
    ]


def test_rows_that_would_be_the_same_are_not_made_twice():
    for only, rows in (("simclr fixed", 0), ("vicreg fixed", 3), ("simclr squared", 0), ("barlow_twins squared", 3)):
        assert len(list(row_names(SpritesConfig(), 0, only))) == rows


def lambdas_of(rule, method, steps=1000):
    chosen, _ = lambda_rule(rule, method, steps)
    objective = DisentangledLoss(method.base, lambda_rule=chosen, collapse_guard=CollapseGuard(min_variance=0.0))
    z_a, z_b = ({"content": torch.randn(8, 4)} for _ in range(2))
    terms, seen = objective(z_a, z_b, torch.zeros(8, dtype=torch.long)), []
    for _ in range(steps):
        objective.update(terms)
        seen.append(objective.lambdas.item())
    return seen


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_raised_weight_reaches_the_standard_one_at_60_percent_of_the_run(method):
    lambdas = lambdas_of("raised", method)
    assert lambdas[0] == lambdas[299] == pytest.approx(method.start)
    assert lambdas[620:] == [method.base.invariance_weight] * 380
    assert lambdas == sorted(lambdas)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_geometric_weight_grows_to_its_maximum_within_its_window(method):
    lambdas = lambdas_of("geometric", method)
    first, last = (round(1000 * share) for share in method.adapted)
    assert lambdas[0] == lambdas[first - 1] == pytest.approx(method.start)
    assert lambdas[first] > lambdas[0]
    assert lambdas[last - 2] < lambdas[last - 1] == lambdas[-1] == pytest.approx(method.maximum, rel=0.1)


def random_factors(n, generator):
    sizes = {"shape": 3, "color": 10, "scale": 6, "orientation": 40, "x": 32, "y": 32}
    return {name: torch.randint(size, (n,), generator=generator) for name, size in sizes.items()}


def test_an_embedding_with_all_factors_scores_high_and_noise_scores_chance():
    n, generator = 4000, torch.Generator().manual_seed(0)
    factors = random_factors(n, generator)
    everything = torch.cat([*regression_targets(factors).values(), factors["orientation"][:, None]], 1).float()
    everything = (everything - everything.mean(0)) / everything.std(0)
    found = score_embedding(everything, factors, lambda z: z)
    assert min(found["raw"][name] for name in FACTORS) > 0.98
    assert min(found["standardised"].values()) > 0.98
    assert min(found["one_hot"].values()) > 0.6  # on the unit sphere positions and angles are not linear any more
    nothing = score_embedding(torch.randn(n, 20, generator=generator), factors, lambda z: z)
    for scores in (nothing, nothing["raw"], nothing["standardised"], nothing["noisy"]):
        assert scores["shape"] < 0.39
        assert scores["color"] < 0.14
        assert abs(scores["x"]) < 0.05


def test_noise_hides_a_direction_of_little_variance_that_standardising_reveals():
    n = 2000
    x = torch.arange(n) % 32
    factors = {"shape": x % 3, "color": x % 10, "scale": x % 6, "orientation": x, "x": x, "y": x}
    z = torch.cat([torch.randn(n, 8), torch.zeros(n, 1)], 1)
    z[:, -1] = 1e-5 * x.float()
    found = score_embedding(z, factors, lambda z: z)
    assert found["standardised"]["x"] > 0.99
    assert found["noisy"]["x"] < 0.05
    assert found["x"] < 0.05


def test_normalised_scores_do_not_depend_on_the_length_of_an_embedding_and_raw_ones_do():
    n = 2000
    x = torch.arange(n) % 32
    factors = {"shape": x % 3, "color": x % 10, "scale": x % 6, "orientation": x, "x": x, "y": x}
    z = torch.cat([torch.nn.functional.one_hot(x % 3).float(), 0.01 * torch.randn(n, 2), 1e-3 * x[:, None]], 1)
    z = z[(order := torch.randperm(n))]
    factors = {name: values[order] for name, values in factors.items()}
    short, long = (score_embedding(size * z, factors, lambda z: z) for size in (1.0, 300.0))
    for name in FACTORS:
        assert short[name] == pytest.approx(long[name], abs=0.01)
    assert short["shape"] > 0.99
    assert long["raw"]["x"] > short["raw"]["x"] + 0.1
    assert long["length"] == pytest.approx(300 * short["length"], rel=1e-4)


def row(seed=0, weights="adapted", rule="geometric", strength="weak", method="simclr", **scores):
    clean = {"shape": 1.0, "color": 0.1, "scale": 0.17, "orientation": 0.0, "x": 0.0, "y": 0.0, "style_mean": 0.05}
    measured = {"variance": 0.9, "effective_rank": 2.0, "weight": 10.0, "length": 5.0}
    name = {"method": method, "weights": weights, "rule": rule, "strength": strength, "views": "whole", "seed": seed}
    others = {"raw": {**clean, "x": 0.7}, "standardised": clean, "noisy": clean, "one_hot": clean}
    return {**others, **name, **clean, **measured, **scores}


def test_the_table_has_means_over_seeds_in_the_papers_order():
    rows = [row(1, x=0.2), row(0), row(method="vicreg"), row(weights="standard", rule="raised", strength="strong")]
    lines = score_table(in_order(rows)).splitlines()[2:]
    assert [line.split(" | ")[:2] for line in lines] == [
        ["| simclr standard strong", "1"],
        ["| simclr adapted (geometric) weak", "2"],
        ["| vicreg adapted (geometric) weak", "1"],
    ]
    assert "| 0.10 / 0.01 |" in lines[1]  # x, and the paper's


def test_runs_are_counted_against_the_floor_of_each_style():
    rows = [row(color=0.34), row(1, color=0.36, y=0.06, shape=0.98), row(strength="strong", color=0.2)]
    assert share_clean(rows, "normalised") == "1 of 3"  # weak jitter leaves color predictable with accuracy 0.3
    assert share_clean(rows, "raw") == "0 of 3"
    assert "seed 1: color 0.360, y 0.060" in styles_left(rows, "normalised")
    assert with_shape(rows).startswith("2 of 3 runs")
    found = contents(rows, [])
    assert found["adapted"]["rank"] == "2.00"


def test_equal_numbers_are_drawn_in_equal_bytes(tmp_path):
    one, two = tmp_path / "one.svg", tmp_path / "two.svg"
    for path in (one, two):
        draw(path, [row(), row(rule="paper")])
    assert one.read_bytes() == two.read_bytes()


def test_words_that_match_no_row_and_impossible_settings_are_refused(tmp_path):
    with pytest.raises(UnweaveError, match="matches no row"):
        run_sprites(tmp_path, TINY, only="simclr odd", device="cpu")
    for wrong in ({"strengths": ("odd",)}, {"scored": 0}):
        with pytest.raises(UnweaveError):
            SpritesConfig(**wrong)
