import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import unweave.augment as A
from unweave.errors import UnweaveError


def make(**options):
    return A.Views(
        {
            "spatial": [A.RandomResizedCrop(24), A.RandomHorizontalFlip()],
            "color": [A.ColorJitter(0.4, 0.4, 0.2, 0.1, p=0.8), A.RandomGrayscale(p=0.2)],
            "angle": [A.RandomRotation(90)],
        },
        ungrouped=[A.Normalize((0.5,) * 3, (0.25,) * 3)],
        **options,
    )


GROUP_OF_STEP = [0, 0, 1, 1, 2, None]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_a_shared_group_is_equal_bit_for_bit_and_nothing_else_is():
    views = make()
    u, shared = views.draw(400, generator=seeded()), views.kinds(400)
    a, b = views.parameters(u, shared, (32, 32))
    for group, params_a, params_b in zip(GROUP_OF_STEP, a, b, strict=True):
        for name in params_a:
            equal = (params_a[name] == params_b[name]).view(400, -1).all(1)
            if group is None:
                continue
            assert equal[shared == group + 1].all()
            if params_a[name].is_floating_point() and name not in ("top", "left", "height", "width"):
                assert not equal[shared != group + 1].any()


def test_what_is_not_shared_is_drawn_apart():
    views = make()
    u, shared = views.draw(20_000, generator=seeded()), views.kinds(20_000)
    a, b = views.parameters(u, shared, (32, 32))
    for group, params_a, params_b in zip(GROUP_OF_STEP, a, b, strict=True):
        if group is None:
            continue
        apart = shared != group + 1
        for name in params_a:
            x, y = params_a[name][apart].double(), params_b[name][apart].double()
            for i, j in zip(x.view(len(x), -1).T, y.view(len(y), -1).T, strict=True):
                if i.std() == 0:  # "on" of a transform with p = 1
                    continue
                assert abs(torch.corrcoef(torch.stack([i, j]))[0, 1]) < 0.035, name
    # Nor do two different parameters of one view have to do with each other, shared or not.
    for side in (a, b):
        x = torch.stack([side[2]["brightness"], side[2]["hue"], side[4]["angle"], side[0]["top"]])
        assert (torch.corrcoef(x) - torch.eye(4)).abs().max() < 0.035


def test_views_that_share_everything_are_the_same_picture(photos):
    views = A.Views({"all": [A.RandomResizedCrop(32), A.ColorJitter(0.4, 0.4, 0.4, 0.2), A.GaussianBlur(5)]})
    pair = views(photos, generator=seeded())
    assert torch.equal(pair.a[pair.shared == 1], pair.b[pair.shared == 1])
    assert not torch.equal(pair.a[pair.shared == 0], pair.b[pair.shared == 0])


def test_image_l_has_pair_l_mod_kinds_in_the_global_batch(photos):
    views = make()
    assert views(photos).shared.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert views(photos, start=6, total=100).shared.tolist() == [2, 3, 0, 1, 2, 3, 0, 1]


def test_more_pairs_may_share_nothing(photos):
    views = A.Views({"flip": [A.RandomHorizontalFlip()], "gray": [A.RandomGrayscale(p=0.5)]}, unshared=2)
    assert views(photos[:8]).shared.tolist() == [0, 0, 1, 2, 0, 0, 1, 2]
    assert views(photos[:3], start=6, total=9).shared.tolist() == [1, 2, 0]
    with pytest.raises(UnweaveError, match=r"too small for 3 kinds.*at least 4"):
        views(photos[:3])
    for wrong in ({"unshared": 0}, {"unshared": 2, "all_pairs": True}):
        with pytest.raises(UnweaveError, match="`unshared`"):
            A.Views({}, **wrong)


def test_without_sharing_the_kinds_are_the_same_and_every_group_is_drawn_independently(photos):
    groups = {"flip": [A.RandomHorizontalFlip()], "hue": [A.ColorJitter(hue=0.5)]}
    sharing, control = (A.Views(groups, share=share)(photos, generator=seeded()) for share in (True, False))
    assert torch.equal(sharing.shared, control.shared)
    assert torch.equal(sharing.a, control.a)
    hues = [[side[1][1]["hue"] for side in pair.steps] for pair in (sharing, control)]
    of_hue = sharing.shared == 2
    assert torch.equal(hues[0][0][of_hue], hues[0][1][of_hue])
    assert (hues[1][0] != hues[1][1]).all()


def test_two_halves_of_a_batch_get_the_views_of_the_whole(photos):
    views = make()
    whole = views(photos, generator=seeded())
    halves = [views(photos[i : i + 4], generator=seeded(), start=i, total=8) for i in (0, 4)]
    assert torch.equal(whole.a, torch.cat([half.a for half in halves]))
    assert torch.equal(whole.b, torch.cat([half.b for half in halves]))


def test_same_seed_same_views(photos):
    views = make()
    one, two, other = (views(photos, generator=seeded(s)) for s in (1, 1, 2))
    assert torch.equal(one.a, two.a)
    assert torch.equal(one.b, two.b)
    assert not torch.equal(one.a, other.a)


def test_views_leave_their_input_alone(photos):
    images = photos.float() / 255
    before = images.clone()
    A.Views({"color": [A.ColorJitter(0.5, 0.5, 0.5, 0.5)]})(images)
    assert torch.equal(images, before)


def test_uint8_and_float_give_the_same(photos):
    one, two = (make()(x, generator=seeded()) for x in (photos, photos.float() / 255))
    torch.testing.assert_close(one.a, two.a, atol=1e-5, rtol=0)


def test_all_pairs(photos):
    pair = make(all_pairs=True)(photos[:3])
    assert pair.shared.tolist() == [0, 1, 2, 3] * 3
    assert len(pair.a) == len(pair.b) == 12
    make(all_pairs=True)(photos[:1])


def test_a_shared_asymmetric_group_is_drawn_from_either_side():
    views = A.Views(
        {
            "angle": [A.RandomRotation(10)],
            "blur": A.Asymmetric([A.GaussianBlur(5, (0.1, 1.0), p=1.0)], [A.GaussianBlur(5, (1.0, 2.0), p=0.25)]),
        }
    )
    u, shared = views.draw(9000, generator=seeded()), views.kinds(9000)
    a, b = [side[1] for side in views.parameters(u, shared, (32, 32))]
    same = shared == 2
    assert torch.equal(a["sigma"][same], b["sigma"][same])
    assert torch.equal(a["on"][same], b["on"][same])
    assert (a["sigma"][~same] <= 1).all()
    assert (b["sigma"][~same] >= 1).all()
    from_a = (a["sigma"][same] < 1).float().mean()
    assert abs(from_a - 0.5) < 0.04
    # Both parameters of an image come from the same side.
    assert (a["on"][same] | (a["sigma"][same] >= 1)).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(0, 40), st.integers(1, 30))
def test_any_number_of_groups(groups, start, extra):
    views = A.Views({f"g{i}": [A.RandomRotation(90)] for i in range(groups)})
    n = groups + extra
    u, shared = views.draw(n, generator=seeded(), start=start), views.kinds(n, start)
    a, b = views.parameters(u, shared, (16, 16))
    assert shared.tolist() == [(start + i) % (groups + 1) for i in range(n)]
    for m in range(groups):
        assert torch.equal(a[m]["angle"] == b[m]["angle"], shared == m + 1)


def test_prepare_applies_the_deterministic_ungrouped_transforms_alone(photos):
    torch.testing.assert_close(make().prepare(photos), (photos.float() / 255 - 0.5) / 0.25)


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (torch.zeros(8, 32, 32), "shape"),
        (torch.zeros(8, 32, 32, 3), "permute"),
        (torch.zeros(8, 3, 32, 32, dtype=torch.int32), "int32"),
        (torch.full((8, 3, 32, 32), 255.0), "255"),
        (torch.zeros(3, 3, 32, 32), "too small"),
        (torch.zeros(0, 3, 32, 32), "empty"),
        (torch.zeros(8, 5, 32, 32), "gray or RGB"),
    ],
)
def test_bad_images_are_refused_in_one_line(images, words):
    with pytest.raises(UnweaveError, match=words) as error:
        make()(images)
    assert "\n" not in str(error.value)
    if words != "too small":
        with pytest.raises(UnweaveError, match=words):
            A.RandomGrayscale()(images)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: A.Views({"content": [A.RandomRotation(1)]}), "content"),
        (lambda: A.Views({"x": [torch.nn.Identity()]}), "Replay"),
        (lambda: A.Views({"x": A.Asymmetric([A.RandomRotation(1)], [A.RandomGrayscale()])}), "same transforms"),
        (lambda: A.Views({"x": A.Asymmetric([A.RandomResizedCrop(8)], [A.RandomResizedCrop(9)])}), "same transforms"),
        (lambda: A.RandomGrayscale(p=1.5), "probability"),
        (lambda: A.RandomSolarize(128), "255"),
        (lambda: A.ColorJitter(brightness=-1), "negative"),
        (lambda: A.ColorJitter(hue=0.7), "hue"),
        (lambda: A.GaussianBlur(4), "odd"),
        (lambda: A.RandomResizedCrop(0), "pixel"),
        (lambda: A.RandomResizedCrop(8, scale=(0.5, 2)), "scale"),
        (lambda: A.RandomTranslation(0.2), "two fractions"),
        (lambda: A.GaussianBlur(23)(torch.zeros(1, 3, 8, 8)), "too large"),
    ],
)
def test_bad_settings_are_refused_in_one_line(build, words):
    with pytest.raises(UnweaveError, match=words) as error:
        build()
    assert "\n" not in str(error.value)


def test_ungrouped_transforms_may_differ_between_the_views():
    sides = A.Asymmetric([A.RandomSolarize(0.0, p=1.0)], [A.RandomSolarize(0.0, p=0.0)])
    images = torch.rand(4, 3, 8, 8)
    pair = A.Views({}, ungrouped=sides)(images)
    torch.testing.assert_close(pair.a, 1 - images)
    torch.testing.assert_close(pair.b, images)
    assert "p=0.0" in repr(A.Views({}, ungrouped=sides))


def largest_angle(images, steps):
    [(_, params)] = steps
    return params["angle"].abs()


def test_a_redraw_keeps_the_draw_with_the_highest_score(photos):
    once = A.Views({}, ungrouped=[A.RandomRotation(90)])
    best = A.Views({}, ungrouped=[A.RandomRotation(90)], redraw=A.Redraw(largest_angle, tries=6))
    generator = seeded()
    draws = torch.stack([once.draw(8, generator=generator) for _ in range(6)])
    angles = torch.stack([(180 * u[:, :, 1] - 90).abs() for u in draws])  # (tries, 2, n)
    expected = draws.gather(0, angles.argmax(0)[None, ..., None].expand(1, -1, -1, draws.shape[-1])).squeeze(0)
    pair = best(photos, generator=seeded())
    torch.testing.assert_close(pair.a, once.pair(photos, expected).a)
    torch.testing.assert_close(pair.b, once.pair(photos, expected).b)


def test_among_equal_scores_the_first_draw_is_kept(photos):
    views = A.Views({}, ungrouped=[A.RandomRotation(90)])
    same = A.Redraw(lambda images, steps: torch.zeros(len(steps[0][1]["angle"])), tries=3)
    redrawn = A.Views({}, ungrouped=[A.RandomRotation(90)], redraw=same)
    assert torch.equal(redrawn(photos, generator=seeded()).a, views(photos, generator=seeded()).a)


@pytest.mark.parametrize("channels", [1, 2, 4, 5])
def test_views_of_any_number_of_channels(channels):
    images = torch.rand(6, channels, 32, 32)
    groups = {"spatial": [A.RandomResizedCrop(24), A.RandomHorizontalFlip(), A.RandomRotation(20)]}
    groups["blur"] = [A.GaussianBlur(5), A.RandomSolarize()]
    views = A.Views(groups, ungrouped=[A.Normalize((0.5,) * channels, (0.2,) * channels)])
    whole = views(images, generator=seeded()).a
    assert whole.shape == (6, channels, 24, 24)
    single = A.Views(groups, ungrouped=[A.Normalize((0.5,), (0.2,))])
    for channel in range(channels):  # every channel is transformed alike
        part = single(images[:, channel : channel + 1], generator=seeded()).a
        torch.testing.assert_close(part[:, 0], whole[:, channel], atol=1e-5, rtol=0)


def test_gray_images_change_in_brightness_and_contrast_as_in_torchvision():
    import torchvision.transforms.v2.functional as TF

    images = torch.rand(4, 1, 16, 16)
    jitter = A.ColorJitter(0.4, 0.4, 0.4, 0.3)
    params = jitter.sample(4, size=(16, 16), generator=seeded())
    ours = jitter.apply(images, params)
    adjust = (TF.adjust_brightness, TF.adjust_contrast, TF.adjust_saturation, TF.adjust_hue)
    for i, image in enumerate(images):
        for j in params["order"][i].tolist():
            image = adjust[j](image, params[jitter.names[j]][i].item())
        torch.testing.assert_close(ours[i], image, atol=1e-4, rtol=0)
    assert torch.equal(A.RandomGrayscale(p=1.0)(images), images)


def test_transforms_before_the_groups_are_not_shared_and_come_first():
    views = A.Views({"flip": [A.RandomHorizontalFlip()]}, before=[A.RandomResizedCrop(8)])
    assert views(torch.rand(4, 3, 20, 20)).a.shape == (4, 3, 8, 8)
    u, shared = views.draw(40, generator=seeded()), views.kinds(40)
    a, b = views.parameters(u, shared, (20, 20))
    assert not (a[0]["width"] == b[0]["width"]).all()
    assert torch.equal((a[1]["on"] == b[1]["on"])[shared == 1], torch.ones(20, dtype=torch.bool))


def test_a_shared_jitter_changes_both_views_alike_where_only_one_of_them_jitters_by_itself():
    jitter = A.Asymmetric([A.ColorJitter()], [A.ColorJitter(hue=0.5)])
    pair = A.Views({"color": jitter})(torch.rand(40, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    shared = pair.shared == 1
    assert torch.equal(pair.a[shared], pair.b[shared])
    assert not torch.isclose(pair.a[~shared], pair.b[~shared]).all((1, 2, 3)).any()
