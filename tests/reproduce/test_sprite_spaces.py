import copy
import dataclasses
import json

import pytest
import torch

from unweave import BarlowTwins, FixedWeights, SimCLR, Sprites, VICReg
from unweave.data.sprites import render_masks
from unweave.errors import UnweaveError
from unweave.objectives import dependence
from unweave.reproduce.sprite_spaces.methods import ABLATIONS, make_objective, methods, outputs
from unweave.reproduce.sprite_spaces.pixel_scale import count
from unweave.reproduce.sprite_spaces.report import OWN, extremes, grouped, shortcomings, worst_across
from unweave.reproduce.sprite_spaces.run import (
    QUICK,
    SpriteSpacesConfig,
    in_loss_geometry,
    row_names,
    run_sprite_spaces,
    score_sprite_spaces,
)
from unweave.reproduce.sprite_spaces.views import (
    FACTORS,
    GROUPS,
    NARROWEST,
    PALETTE,
    SPACES,
    WIDEST,
    ZOOM,
    SpriteFactors,
    SpriteViews,
    draw_factors,
    transform_sprites,
)
from unweave.reproduce.sprites.scores import SpriteScores
from unweave.training import load_checkpoint

FEW = (1e-3, 1.0)
TINY = dataclasses.replace(
    QUICK,
    ablations=("none", "no ends", "plain"),
    size=16,
    steps=2,
    batch=12,
    hidden=8,
    scored=200,
    forest=100,
    penalties=(1.0,),
)
SIMCLR = methods(SpriteSpacesConfig().steps, 0.4)["simclr"]


def rows(n=60):
    return SpriteFactors(torch.randint(737_280, (n,)), "cpu")[torch.arange(n)]


def test_a_row_for_every_ablation_asked_for(tmp_path):
    found = run_sprite_spaces(tmp_path, TINY, device="cpu")
    assert [row["ablation"] for row in found] == list(TINY.ablations)
    stored = json.loads((tmp_path / "table.json").read_text())
    assert stored["rows"] == found
    assert {"command", "hardware", "seconds", "versions"} <= set(stored)
    row = found[0]
    assert row["spaces"] == list(SPACES)
    assert set(row["scores"]["content"]) == set(FACTORS)
    assert set(row["dci"]) == {"disentanglement", "completeness", "informativeness"}
    assert run_sprite_spaces(tmp_path, TINY, device="cpu") == found
    for ablation, nonnegative in (("none", ["scale"]), ("no-ends", [])):
        run = load_checkpoint(tmp_path / "runs" / f"simclr-{ablation}-latents-0" / "checkpoint.safetensors")
        output = run["fingerprint"]["encoder"]["output"]
        assert [space for space in SPACES if output[space] == "nonnegative"] == nonnegative
    text = (tmp_path / "README.md").read_text()
    assert all(ablation in text for ablation in TINY.ablations)
    assert (tmp_path / "figure.svg").stat().st_size > 1000


def centers(views):
    mask = (views.amax(1) > views.amin((1, 2, 3)).view(-1, 1, 1) + 0.5).float()
    place = torch.arange(views.shape[-1]).float()
    area = mask.sum((1, 2)).clamp(min=1)
    return (mask.sum(1) * place).sum(1) / area, (mask.sum(2) * place).sum(1) / area


@pytest.mark.parametrize("mode", ["latents", "pixels"])
def test_pairs_that_share_a_place_show_the_sprite_there_and_others_do_not(mode):
    pair = SpriteViews(64, mode)(rows(), generator=torch.Generator().manual_seed(0))
    assert pair.shared.tolist()[:7] == [0, 1, 2, 3, 4, 5, 0]
    (ax, ay), (bx, by) = centers(pair.a), centers(pair.b)
    for kind, (a, b) in ((4, (ax, bx)), (5, (ay, by))):
        apart = (a - b).abs()
        assert apart[pair.shared == kind].max() < 4  # a heart turns about a point that is not its middle
        assert apart[pair.shared != kind].median() > 6


def test_latents_change_each_factor_but_never_the_shape():
    views, seen = SpriteViews(32, "latents"), []
    views.render = lambda factors: seen.append(factors) or torch.zeros(len(factors), 3, 32, 32, dtype=torch.uint8)
    given = rows()
    pair = views(given, generator=torch.Generator().manual_seed(0))
    a, b = seen
    assert torch.equal(a[:, 0], given[:, 0])
    assert torch.equal(b[:, 0], given[:, 0])
    for m in range(1, len(SPACES)):
        equal = (a == b)[pair.shared == m][:, 1:]
        assert equal[:, m - 1].all()
        assert equal.float().mean() < 0.5
    for column, most in zip(range(1, 6), (9, 5, 39, 31, 31), strict=True):
        assert 0 <= a[:, column].min() < 0.2 * most
        assert 0.8 * most < a[:, column].max() <= most


def test_pixels_set_the_position_and_the_size():
    views = SpriteViews(64, "latents")
    given = rows(200)
    images = views.render(given).float() / 255
    u = torch.rand(200, len(GROUPS))
    moved = transform_sprites(images, u, PALETTE)
    mask = (moved.amax(1) > 0.2).float()
    place = torch.arange(64) - 31.5
    x = (mask.sum(1) * place).sum(1) / mask.sum((1, 2))
    y = (mask.sum(2) * place).sum(1) / mask.sum((1, 2))
    assert (x - (u[:, 3] - 0.5) * 32).abs().max() < 1.0
    assert (y - (u[:, 4] - 0.5) * 32).abs().max() < 1.0
    assert (mask.sum((1, 2)).sqrt() / (NARROWEST + (WIDEST - NARROWEST) * u[:, 1]) - 1).abs().max() < 0.1


def test_what_pixels_make_is_what_the_renderer_draws_there():
    """Squares and ellipses, whose middle is the place they are drawn at."""
    given, u = rows(300), torch.rand(300, len(GROUPS), generator=torch.Generator().manual_seed(0))
    given, u = given[given[:, 0] < 2], u[given[:, 0] < 2]
    images = SpriteViews(64, "latents").render(given)
    made = transform_sprites(images.float() / 255, u, PALETTE)
    zoom = (NARROWEST + (WIDEST - NARROWEST) * u[:, 1]) / (images.amax(1) > 0).sum((1, 2)).sqrt()
    drawn = render_masks(
        given[:, 0].long(),
        scale=(0.5 + 0.1 * given[:, 2]) * zoom,
        angle=given[:, 3] * (2 * torch.pi / 39) + u[:, 2] * 2 * torch.pi,
        x=32 + (u[:, 3] - 0.5) * 32,
        y=32 + (u[:, 4] - 0.5) * 32,
    )
    both, either = ((op(made.amax(1) > 0, drawn)).sum((1, 2)) for op in (torch.logical_and, torch.logical_or))
    assert (both / either).mean() > 0.93
    assert torch.equal(made.amax((2, 3)), PALETTE[draw_factors(u)[:, 0].long()])


def test_what_pixels_make_is_as_small_and_as_large_as_sprites_are():
    index = torch.randint(737_280, (8000,), generator=torch.Generator().manual_seed(0))
    width = (Sprites(64)[index].amax(1) > 0).sum((1, 2)).sqrt()
    assert NARROWEST < width.min() < NARROWEST + 0.5
    assert WIDEST - 0.7 < width.max() < WIDEST


def test_the_width_of_a_sprite_is_what_its_image_shows_of_scale():
    index = torch.randint(737_280, (2000,), generator=torch.Generator().manual_seed(0))
    factors = Sprites(8).factors(index)
    width = (Sprites(64)[index].amax(1) > 0).sum((1, 2)).sqrt()
    assert SpriteScores(factors, FEW).width(width[:, None]) > 0.999
    assert SpriteScores(factors, FEW).width(factors["scale"].float()[:, None]) < 0.9


def test_spaces_that_are_the_factors_score_so():
    index = torch.randint(737_280, (3000,), generator=torch.Generator().manual_seed(0))
    factors = Sprites(8).factors(index)
    angle = factors["orientation"] * (2 * torch.pi / 39)
    z = {name: factors[name][:, None].float() for name in FACTORS if name != "orientation"}
    z["orientation"] = torch.stack([angle.sin(), angle.cos()], 1)
    z["color"] = torch.nn.functional.one_hot(factors["color"], 10).float()
    z["content"] = torch.nn.functional.one_hot(z.pop("shape")[:, 0].long(), 3).float()
    found = score_sprite_spaces({name: z[name] for name in SPACES}, SpriteScores(factors, FEW), VICReg(), forest=1500)
    for space, own in zip(SPACES, FACTORS, strict=True):
        for name, score in found["scores"][space].items():
            if name == own:
                assert score > 0.95
            else:
                assert score < found["chance"][name] + 0.06
    assert found["dci"]["disentanglement"] > 0.9


@pytest.mark.parametrize("base", [SimCLR(), BarlowTwins(), VICReg()], ids=lambda base: type(base).__name__)
def test_scores_ignore_a_length_that_the_loss_ignores(base):
    z = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    ignored = not isinstance(base, VICReg)
    assert torch.allclose(in_loss_geometry(300 * z, base), in_loss_geometry(z, base), atol=1e-4) == ignored


def test_scores_are_in_the_geometry_of_the_loss_and_raw_ones_are_not():
    index = torch.randint(737_280, (1500,), generator=torch.Generator().manual_seed(0))
    factors = Sprites(8).factors(index)
    shape = torch.nn.functional.one_hot(factors["shape"], 3).float()
    z = dict.fromkeys(SPACES, shape * (1 + factors["x"][:, None]))  # only the length encodes x
    found = score_sprite_spaces(z, SpriteScores(factors, FEW), SimCLR(), forest=200)
    assert abs(found["scores"]["content"]["x"]) < 0.02
    assert found["raw"]["content"]["x"] > 0.9
    assert found["scores"]["content"]["shape"] > 0.99


def test_the_report_puts_what_is_not_ablated_first_whichever_was_made_first():
    made = [("vicreg", "none", "pixels"), ("simclr", "plain", "latents"), ("vicreg", "none", "latents")]
    made.append(("simclr", "none", "latents"))
    rows = [{"method": m, "ablation": a, "mode": mode} for m, a, mode in made]
    assert list(grouped(rows)) == [made[3], made[2], made[0], made[1]]


def test_each_ablation_removes_one_part_and_plain_is_the_papers_objective():
    whole = make_objective(SIMCLR, "none")
    assert all(weight > 0 for weight in whole.independence.weight.values())
    assert whole.lambdas.tolist() == [0.5] * 6
    assert make_objective(SIMCLR, "no independence").independence is None
    assert make_objective(SIMCLR, "per-space entropy").entropy == "per-space"
    fixed = make_objective(SIMCLR, "fixed weights")
    assert (type(fixed.lambda_rule), fixed.lambdas.tolist()) == (FixedWeights, [1.0] * 6)
    assert fixed.independence == whole.independence
    plain = make_objective(SIMCLR, "plain")
    assert (plain.independence, plain.content_pairs, plain.base) == (None, "own", SimCLR(temperature=0.15))
    assert plain.lambdas.tolist() == [1.0] * 6
    restricted = {ablation for ablation in ABLATIONS if outputs(SIMCLR, ablation)["scale"] == "nonnegative"}
    assert set(ABLATIONS) - restricted == {"no ends", "plain"}


def test_rows_are_chosen_by_the_words_of_their_names(tmp_path):
    assert len(list(row_names(SpriteSpacesConfig(), 0, ""))) == 9
    assert [row[1] for row in row_names(SpriteSpacesConfig(), 0, "simclr fixed")] == ["fixed weights"]
    with pytest.raises(UnweaveError, match="matches no row"):
        run_sprite_spaces(tmp_path, TINY, only="odd", device="cpu")
    for wrong in ({"methods": ("odd",)}, {"mode": "odd"}):
        with pytest.raises(UnweaveError):
            SpriteSpacesConfig(**wrong)


def test_the_worst_own_and_the_largest_leaks_worked_by_hand():
    scores = {s: {f: (0.9 if OWN[s] == f else 0.1) for f in FACTORS} for s in SPACES}
    scores["x"]["x"] = 0.7
    scores["x"]["color"] = 0.4
    scores["y"]["shape"] = 0.5
    row = {"spaces": list(SPACES), "factors": list(FACTORS), "scores": scores, "chance": dict.fromkeys(FACTORS, 0.1)}
    assert extremes([row]) == pytest.approx((0.7, 0.3, 0.4))


def test_the_command_passes_the_mode_on(monkeypatch, tmp_path):
    from unweave.cli.main import main

    seen = {}
    target = "unweave.reproduce.sprite_spaces.run_sprite_spaces"
    monkeypatch.setattr(target, lambda out, config, **_: seen.update(config=config))
    assert main(["reproduce", "sprite-spaces", "--mode", "pixels", "--out", str(tmp_path)]) == 0
    assert seen["config"].mode == "pixels"


def ring_of_scales(shift):
    """Scale on a ring of six places, a heart's ``shift`` places further on; and the factors."""
    index = torch.randint(737_280, (3000,), generator=torch.Generator().manual_seed(0))
    factors = Sprites(8).factors(index)
    place = (factors["scale"] + shift * (factors["shape"] == 2)) % 6
    return torch.nn.functional.one_hot(place, 6).float(), factors


def test_a_shifted_code_of_scale_is_decodable_for_each_shape_but_not_across_shapes():
    z, factors = ring_of_scales(shift=1)
    found = SpriteScores(factors, FEW).scale_across_shapes(z)
    assert found["heart"]["heart"] == found["square"]["ellipse"] == 1
    assert found["heart"]["square"] == found["square"]["heart"] == 0
    assert worst_across({"scale_across_shapes": found}) == 0
    assert (
        dependence(z, torch.nn.functional.one_hot(factors["shape"], 3).float()) < 0.01
    )  # independence does not detect it


def test_a_code_of_scale_that_is_the_same_for_all_shapes_is_decodable_across_them():
    z, factors = ring_of_scales(shift=0)
    assert worst_across({"scale_across_shapes": SpriteScores(factors, FEW).scale_across_shapes(z)}) == 1


def perfect_row():
    chance = {"shape": 1 / 3, "color": 0.1, "scale": 1 / 6, "orientation": 0.0, "x": 0.0, "y": 0.0}
    scores = {s: {f: (1.0 if OWN[s] == f else chance[f]) for f in FACTORS} for s in SPACES}
    raw = copy.deepcopy(scores)
    return {
        "scores": scores,
        "raw": raw,
        "chance": chance,
        "method": "simclr",
        "ablation": "none",
        "mode": "latents",
        "seed": 3,
    }


def test_the_scores_that_miss_a_requirement_are_listed():
    row, short = perfect_row(), perfect_row()
    assert shortcomings(row) == []
    short["scores"]["scale"] |= {"scale": 0.89, "shape": 0.49, "x": 0.09}
    short["scores"]["orientation"] |= {"orientation": 0.71, "shape": 0.48}
    short["scores"]["content"] |= {"shape": 0.98, "color": 0.21}
    expected = [("shape", "content"), ("color", "content"), ("shape", "scale"), ("scale", "scale")]
    assert [(line.split()[0], line.split()[-1]) for line in shortcomings(short)] == expected
    short["raw"]["x"]["y"] = 0.11
    assert len(shortcomings(short, "raw")) == 1


def test_zooms_keep_the_order_of_sizes_within_a_shape_and_pairs_that_share_scale_share_the_factor():
    factors = rows(60)
    images = SpriteViews(64, "zoom").render(factors).float() / 255
    u = torch.rand(60, 5, generator=torch.Generator().manual_seed(0))
    u[:, 3:] = 0.5
    before = (images.amax(1) > 0.05).sum((1, 2)).sqrt()
    after = (transform_sprites(images, u, PALETTE, relative=True).amax(1) > 0.05).sum((1, 2)).sqrt()
    torch.testing.assert_close(after / before, ZOOM[0] * (ZOOM[1] / ZOOM[0]) ** u[:, 1], rtol=0.06, atol=0)


def test_no_function_of_the_width_is_scale_but_its_place_among_the_widths_of_its_shape_is():
    found = count(12_000)
    width, both, quantile = found.values()
    assert width["scale"] < 0.80 < 0.90  # what is required of the scale space cannot be reached
    assert width["shape"] > 0.6
    assert both["scale"] > 0.99
    assert quantile["scale"] > 0.97
    assert quantile["shape"] < 0.45
