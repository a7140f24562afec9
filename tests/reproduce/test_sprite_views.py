import functools

import pytest
import torch

import unweave as uw
import unweave.augment as A
from unweave.reproduce.sprites.views import STRENGTHS, color_groups, cut_share, find_sprites, reach


@pytest.mark.parametrize("strength", STRENGTHS)
def test_redrawn_views_show_the_whole_sprite_and_the_releases_do_not(strength):
    assert cut_share(strength, "whole", images=800) < 0.005
    assert 0.08 < cut_share(strength, "release", images=800) < 0.4


def test_the_predicted_place_of_a_sprite_is_where_it_is_seen():
    images = uw.Sprites(64)[torch.randint(uw.Sprites.count, (400,), generator=torch.Generator().manual_seed(0))]
    transforms = STRENGTHS["medium"].transforms()[:3]
    views = uw.Views({}, ungrouped=transforms)
    u = views.draw(400, generator=torch.Generator().manual_seed(1))
    params, _ = views.parameters(u, views.kinds(400), (64, 64))
    assert all(isinstance(transform, A.AffineTransform) for transform in transforms)
    matrices = [t.matrix_where_on(p) for t, p in zip(transforms, params, strict=True)]
    predicted = reach(functools.reduce(torch.matmul, matrices), *find_sprites(images))
    bright = views.pair(images, u).a.amax(1) > 0.05
    line = (torch.arange(64) - 31.5).abs()
    seen = torch.maximum((bright.any(1) * line).amax(1), (bright.any(2) * line).amax(1))
    inside = predicted < 31
    assert 100 < inside.sum() < 400
    assert (seen - predicted)[inside].max() < 1  # the circle covers the sprite,
    assert (predicted - seen)[inside].mean() < 3  # and little else


def test_weak_jitter_leaves_groups_of_colors_that_it_does_not_mix_and_stronger_jitter_does_not():
    weak = color_groups("weak", draws=500)
    assert (7,) in weak  # grey stays grey
    assert 2 <= len(weak) <= 4
    assert len(color_groups("medium", draws=500)) == len(color_groups("strong", draws=500)) == 1
