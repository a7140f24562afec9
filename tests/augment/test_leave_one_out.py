"""Leave-one-out views: key m shares the parameters of group m with its query, and no others."""

import pytest
import torch

import unweave as uw
import unweave.augment as A
from unweave.errors import UnweaveError

N = 60


def make_views(**options):
    groups = {
        "color": [A.ColorJitter(0.4, 0.4, 0.4, 0.2, p=0.8), A.RandomGrayscale(p=0.3)],
        "spatial": [A.RandomResizedCrop(16), A.RandomRotation(90)],
    }
    normalize = A.Normalize((0.5,) * 3, (0.25,) * 3)
    return uw.Views(groups, ungrouped=[A.GaussianBlur(3, p=0.5), normalize], **options)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_key_m_shares_group_m_with_its_query_and_nothing_else():
    pair = A.LeaveOneOut(make_views())(torch.rand(N, 3, 24, 24), generator=seeded())
    group_of = (1, 1, 2, 2, None, None)
    queries, keys = pair.steps
    for (transform, of_query), (_, of_keys), group in zip(queries, keys, group_of, strict=True):
        for name in set(of_query) - {"on"}:  # continuous parameters: equal by chance never
            same = (of_query[name].repeat_interleave(3, 0) == of_keys[name]).reshape(N, 3, -1).all(2)
            assert same.all(0).tolist() == [kind == group for kind in range(3)], (transform, name)
        if group is not None:
            assert torch.equal(of_query["on"], of_keys["on"].view(N, 3)[:, group])


def test_the_views_are_what_the_transforms_make_of_the_parameters():
    views, images = make_views(), torch.rand(6, 3, 24, 24)
    pair = A.LeaveOneOut(views)(images, generator=seeded())
    assert pair.size == (24, 24)
    for made, steps, given in (
        (pair.a, pair.steps[0], images),
        (pair.b, pair.steps[1], images.repeat_interleave(3, 0)),
    ):
        for transform, params in steps:
            given = transform.apply(given, params)
        torch.testing.assert_close(made, given)


def test_with_one_group_of_all_transforms_key_1_is_the_query():
    views = uw.Views({"all": [A.RandomResizedCrop(16), A.ColorJitter(0.4, 0.4, 0.4, 0.2)]})
    pair = A.LeaveOneOut(views)(torch.rand(8, 3, 24, 24))
    keys = pair.b.unflatten(0, (8, 2))
    assert torch.equal(keys[:, 1], pair.a)
    assert not torch.isclose(keys[:, 0], pair.a).all((1, 2, 3)).any()


def test_a_part_of_the_batch_has_the_views_of_the_whole():
    images, views = torch.rand(10, 3, 24, 24), A.LeaveOneOut(make_views())
    whole = views(images, generator=seeded())
    part = views(images[4:7], generator=seeded(), start=4, total=10)
    torch.testing.assert_close(part.a, whole.a[4:7])
    torch.testing.assert_close(part.b, whole.b[12:21])
    assert torch.equal(part.shared, whole.shared[12:21])


def test_an_asymmetric_group_has_the_average_distribution_in_queries_and_keys():
    solarize = A.Asymmetric([A.RandomSolarize(0.5, p=0.0)], [A.RandomSolarize(0.5, p=1.0)])
    views = uw.Views({"solarize": solarize}, ungrouped=A.Asymmetric([A.RandomGrayscale(p=0)], [A.RandomGrayscale(p=1)]))
    pair = A.LeaveOneOut(views)(torch.rand(1000, 3, 4, 4), generator=seeded())
    ((_, query), (_, gray)), ((_, keys), (_, gray_keys)) = pair.steps
    own = keys["on"].view(1000, 2)
    for on in (query["on"], own[:, 0]):
        assert abs(on.float().mean() - 0.5) < 0.06
    assert torch.equal(query["on"], own[:, 1])
    assert not torch.equal(query["on"], own[:, 0])
    assert not gray["on"].any()
    assert gray_keys["on"].all()


def test_views_that_are_redrawn_are_refused():
    views = make_views(redraw=A.Redraw(lambda images, steps: steps[0][1]["hue"]))
    with pytest.raises(UnweaveError, match="without `redraw`"):
        A.LeaveOneOut(views)


def test_without_groups_the_transforms_are_the_same_and_nothing_is_shared():
    grouped = make_views()
    views = grouped.without_groups()
    assert views.spaces == ("content",)
    assert views.transforms() == grouped.transforms()
    pair = views(torch.rand(N, 3, 24, 24), generator=seeded())
    (jitter, rotation), (other_jitter, other_rotation) = ([steps[i][1] for i in (0, 3)] for steps in pair.steps)
    assert not (jitter["hue"] == other_jitter["hue"]).any()
    assert not (rotation["angle"] == other_rotation["angle"]).any()
