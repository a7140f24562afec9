import pytest
import torch

from unweave.data.sprites import COUNT, Sprites
from unweave.experiments.sprite_views import STRENGTHS, WholeViews, color_groups, cut_share, find_sprites, reach


@pytest.mark.parametrize("strength", STRENGTHS)
def test_views_show_the_whole_sprite_and_the_releases_do_not(strength):
    assert cut_share(strength, "whole") < 0.005
    assert 0.08 < cut_share(strength, "release") < 0.4


def test_where_a_sprite_comes_to_lie_is_where_it_is_seen():
    images = Sprites(64)[torch.randint(COUNT, (400,), generator=torch.Generator().manual_seed(0))]
    views = WholeViews({}, always=STRENGTHS["medium"].transforms()[:3])
    u, shared = views.draw(400, generator=torch.Generator().manual_seed(1))
    params, _ = views.parameters(u, shared, (64, 64))
    told = reach(views.moves(params), *find_sprites(images))
    bright = views.pair(images, u, shared).a.amax(1) > 0.05
    line = (torch.arange(64) - 31.5).abs()
    seen = torch.maximum((bright.any(1) * line).amax(1), (bright.any(2) * line).amax(1))
    inside = told < 31
    assert 100 < inside.sum() < 400
    assert (seen - told)[inside].max() < 1  # a circle about the sprite: it holds all of it,
    assert (told - seen)[inside].mean() < 3  # and little else


def test_weak_jitter_leaves_groups_of_colors_apart_and_stronger_does_not():
    weak = color_groups("weak")
    assert (7,) in weak  # grey stays grey
    assert 2 <= len(weak) <= 4
    assert len(color_groups("medium")) == len(color_groups("strong")) == 1
