"""The search over penalties and folds finds what scikit-learn's finds, for every kind of label and precision."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, PredefinedSplit

import unweave as uw
from unweave.errors import UnweaveError
from unweave.evaluation import LinearProbe, as_targets, probe
from unweave.evaluation import features as blocks
from unweave.evaluation.linear_probe import PENALTIES
from unweave.evaluation.targets import assign_folds, split_rows

SOME = (1e2, 1.0, 1e-2)


def correlated(n, d, shift=3.0):
    """Features whose variances span four orders of magnitude, as those of networks do, and a mean far from 0."""
    mixing = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64))[0] * torch.logspace(0, -2, d)[:, None]
    return torch.randn(n, d, dtype=torch.float64) @ mixing + shift


@pytest.fixture
def photos_like():
    x = correlated(400, 20)
    y = ((x - x.mean(0)) @ torch.randn(20, 4).double() + 0.3 * torch.randn(400, 4)).argmax(1)
    return x, y


def sklearn_search(x, y, folds):
    model = LogisticRegression(max_iter=5000, tol=1e-7, solver="newton-cg")
    search = GridSearchCV(model, {"C": [1 / p for p in SOME]}, cv=PredefinedSplit(folds.numpy()))
    return search.fit(x.numpy(), y.numpy())


def test_there_are_the_papers_45_penalties():
    np.testing.assert_allclose(PENALTIES, np.logspace(-6, 5, 45))


@pytest.mark.parametrize("classes", [2, 4])
def test_scores_of_penalties_and_the_final_fit_are_scikit_learns(photos_like, classes):
    x, y = photos_like[0], photos_like[1] % classes
    theirs = sklearn_search(x[:300], y[:300], assign_folds(as_targets(y[:300]), 5, 0))
    ours = LinearProbe(penalties=SOME).fit(x[:300], y[:300])
    expected = dict(zip(SOME, theirs.cv_results_["mean_test_score"], strict=True))
    assert ours.cross_validation == pytest.approx(expected, abs=0.005)  # one image of 300 and rounding
    assert ours.penalty == pytest.approx(1 / theirs.best_params_["C"])
    decision = theirs.decision_function(x[300:].numpy()).reshape(100, -1)
    centred = ours.decision(x[300:])
    centred = centred - centred.mean(1, keepdim=True) if classes > 2 else centred
    decision = decision - decision.mean(1, keepdims=True) if classes > 2 else decision
    np.testing.assert_allclose(centred.numpy(), decision, atol=0.03, rtol=0.01)


def test_ridge_scores_and_the_final_fit_are_scikit_learns():
    x = correlated(300, 12)
    y = x[:, :3] + 0.3 * torch.randn(300, 3)
    folds = assign_folds(as_targets(y), 5, 0)
    theirs = GridSearchCV(Ridge(), {"alpha": PENALTIES}, cv=PredefinedSplit(folds.numpy())).fit(x.numpy(), y.numpy())
    ours = LinearProbe().fit(x, y)
    expected = dict(zip(PENALTIES, theirs.cv_results_["mean_test_score"], strict=True))
    assert ours.cross_validation == pytest.approx(expected, abs=1e-9)
    np.testing.assert_allclose(ours.predict(x).numpy(), theirs.predict(x.numpy()), atol=1e-9)


def test_ridge_by_factorisation_as_on_a_gpu_is_ridge_by_decomposition(monkeypatch):
    from unweave.evaluation import ridge

    x = correlated(100, 8)
    moments = ridge.Moments.zeros(8, 2, x.device)
    moments.add(x, x[:, :2] + torch.randn(100, 2))
    path, penalties = ridge.RidgePath(moments), torch.tensor(PENALTIES, dtype=torch.float64)
    monkeypatch.setattr(ridge, "CHOLESKY", 3 * 64)
    found = ridge._factorised(path.xx, path.xy, penalties)
    torch.testing.assert_close(found, path.coefficients(penalties), rtol=1e-6, atol=1e-9)
    assert ridge._factorised(-path.xx, path.xy, penalties[:3]) is None


def test_ridge_leaves_unknown_numbers_out():
    x = correlated(200, 6)
    y = x[:, :2] + 0.1 * torch.randn(200, 2)
    y[:60, 1] = torch.nan
    ours = LinearProbe(penalties=(1.0,)).fit(x, y)
    for column, rows in ((0, slice(0, 200)), (1, slice(60, 200))):
        theirs = Ridge(alpha=1.0).fit(x[rows].numpy(), y[rows, column].numpy())
        np.testing.assert_allclose(ours.coef[:, column], theirs.coef_, atol=1e-9)
    assert ours.score(x, y) == pytest.approx(
        np.mean(
            [
                theirs.score(x[60:].numpy(), y[60:, 1].numpy()),
                LinearProbe(penalties=(1.0,)).fit(x, y[:, 0]).score(x, y[:, 0]),
            ]
        )
    )


def test_several_labels_are_a_binary_problem_each():
    x = correlated(300, 8)
    y = torch.stack([x[:, 0] > 3, x[:, 1] > 3.2], 1).double() * 2 - 1  # 1 present, −1 absent
    y[:50, 0] = 0  # left out
    ours = LinearProbe(penalties=(0.1,)).fit(x, y)
    for column, rows in ((0, slice(50, 300)), (1, slice(0, 300))):
        theirs = LogisticRegression(C=10, max_iter=5000, tol=1e-8).fit(x[rows].numpy(), y[rows, column].numpy())
        np.testing.assert_allclose(ours.coef[:, column], theirs.coef_[0], atol=0.02, rtol=0.02)
    assert 0.9 < ours.score(x, y) <= 1


def test_more_dimensions_than_images():
    x = correlated(60, 150)
    y = (x[:, 0] > 3).long() + 2 * (x[:, 1] > 3).long()
    classes = LinearProbe(penalties=(0.1,)).fit(x, y)
    theirs = LogisticRegression(C=10, max_iter=5000, tol=1e-8).fit(x.numpy(), y.numpy())
    np.testing.assert_allclose(classes.decision(x).softmax(1).numpy(), theirs.predict_proba(x.numpy()), atol=1e-3)
    numbers = LinearProbe(penalties=(0.1,)).fit(x, x[:, :2])
    np.testing.assert_allclose(numbers.coef.T, Ridge(alpha=0.1).fit(x.numpy(), x[:, :2].numpy()).coef_, atol=1e-8)


@pytest.mark.parametrize("kind", ["classes", "regression"])
def test_features_mapped_from_a_file_in_half_precision_give_the_same_in_small_blocks(tmp_path, kind, monkeypatch):
    x, y = correlated(240, 6), torch.randint(3, (240,))
    x[:, 0] += 2 * y
    labels = y if kind == "classes" else x[:, 1]
    np.save(tmp_path / "x.npy", x.numpy().astype(np.float16))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    whole = LinearProbe(penalties=SOME).fit(torch.from_numpy(np.array(mapped)), labels)
    monkeypatch.setattr(blocks, "BLOCK", 300)
    monkeypatch.setattr(blocks, "available_memory", lambda: 1000)  # rotated features go to a file too
    parts = LinearProbe(penalties=SOME).fit(mapped, labels)
    assert parts.penalty == whole.penalty
    np.testing.assert_allclose(parts.coef, whole.coef, atol=1e-3)
    assert parts.score(mapped, labels) == pytest.approx(whole.score(mapped, labels), abs=1e-6)
    in_memory, from_file = (probe(data, labels, penalties=SOME) for data in (np.array(mapped), mapped))
    assert in_memory.linear == pytest.approx(from_file.linear, abs=1e-4)
    assert in_memory.knn == pytest.approx(from_file.knn, abs=1e-4)


def test_labels_may_be_texts_and_predictions_are_texts():
    x = correlated(90, 3)
    names = np.array(["cat", "dog", "owl"])[torch.arange(90) % 3]
    x[:, 0] += 30 * (torch.arange(90) % 3)
    found = LinearProbe(penalties=SOME).fit(x, names)
    assert found.predict(x[:3]) == ["cat", "dog", "owl"]
    assert found.score(x, [*names[:-1], "unseen"]) == pytest.approx(89 / 90)


def test_the_input_is_left_as_it_was():
    x = correlated(50, 4)
    before = x.clone()
    LinearProbe(penalties=SOME).fit(x, torch.arange(50) % 2).score(x, torch.arange(50) % 2)
    assert torch.equal(x, before)


def test_a_class_with_one_image_is_a_class():
    """Its fold has no other image of it to fit, as with scikit-learn's stratified folds, which only warn."""
    x, y = correlated(61, 4), torch.arange(61) % 3
    x[:, 0] += 20 * y
    y[60] = 3
    x[60] += 100
    found = LinearProbe(penalties=(1.0, 1e-2)).fit(x, y)
    assert found.cross_validation[1e-2] >= 59 / 61
    assert found.predict(x[60:]) == [3]


def test_a_fold_without_one_of_two_classes_still_has_a_score():
    x, y = correlated(30, 2), torch.zeros(30, dtype=torch.long)
    y[7] = 1
    found = LinearProbe(penalties=(1.0, 1e-2)).fit(x, y)
    assert max(found.cross_validation.values()) >= 29 / 30 - 1e-9


@pytest.mark.parametrize("value", [0.0, 7.0, 1e6])
def test_from_constant_features_the_most_common_class_and_the_mean_are_predicted(value):
    constant, y = torch.full((100, 5), value), (torch.arange(100) % 4 == 0).long()
    assert LinearProbe(penalties=SOME).fit(constant, y).score(constant, y) == 0.75
    numbers = torch.rand(100)
    assert LinearProbe(penalties=SOME).fit(constant, numbers).score(constant, numbers) == pytest.approx(0, abs=1e-9)


def test_a_float_column_of_whole_numbers_holds_classes_and_one_with_fractions_numbers():
    x = correlated(60, 3)
    assert probe(x, (torch.arange(60) % 3).double(), penalties=SOME, knn=False).kind == "classes"
    assert probe(x, x[:, 0], penalties=SOME, knn=False).kind == "regression"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x, y: LinearProbe().fit(x.index_fill(0, torch.tensor([7]), torch.nan), y), "row 7"),
        (lambda x, y: LinearProbe().fit(x.index_fill(0, torch.tensor([9]), torch.inf), y), "row 9"),
        (lambda x, y: LinearProbe().fit(x, y[:-1]), "rows"),
        (lambda x, y: LinearProbe().fit(x, torch.zeros(len(x))), "one class"),
        (lambda x, y: LinearProbe("classes").fit(x, y + 0.5), "regression"),
        (lambda x, y: LinearProbe("classes").fit(x, y.double().index_fill(0, torch.tensor([3]), torch.nan)), "row 3"),
        (lambda x, y: LinearProbe().fit(x, [None, *("ab" * 25)][: len(x)]), "row 0"),
        (lambda x, y: LinearProbe().fit(x, torch.full((50, 2), 3)), "3"),
        (lambda x, y: LinearProbe(metric="r2").fit(x, y), "accuracy"),
        (lambda x, y: LinearProbe(metric="f1"), "mean_per_class"),
        (lambda x, y: LinearProbe(kind="boxes").fit(x, y), "regression"),
        (lambda x, y: LinearProbe(penalties=()), "penalties"),
        (lambda x, y: LinearProbe(penalties=(-1.0,)), "penalties"),
        (lambda x, y: LinearProbe(folds=1).fit(x, y), "folds"),
        (lambda x, y: LinearProbe().fit(x[:3], y[:3]), "folds"),
        (lambda x, y: LinearProbe().fit(x[:, 0], y), "matrix"),
        (lambda x, y: LinearProbe().fit([["a"]], y), "numbers"),
        (lambda x, y: LinearProbe(penalties=(1.0,)).fit(x, y).score(x[:, :2], y), "columns"),
        (lambda x, y: probe(x, y, test_fraction=0.001), "test_fraction"),
        (lambda x, y: probe({"a": x}, y, test=({"b": x}, y)), "spaces"),
        (lambda x, y: probe({}, y), "spaces"),
        (lambda x, y: probe({"a": x[:-1]}, y), "49 rows"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(call, words):
    with pytest.raises(UnweaveError) as error:
        call(torch.rand(50, 4), torch.arange(50) % 2)
    assert "\n" not in str(error.value)
    assert words in str(error.value)


def test_folds_and_splits_divide_every_class_evenly():
    targets = as_targets(torch.arange(103) % 4)
    folds = assign_folds(targets, 5, 0)
    for label in range(4):
        counts = folds[targets.values == label].bincount(minlength=5)
        assert counts.max() - counts.min() <= 1
    fit, test = split_rows(targets, 0.25, 0)
    assert sorted([*fit.tolist(), *test.tolist()]) == list(range(103))
    assert {*targets.values[test].bincount().tolist()} <= {6, 7}


def test_the_public_function_scores_every_space_on_other_rows():
    x, y = correlated(300, 6), torch.arange(300) % 3
    x[:, 0] += 6 * y
    fit = {"content": x[:200], "style": x[:200, 1:]}
    test = {"content": x[200:], "style": x[200:, 1:]}
    found = uw.probe(fit, y[:200], test=(test, y[200:]), penalties=SOME, metric="mean_per_class")
    assert found.linear["content"] > 0.95
    assert found.linear["style"] < 0.6
    assert found.knn["content"] > found.knn["style"]
    assert (found.fit, found.test, found.outputs, found.chance) == (200, 100, 3, pytest.approx(1 / 3))
    assert found.dimensions == {"content": 6, "style": 5}
    assert found.linear["content"] == LinearProbe(penalties=SOME, metric="mean_per_class").fit(x[:200], y[:200]).score(
        x[200:], y[200:]
    )


def test_on_real_photographs_the_accuracy_is_scikit_learns(shared_data):
    """Pixels of textures at 8 × 8, with a tolerance at which scikit-learn reaches the optimum."""
    from unweave.data.decode import decode
    from unweave.data.tasks import open_tasks

    (task,) = open_tasks("dtd", shared_data / "dtd10")
    x, test = (
        np.stack([decode(part.source.read(i), 8).ravel() / 255 for i in range(len(part.source))])
        for part in (task.fit, task.test)
    )
    ours = LinearProbe(penalties=SOME).fit(x, task.fit.labels)
    theirs = LogisticRegression(C=1 / ours.penalty, max_iter=10_000, tol=1e-6).fit(x, task.fit.labels)
    assert ours.score(test, task.test.labels) == pytest.approx(theirs.score(test, task.test.labels), abs=0.002)
    assert ours.score(test, task.test.labels) > 0.15  # chance: 0.1


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["classes", "regression"])
def test_a_gpu_finds_the_same_as_a_cpu(kind):
    x = correlated(500, 16)
    y = (
        ((x - x.mean(0)) @ torch.randn(16, 5).double()).argmax(1)
        if kind == "classes"
        else x[:, :2] + 0.1 * torch.randn(500, 2)
    )
    here, there = (LinearProbe(device=device).fit(x[:400], y[:400]) for device in ("cpu", "cuda"))
    assert here.score(x[400:], y[400:]) == pytest.approx(there.score(x[400:], y[400:]), abs=0.011)
    assert here.cross_validation == pytest.approx(there.cross_validation, abs=0.01)
