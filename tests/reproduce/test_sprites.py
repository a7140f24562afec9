import dataclasses
import json

import pytest
import torch
import torch.nn.functional as F

from unweave import AdditiveAscent, DualAscent, FixedWeights
from unweave.errors import UnweaveError
from unweave.reproduce.sprite_training import split_sprites
from unweave.reproduce.sprites.report import contents, draw, failures, in_order, score_table
from unweave.reproduce.sprites.run import QUICK, SpriteData, SpritesConfig, row_names, run_sprites, tune_sprites
from unweave.reproduce.sprites.scores import FACTORS, SpriteScores, regression_targets, score_embedding
from unweave.reproduce.sprites.settings import METHODS, RULES, TRIALS, Setting, lambda_rule_of, load_settings
from unweave.reproduce.sprites.tuning import best_trials, misses

FEW = (1e-6, 1e-2, 1.0)
SMALL = {name: dataclasses.replace(METHODS[name], dim=4) for name in ("simclr", "barlow_twins")}
TINY = dataclasses.replace(
    QUICK,
    methods=SMALL,
    strengths=("medium",),
    size=16,
    steps=2,
    batch=8,
    hidden=8,
    scored=200,
    validated=200,
    penalties=(1.0,),
)


def test_a_row_for_every_method_and_rule_and_the_rest_when_started_again(tmp_path):
    first = run_sprites(tmp_path, TINY, only="simclr", device="cpu")
    assert [row["rule"] for row in first] == list(RULES)
    found = run_sprites(tmp_path, TINY, device="cpu")
    assert found[:3] == first
    assert len(found) == 6
    stored = json.loads((tmp_path / "table.json").read_text())
    assert stored["rows"] == found
    assert stored["settings"]["settings_file"].endswith("settings.yaml")
    assert stored["settings"]["settings"]["simclr"]["ours"]["lr"] == found[0]["setting"]["lr"]
    text = (tmp_path / "README.md").read_text()
    assert "/ 0.73" in text  # the paper's color, beside standard SimCLR's
    assert "settings.yaml" in text
    assert (tmp_path / "figure.svg").exists()
    assert (tmp_path / "samples.png").exists()


def test_tuning_writes_every_trial_and_the_best_setting_of_each_rule(tmp_path):
    trials = {"simclr": {rule: TRIALS["simclr"][rule][:2] for rule in ("paper", "ours")}}
    config = dataclasses.replace(TINY, methods={"simclr": SMALL["simclr"]}, trials=trials)
    rows = tune_sprites(tmp_path, config, device="cpu")
    assert json.loads((tmp_path / "tuning.json").read_text())["rows"] == rows
    assert [(row["rule"], row["trial"], row["seed"]) for row in rows] == [
        ("paper", 0, 100), ("paper", 1, 100), ("ours", 0, 100), ("ours", 1, 100),
    ]  # fmt: skip
    chosen, best = load_settings(tmp_path / "settings.yaml"), best_trials(rows, trials)
    for rule in ("paper", "ours"):
        assert chosen["simclr"][rule] == trials["simclr"][rule][best["simclr", rule]]
    assert chosen["simclr"]["standard"] == config.settings["simclr"]["standard"]  # nothing to choose
    assert chosen["vicreg"] == config.settings["vicreg"]


def test_tuning_never_sees_a_test_image_or_a_reported_seed():
    config = SpritesConfig()
    train, test = split_sprites(config.scored)
    validation = SpriteData(dataclasses.replace(config, size=8), "cpu", "validation").held_out
    assert len(validation) == config.validated
    for one, other in ((train, test), (train, validation), (test, validation)):
        assert not set(one.tolist()) & set(other.tolist())
    assert not set(config.seeds) & set(config.tuning_seeds)


def test_both_rules_have_as_many_trials_and_every_row_has_a_setting():
    settings = load_settings()
    for method in METHODS:
        assert len(TRIALS[method]["paper"]) == len(TRIALS[method]["ours"]) == len(set(TRIALS[method]["ours"]))
        assert set(settings[method]) == set(RULES)


def test_a_table_has_all_rows_of_a_seed_before_the_next_released_views_first():
    names = list(row_names(SpritesConfig(), ""))
    assert len(names) == 5 * 2 * 3 * 3 * 3
    assert {name[4] for name in names[:54]} == {21}
    assert {name[3] for name in names[:27]} == {"release"}
    assert len(list(row_names(SpritesConfig(), "vicreg ours release"))) == 15


def test_the_rule_of_a_row():
    setting = Setting(eta=3.0, start=0.5, window=(0.25, 0.5), factor=100.0, tolerance=0.02)
    standard, paper, ours = (lambda_rule_of(rule, setting, 25.0, 1000) for rule in RULES)
    assert standard[0] == FixedWeights()  # the method's standard weight, from the first step
    assert paper[0] == AdditiveAscent(lr=3.0, tolerance=0.02, start=12.5, warmup=250, stop=500)
    assert ours[0] == DualAscent.over(1000, factor=100.0, window=(0.25, 0.5), tolerance=0.02, start=12.5)
    assert standard[1].min_variance == paper[1].min_variance == 0 < ours[1].min_variance


def random_factors(n, generator):
    sizes = {"shape": 3, "color": 10, "scale": 6, "orientation": 40, "x": 32, "y": 32}
    return {name: torch.randint(size, (n,), generator=generator) for name, size in sizes.items()}


def test_an_embedding_with_all_factors_scores_high_and_noise_scores_chance():
    n, generator = 2000, torch.Generator().manual_seed(0)
    factors = random_factors(n, generator)
    everything = torch.cat(list(regression_targets(factors).values()), 1).float()
    everything = (everything - everything.mean(0)) / everything.std(0)
    found = score_embedding(everything, SpriteScores(factors, FEW), lambda z: z)
    for scores in (found, found["noiseless"], found["standardised"], found["one_hot"]):
        assert min(scores[name] for name in FACTORS) > 0.98
    nothing = score_embedding(torch.randn(n, 10, generator=generator), SpriteScores(factors, FEW), lambda z: z)
    for scores in (nothing, nothing["noiseless"], nothing["normalised"], nothing["standardised"]):
        assert scores["shape"] < 0.41
        assert scores["color"] < 0.16
        assert abs(scores["x"]) < 0.05


def test_noise_hides_what_is_encoded_at_a_scale_far_below_the_rest():
    n, generator = 2000, torch.Generator().manual_seed(0)
    factors = random_factors(n, generator)
    z = torch.cat([F.one_hot(factors["shape"]).float(), 1e-5 * factors["x"].float()[:, None]], 1)
    for length in (1.0, 1000.0):  # the headline does not depend on the length of the embedding
        found = score_embedding(length * z, SpriteScores(factors, FEW), lambda z: z)
        assert found["shape"] > 0.99
        assert found["x"] < 0.05
        assert found["standardised"]["x"] > 0.99
        assert found["length"] == pytest.approx(length, rel=1e-3)
    assert found["noiseless"]["x"] > 0.9


def row(seed=21, rule="ours", strength="medium", method="simclr", views="release", **scores):
    clean = {"shape": 1.0, "color": 0.1, "scale": 0.17, "orientation": 0.0, "x": 0.0, "y": 0.0, "style_mean": 0.05}
    measured = {"variance": 0.9, "effective_rank": 2.0, "weight": 10.0, "length": 5.0, "setting": {"lr": 0.1}}
    name = {"method": method, "rule": rule, "strength": strength, "views": views, "seed": seed}
    others = {"noiseless": {**clean, "x": 0.7}, "standardised": clean, "normalised": clean, "one_hot": clean}
    return {**others, **name, **clean, **measured, **scores}


def test_the_table_has_means_over_seeds_in_the_papers_order():
    rows = [row(22, x=0.2), row(), row(method="vicreg"), row(rule="standard", strength="strong"), row(views="whole")]
    lines = score_table(in_order(rows)).splitlines()[2:]
    assert [line.split(" | ")[:2] for line in lines] == [
        ["| simclr standard strong", "1"],
        ["| simclr ours medium", "2"],
        ["| vicreg ours medium", "1"],
        ["| simclr ours medium, whole", "1"],
    ]
    assert "| 0.10 / 0.00 |" in lines[1]  # x, and the paper's


def test_rows_are_judged_by_means_over_seeds_against_the_limits_of_their_strength():
    rows = [row(strength="weak", color=0.34), row(color=0.2), row(22, color=0.0), row(method="vicreg", shape=0.97)]
    found = failures(rows)
    assert (found["met"], found["of"]) == (2, 3)  # weak jitter leaves color predictable with accuracy 0.3
    assert found["lines"] == ["vicreg ours medium: shape 0.97"]
    assert misses(row(color=0.2, y=0.06)) == pytest.approx({"color": 0.05, "y": 0.01})
    values = contents(rows)
    assert values["tables"]["whole"] == ""
    assert values["settings"] == ["simclr ours: lr 0.1", "vicreg ours: lr 0.1"]


def test_the_best_trial_misses_least_over_all_strengths_and_unfinished_ones_are_not_judged():
    def trials(number, **scores):
        return [{**row(100, strength=s), "trial": number, **scores} for s in ("weak", "strong")]

    counts = {"simclr": {"ours": range(3)}}
    rows = trials(0, x=0.2) + trials(1, style_mean=0.06) + trials(2)
    assert best_trials(rows, counts) == {("simclr", "ours"): 2}
    assert best_trials(rows[:-1], counts) == {}


def test_equal_numbers_are_drawn_in_equal_bytes(tmp_path):
    one, two = tmp_path / "one.svg", tmp_path / "two.svg"
    for path in (one, two):
        draw(path, [row(), row(rule="paper")])
    assert one.read_bytes() == two.read_bytes()


def test_words_that_match_no_row_and_impossible_settings_are_refused(tmp_path):
    with pytest.raises(UnweaveError, match="matches no row"):
        run_sprites(tmp_path, TINY, only="simclr odd", device="cpu")
    for wrong in ({"strengths": ("odd",)}, {"scored": 0}, {"scored": 70_000}, {"rules": ("raised",)}):
        with pytest.raises(UnweaveError):
            SpritesConfig(**wrong)
