import dataclasses
import json

import pytest
import torch

from unweave.errors import UnweaveError
from unweave.experiments.sprite_views import STRENGTHS
from unweave.experiments.sprites import METHODS, QUICK, SpritesConfig, rows, run_sprites, weights_rule
from unweave.experiments.sprites_report import color_lines, draw, in_order, others_section, score_table, verdict
from unweave.experiments.sprites_scores import FACTORS, regression_targets, score_row
from unweave.objectives import DisentangledLoss

TINY = dataclasses.replace(
    QUICK, methods=METHODS, kinds=SpritesConfig().kinds, steps=3, batch=16, hidden=16, scored=200
)


def test_a_row_for_every_method_and_rule_and_the_rest_when_asked_again(tmp_path):
    first = run_sprites(tmp_path, TINY, only="simclr", device="cpu")
    assert len(first) == 4
    found = run_sprites(tmp_path, TINY, device="cpu")
    assert found[:4] == first
    assert len(found) == 16
    stored = json.loads((tmp_path / "table.json").read_text())
    assert stored["rows"] == found
    expected = {"method", "weights", "rule", "strength", "seed", *FACTORS, "style_mean", "variance", "effective_rank"}
    assert expected <= set(found[0])
    assert "/ 0.93" in (tmp_path / "README.md").read_text()  # the paper's color, beside standard SimCLR's
    assert (tmp_path / "figure.svg").exists()
    assert (tmp_path / "samples.png").exists()


def test_all_rows_and_those_that_are_named():
    assert len(list(rows(SpritesConfig(), 0, ""))) == 46
    assert [str(row) for row in rows(SpritesConfig(), 0, "vicreg raised")] == [
        f"vicreg standard raised {strength} whole" for strength in STRENGTHS
    ]


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_raised_weight_begins_low_and_is_the_methods_own_from_60_percent_on(method):
    config = SpritesConfig(steps=1000)
    objective = DisentangledLoss(method.base, spaces=("content",), weights=weights_rule("raised", method, config))
    z_a, z_b = ({"content": torch.randn(8, 4)} for _ in range(2))
    terms, weights = objective(z_a, z_b, torch.zeros(8, dtype=torch.long)), []
    for _ in range(config.steps):
        objective.update(terms)
        weights.append(objective.weights.item())
    assert weights[0] == weights[299] == pytest.approx(method.start)
    assert weights[620:] == [method.base.weight] * 380
    assert weights == sorted(weights)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_our_rule_takes_an_adapted_weight_to_its_top_in_the_methods_share_of_the_steps(method):
    config = SpritesConfig(steps=1000)
    rule = dataclasses.replace(weights_rule("geometric", method, config), min_variance=0.0, min_rank=0.0)
    objective = DisentangledLoss(method.base, spaces=("content",), weights=rule)
    z_a, z_b = ({"content": torch.randn(8, 4)} for _ in range(2))
    terms, weights = objective(z_a, z_b, torch.zeros(8, dtype=torch.long)), []
    for _ in range(config.steps):
        objective.update(terms)
        weights.append(objective.weights.item())
    first, last = (round(1000 * share) for share in method.grows)
    assert weights[0] == weights[first - 1] == pytest.approx(method.start)
    assert weights[first] > weights[0]
    assert weights[last - 2] < weights[last - 1] == weights[-1] == pytest.approx(method.top, rel=0.1)


def test_only_our_rule_takes_another_power_and_vicreg_in_weak_views_alone():
    rules = ("geometric", "squared", "paper", "raised", "fixed")
    powers = {
        method: [[METHODS[method].for_row(rule, strength).base.power for rule in rules] for strength in STRENGTHS]
        for method in ("vicreg", "barlow_twins")
    }
    assert powers["barlow_twins"] == [[1, 2, 2, 2, 2]] * 3
    assert powers["vicreg"] == [[1.5, 2, 2, 2, 2], [2] * 5, [2] * 5]


@pytest.mark.parametrize("strength", STRENGTHS)
def test_vicregs_weight_grows_later_and_less_far_in_weak_views(strength):
    weak = strength == "weak"
    rule = weights_rule("geometric", METHODS["vicreg"].for_row("geometric", strength), SpritesConfig())
    assert (rule.warmup, rule.settle) == ((3500, 8000) if weak else (2000, 7000))
    assert rule.maximum == (8000.0 if weak else 40_000.0)
    assert METHODS["vicreg"].for_row("squared", strength) == METHODS["vicreg"]


def test_on_the_square_our_rule_is_the_same_and_makes_no_second_row_where_all_is():
    method = METHODS["barlow_twins"]
    for taken in (method, method.for_row("geometric", "weak")):
        assert weights_rule("squared", method, SpritesConfig()) == weights_rule("geometric", taken, SpritesConfig())
    assert list(rows(SpritesConfig(), 0, "simclr squared")) == []
    assert len(list(rows(SpritesConfig(), 0, "barlow_twins squared"))) == 3


def test_a_weight_that_begins_as_the_methods_own_makes_no_second_row():
    assert list(rows(SpritesConfig(), 0, "simclr fixed")) == []
    assert len(list(rows(SpritesConfig(), 0, "vicreg fixed"))) == 3


def test_an_embedding_that_is_the_factors_tells_them_all_and_noise_none():
    n = 4000
    generator = torch.Generator().manual_seed(0)
    sizes = {"shape": 3, "color": 10, "scale": 6, "orientation": 40, "x": 32, "y": 32}
    factors = {name: torch.randint(size, (n,), generator=generator) for name, size in sizes.items()}
    all_told = torch.cat([*regression_targets(factors).values(), factors["orientation"][:, None]], 1).float()
    all_told = (all_told - all_told.mean(0)) / all_told.std(0)
    told = score_row(all_told, factors, lambda z: z)
    assert min(told["raw"][name] for name in FACTORS) > 0.98
    assert min(told["standardised"].values()) > 0.98
    assert min(told["one_hot"].values()) > 0.6  # at unit length places and angles are no longer linear
    nothing = score_row(torch.randn(n, 20, generator=generator), factors, lambda z: z)
    for way in (nothing, nothing["raw"], nothing["standardised"], nothing["noisy"]):
        assert way["shape"] < 0.39
        assert way["color"] < 0.14
        assert abs(way["x"]) < 0.05


def test_noise_hides_a_whisper_that_standardising_lets_one_hear():
    n = 2000
    x = torch.arange(n) % 32
    factors = {"shape": x % 3, "color": x % 10, "scale": x % 6, "orientation": x, "x": x, "y": x}
    z = torch.cat([torch.randn(n, 8), 1e-5 * x[:, None].float()], 1)[torch.randperm(n)]
    z[:, -1] = 1e-5 * x.float()
    found = score_row(z, factors, lambda z: z)
    assert found["standardised"]["x"] > 0.99
    assert found["noisy"]["x"] < 0.05
    assert found["x"] < 0.05


def test_the_length_of_an_embedding_does_not_matter_to_its_scores():
    n = 2000
    x = torch.arange(n) % 32
    factors = {"shape": x % 3, "color": x % 10, "scale": x % 6, "orientation": x, "x": x, "y": x}
    z = torch.cat([torch.nn.functional.one_hot(x % 3).float(), 0.01 * torch.randn(n, 2), 1e-3 * x[:, None]], 1)
    z = z[(order := torch.randperm(n))]
    factors = {name: values[order] for name, values in factors.items()}
    short, long = (score_row(size * z, factors, lambda z: z) for size in (1.0, 300.0))
    for name in FACTORS:
        assert short[name] == pytest.approx(long[name], abs=0.01)
    assert short["shape"] > 0.99
    assert long["raw"]["x"] > short["raw"]["x"] + 0.1
    assert long["length"] == pytest.approx(300 * short["length"], rel=1e-4)


def test_the_report_says_what_weak_jitter_leaves_of_color():
    assert "0.30" in " ".join(color_lines([{"strength": "weak"}]))
    assert color_lines([{"strength": "strong"}]) == []


def row(seed=0, weights="adapted", rule="geometric", strength="weak", method="simclr", **scores):
    told = {"shape": 1.0, "color": 0.1, "scale": 0.17, "orientation": 0.0, "x": 0.0, "y": 0.0, "style_mean": 0.05}
    alive = {"variance": 0.9, "effective_rank": 2.0, "weight": 10.0}
    name = {"method": method, "weights": weights, "rule": rule, "strength": strength, "views": "whole", "seed": seed}
    return {"raw": {**told, "x": 0.7}, **name, **told, **alive, **scores}


def test_the_report_gives_means_over_seeds_in_the_papers_order():
    rows = [row(1, x=0.2), row(0), row(method="vicreg"), row(weights="standard", rule="raised", strength="strong")]
    lines = score_table(in_order(rows))[2:]
    assert [line.split(" | ")[:2] for line in lines] == [
        ["| simclr standard strong", "1"],
        ["| simclr adapted (geometric) weak", "2"],
        ["| vicreg adapted (geometric) weak", "1"],
    ]
    assert "| 0.10 / 0.01 |" in lines[1]  # x, and the paper's


def test_the_report_says_which_runs_miss_what_is_asked():
    met = [row(color=0.34), row(weights="standard", rule="raised", color=0.9)]
    shape, kept, unit, raw, alive = verdict(met)[::2]
    assert "in 2 of 2 runs." in shape
    assert kept.endswith("is: simclr weak 0.05 / 0.75.")  # the paper's: of .93, .89, .30, .82 and .83
    assert "at unit length in 1 of 1 runs." in unit
    assert "As the embeddings come, it is so in 0 of 1 runs; simclr adapted (geometric) weak, seed 0: x 0.700." in raw
    missed = [*met, row(1, color=0.36, y=0.06, shape=0.98), row(strength="strong", color=0.2, effective_rank=1.2)]
    shape, _, unit, raw, alive = verdict(missed)[::2]
    assert "in 3 of 4 runs; simclr adapted (geometric) weak, seed 1: 0.980." in shape
    assert "in 1 of 3 runs; simclr adapted (geometric) weak, seed 1: color 0.360, y 0.060;" in unit
    assert "in 0 of 3 runs" in raw
    assert "rank 1.20" in alive


def test_the_report_says_how_far_other_rules_and_views_get():
    assert others_section([]) == []
    lost = row(rule="paper", shape=0.33, color=0.87)
    *_, told, _, squared, _ = others_section([lost, row(rule="paper", strength="strong"), row(rule="squared")])
    shape, style = told.split(";")[0], told.split("no style is told ")[1]
    assert shape == "Paper's rule: shape is at .99 or better in 1 of 2 runs"
    assert style == "in 1 of 2 runs; simclr adapted (paper) weak, seed 0: color 0.870."
    assert squared.startswith("Our rule on the square: shape is at .99 or better in 1 of 1 runs;")


def test_the_same_numbers_are_drawn_in_the_same_bytes(tmp_path):
    one, two = tmp_path / "one.svg", tmp_path / "two.svg"
    for path in (one, two):
        draw(path, [row(), row(rule="paper")])
    assert one.read_bytes() == two.read_bytes()


def test_words_that_name_no_row_and_impossible_settings_are_refused(tmp_path):
    with pytest.raises(UnweaveError, match="no row"):
        run_sprites(tmp_path, TINY, only="simclr odd", device="cpu")
    for wrong in ({"strengths": ("odd",)}, {"scored": 0}):
        with pytest.raises(UnweaveError):
            SpritesConfig(**wrong)
