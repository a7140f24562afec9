import numpy as np
import pytest
import torch

from unweave.data.sprites import COUNT, PALETTE, SIZES, Sprites, render_masks
from unweave.errors import UnweaveError


def test_every_combination_has_one_number():
    sprites = Sprites()
    assert len(sprites) == COUNT == 737_280
    index = torch.arange(COUNT)
    factors = sprites.factors(index)
    assert torch.equal(sprites.index(factors), index)
    for name, values in SIZES.items():
        assert (torch.bincount(factors[name]) == COUNT // values).all()
    # The official order: the vertical place runs fastest, the shape slowest.
    assert {name: int(value[33]) for name, value in factors.items() if name != "color"} == {
        "shape": 0, "scale": 0, "orientation": 0, "x": 1, "y": 1,
    }  # fmt: skip


def test_colors_are_ten_and_evenly_spread_and_hang_on_the_seed_alone():
    index = torch.arange(COUNT)
    one, two, other = (Sprites(seed=s).factors(index)["color"] for s in (0, 0, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert (torch.bincount(one) - COUNT / 10).abs().max() < 1500


def test_a_sprite_is_its_color_on_black():
    sprites = Sprites()
    index = torch.randint(COUNT, (50,))
    images, factors = sprites[index], sprites.factors(index)
    assert images.shape == (50, 3, 64, 64)
    assert images.dtype == torch.uint8
    for image, color in zip(images, factors["color"], strict=True):
        inked = image[:, (image > 0).any(0)].T
        assert len(inked) > 20
        assert (inked == torch.tensor(PALETTE[color], dtype=torch.uint8)).all()


def test_agrees_with_the_official_frames(shared_data):
    """As well as, or better than, the geometry published with them: shape → (exact frames, mean wrong pixels)."""
    with np.load(shared_data / "dsprites" / "official_frames.npz") as file:
        official = torch.from_numpy(file["imgs"]).bool()
        latents = torch.from_numpy(file["latents"])
    sprites = Sprites()
    ours = (sprites[sprites.index(dict(zip(SIZES, latents.unbind(1), strict=True)))] > 0).any(1)
    wrong = (ours != official).sum((1, 2))
    for shape, exact, mean in ((0, 0.95, 0.2), (1, 0.57, 1.2), (2, 0.70, 0.4)):
        mine = wrong[latents[:, 0] == shape].float()
        assert (mine == 0).float().mean() >= exact
        assert mine.mean() <= mean


def test_place_and_size_are_where_they_should_be():
    sprites = Sprites()
    for y, x, scale in ((0, 31, 0), (15, 7, 5), (31, 0, 3)):
        factors = {"shape": torch.tensor([0]), "scale": torch.tensor([scale]), "orientation": torch.tensor([0])}
        index = sprites.index({**factors, "x": torch.tensor([x]), "y": torch.tensor([y])})
        rows, columns = (sprites[index][0] > 0).any(0).nonzero().double().add(0.5).unbind(1)
        assert abs(rows.mean() - (16 + 32 * y / 31)) < 0.5
        assert abs(columns.mean() - (16 + 32 * x / 31)) < 0.5
        assert abs(len(rows) ** 0.5 - 19.2 * (0.5 + 0.1 * scale)) < 1


def test_turning_by_a_full_circle_changes_nothing():
    one = [
        render_masks(
            torch.tensor([k]),
            scale=torch.ones(1),
            angle=torch.zeros(1),
            x=torch.full((1,), 30.0),
            y=torch.full((1,), 30.0),
        )
        for k in range(3)
    ]
    two = [
        render_masks(
            torch.tensor([k]),
            scale=torch.ones(1),
            angle=torch.full((1,), 2 * torch.pi),
            x=torch.full((1,), 30.0),
            y=torch.full((1,), 30.0),
        )
        for k in range(3)
    ]
    for a, b in zip(one, two, strict=True):
        assert (a != b).sum() <= 4  # a pixel on the very edge may fall either way


@pytest.mark.parametrize("size", [8, 32, 48])
def test_smaller_sprites_show_the_same_scene(size):
    index = torch.randint(COUNT, (64,))
    large, small = ((Sprites(s)[index] > 0).any(1).float() for s in (64, size))
    shrunk = torch.nn.functional.interpolate(large[:, None], (size, size), mode="area")[:, 0]
    assert ((shrunk - small).abs() < 0.75).float().mean() > 0.97
    assert abs(small.mean() - large.mean()) < 0.01


def test_a_users_official_file_is_shown_instead(tmp_path, monkeypatch):
    monkeypatch.setattr("unweave.data.sprites.COUNT", 40)
    images = (np.random.default_rng(0).random((40, 64, 64)) < 0.3).astype(np.uint8)
    np.savez_compressed(tmp_path / "dsprites.npz", imgs=images)
    shown = Sprites(npz=tmp_path / "dsprites.npz")[torch.tensor([3, 39])]
    assert torch.equal((shown > 0).any(1), torch.from_numpy(images[[3, 39]]).bool())


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Sprites(65), "8 to 64"),
        (lambda: Sprites()[torch.tensor([COUNT])], "numbered"),
        (lambda: Sprites(npz="nowhere.npz"), "nowhere"),
        (lambda: Sprites(32, npz="x.npz"), "must be 64"),
        (lambda: Sprites(palette=((1, 2),)), "RGB"),
    ],
)
def test_bad_settings_are_refused_in_one_line(build, words):
    with pytest.raises(UnweaveError, match=words) as error:
        build()
    assert "\n" not in str(error.value)


@pytest.mark.gpu
def test_the_same_on_a_gpu():
    index = torch.randint(COUNT, (500,))
    different = (Sprites()[index] != Sprites()[index.cuda()].cpu()).any(1).sum((1, 2))
    assert different.float().mean() < 0.05
