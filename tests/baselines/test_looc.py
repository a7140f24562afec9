"""LooC: positives and negatives, queues and the teacher, by hand."""

import math

import pytest
import torch
from torch import nn

import small_runs
import unweave as uw
import unweave.augment as A
from unweave.baselines import LooC, leave_one_out_loss
from unweave.baselines.teacher import follow_, make_teacher
from unweave.errors import UnweaveError
from unweave.objectives import LossTerms

E1, E2, E3 = torch.eye(3)


def test_positives_and_negatives_by_hand():
    """One image, two groups. All vectors are equal or at right angles, so that every exponential is e or 1 (τ = 1)."""
    query, queue = E1[None], torch.stack([E1, E2, E3, E3])  # of the queue: one e and three 1
    e = math.e
    keys = torch.stack([E1, E2, E1])[None]  # similarities e, 1, e
    # Content: key 0 is the positive; keys 1 and 2, which content should not distinguish from it, are not compared.
    expected = {0: math.log(e + e + 3) - 1}
    # Space 1: key 1 is the positive, keys 0 and 2 are negatives. Space 2: key 2, against keys 0 and 1.
    expected |= {1: math.log(e + 1 + e + e + 3) - 0, 2: math.log(e + 1 + e + e + 3) - 1}
    for space, value in expected.items():
        assert leave_one_out_loss(query, keys, queue, space, 1.0).item() == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("space", [0, 1, 2])
def test_only_the_own_key_attracts_and_other_keys_of_the_image_repel_in_style_spaces_alone(space):
    query, keys, queue = (nn.functional.normalize(torch.randn(n, 5), dim=-1) for n in (4, 12, 9))
    similarity = torch.zeros(4, 3, requires_grad=True)  # added to the similarity of the query with each key
    keys = keys.view(4, 3, 5)
    # A component of the keys along the query changes their similarity with it and nothing else.
    loss = leave_one_out_loss(query, keys + similarity[:, :, None] * query[:, None], queue, space, 0.5)
    loss.sum().backward()
    for j in range(3):
        slope = similarity.grad[:, j]
        if j == space:
            assert (slope < 0).all()
        else:
            assert (slope > 0).all() if space else (slope == 0).all()


def attached(dim=2, **settings):
    """LooC on a linear encoder with two spaces."""
    torch.manual_seed(0)
    encoder = uw.Encoder(nn.Flatten(), ("content", "color"), dim=dim, depth=1, feature_dim=3)
    objective = LooC(("content", "color"), **settings)
    objective.attach(encoder)
    return encoder, objective


def step(objective, encoder, query, keys):
    targets = objective.targets(uw.Pair(query, keys, torch.arange(len(keys)) % 2))
    return objective(encoder(query), {}, torch.arange(len(keys)) % 2, targets), targets


def test_queues_hold_key_m_in_space_m_newest_batch_first():
    encoder, objective = attached(queue_size=7, momentum=1.0)
    first, seen = [objective.queue(m).clone() for m in (0, 1)], []
    torch.testing.assert_close(first[0].norm(dim=1), torch.ones(7))
    for _ in range(2):
        keys = torch.randn(6, 3, 1, 1)  # keys 0 and 1 of three images
        terms, _ = step(objective, encoder, torch.randn(3, 3, 1, 1), keys)
        of_teacher = objective.teacher(keys)
        seen.append([nn.functional.normalize(of_teacher[s][m::2], dim=1) for m, s in enumerate(objective.spaces)])
        before = objective.queue(0).data_ptr()
        objective.update(terms)
        assert objective.queue(0).data_ptr() == before  # in place, as a CUDA graph requires
    for m in (0, 1):
        expected = torch.cat([seen[1][m], seen[0][m], first[m][:1]])
        torch.testing.assert_close(objective.queue(m), expected)


def test_a_queue_shorter_than_a_batch_keeps_its_first_keys():
    encoder, objective = attached(queue_size=2)
    terms, targets = step(objective, encoder, torch.randn(3, 3, 1, 1), torch.randn(6, 3, 1, 1))
    objective.update(terms)
    torch.testing.assert_close(objective.queue(1), targets["color"][:2, 1])


def test_the_teacher_follows_by_hand():
    """The mean of the encoders so far, until that has the momentum 0.6; then 0.6·teacher + 0.4·encoder."""
    encoder, objective = attached(momentum=0.6, queue_size=4)
    weight = encoder.projectors["content"][0].weight
    expected = None
    for t, (value, momentum) in enumerate(((1.0, 0.0), (3.0, 0.5), (4.0, 0.6), (0.0, 0.6)), 1):
        with torch.no_grad():
            weight.fill_(value)
        objective.update(LossTerms(torch.zeros(())))
        expected = value if t == 1 else momentum * expected + (1 - momentum) * value
        of_teacher = objective.teacher.projectors["content"][0].weight
        torch.testing.assert_close(of_teacher, torch.full_like(weight, expected))
    assert objective.updates == 4
    assert objective.teacher.projectors["content"][0].weight is not weight


def test_the_teacher_normalises_with_the_statistics_of_its_batch_and_keeps_none():
    encoder = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    teacher = make_teacher(encoder)
    images = torch.randn(50, 3) + 2
    keys = teacher(images)
    torch.testing.assert_close(keys.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    assert torch.equal(keys, teacher(images))  # without dropout
    assert set(teacher.state_dict()) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert set(encoder.state_dict()) > set(teacher.state_dict())
    assert encoder[1].running_mean is not None
    follow_(teacher, encoder, 0.5)


def test_batch_norm_that_is_not_trained_keeps_its_running_statistics_in_the_teacher():
    encoder = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval().requires_grad_(False)
    encoder[1].running_mean.fill_(3.0)
    images = torch.randn(5, 3)
    torch.testing.assert_close(make_teacher(encoder)(images), encoder(images))


def test_gradients_reach_the_encoder_and_neither_teacher_nor_queues():
    encoder, objective = attached(queue_size=8)
    terms, targets = step(objective, encoder, torch.randn(4, 3, 1, 1), torch.randn(8, 3, 1, 1))
    assert terms.loss.item() == pytest.approx(terms.per_space["loss"].sum().item())
    terms.loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in encoder.parameters())
    assert all(p.grad is None for p in objective.parameters())
    assert not any(t.requires_grad for t in targets.values())
    assert not objective.queue(0).requires_grad


def test_each_space_is_trained_with_its_own_key():
    """Where only key 1 is like the query, the loss of space 1 is below that of space 0."""
    _, objective = attached(queue_size=8)
    query = torch.randn(4, 2)
    unit = nn.functional.normalize(query, dim=1)
    targets = {space: torch.stack([-unit, unit], 1) for space in objective.spaces}
    losses = objective(dict.fromkeys(objective.spaces, query), {}, torch.zeros(8), targets).per_space["loss"]
    assert losses[1] < losses[0] - 5  # 2/τ = 10, less what the queue adds


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LooC(("color", "content")), "'content' first"),
        (lambda: LooC(("content",), temperature=0), "`temperature` must be positive"),
        (lambda: LooC(("content",), queue_size=0), "`queue_size` must be at least 1"),
        (lambda: LooC(("content",), momentum=1.5), "`momentum` must be between 0 and 1"),
        (lambda: LooC(("content",)).attach(nn.Linear(2, 2)), "`dims` must be a number for each of content, not None"),
        (lambda: LooC(("content",)).sampler(object()), "`views` of the class Views, not object"),
    ],
)
def test_mistakes(make, words):
    with pytest.raises(UnweaveError, match=words) as error:
        make()
    assert "\n" not in str(error.value)


def test_the_encoder_sees_the_queries_and_the_teacher_the_keys(tmp_path):
    views = uw.Views({"color": [A.ColorJitter(hue=0.5)]})
    encoder, seen = small_runs.encoder(views.spaces, norm=False), []
    objective = LooC(views.spaces, queue_size=16)
    encoder.register_forward_pre_hook(lambda module, args: seen.append((module is encoder, len(args[0]))))
    config = small_runs.config(steps=1, batch_size=6)
    uw.train(uw.Sprites(16), views, encoder, objective, config, tmp_path, progress=False)
    assert seen == [(False, 12), (True, 6)]
