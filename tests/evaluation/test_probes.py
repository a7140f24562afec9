import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from unweave.errors import UnweaveError
from unweave.evaluation import ClassProbe, RidgeProbe, compute_embeddings, r2, score_spaces


@pytest.fixture
def data():
    x = torch.randn(400, 6).double() * torch.tensor([1, 2, 0.5, 1, 3, 0.1])
    y = x @ torch.randn(6, 3).double() + 0.5 * torch.randn(400, 3).double() + 2
    labels = (x[:, 0] + 0.3 * torch.randn(400) > 0).long() + 2 * (x[:, 1] > 1).long()
    return x, y, labels


@pytest.mark.parametrize("penalty", [1e-6, 0.1])
def test_ridge_is_scikit_learns(data, penalty):
    x, y, _ = data
    ours = RidgeProbe((penalty,)).fit(x[:300], y[:300])
    centred = x[:300] - x[:300].mean(0)
    theirs = Ridge(alpha=penalty * float(torch.linalg.eigvalsh(centred.T @ centred).mean()))
    theirs.fit(x[:300].numpy(), y[:300].numpy())
    torch.testing.assert_close(ours.decision(x), torch.from_numpy(theirs.predict(x.numpy())), atol=1e-8, rtol=0)
    assert abs(ours.score(x[300:], y[300:]) - theirs.score(x[300:].numpy(), y[300:].numpy())) < 1e-10


@pytest.mark.parametrize("penalty", [0.0, 0.1])
def test_the_classifier_is_scikit_learns_discriminant_analysis(data, penalty):
    x, _, labels = data
    ours = ClassProbe((penalty,)).fit(x[:300], labels[:300])
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=penalty).fit(x[:300].numpy(), labels[:300].numpy())
    assert torch.equal(ours.predict(x), torch.from_numpy(theirs.predict(x.numpy())))
    decision = ours.decision(x)
    torch.testing.assert_close(
        decision.softmax(1), torch.from_numpy(theirs.predict_proba(x.numpy())), atol=1e-6, rtol=0
    )


def test_r2_is_scikit_learns(data):
    _, y, _ = data
    noisy = y + torch.randn_like(y)
    assert abs(float(r2(noisy, y).mean()) - r2_score(y.numpy(), noisy.numpy())) < 1e-12


def test_the_penalty_is_chosen_without_the_test_data():
    """Many useless features and few rows: the smallest penalty fits noise, a larger one is found to be better."""
    x = torch.randn(120, 100)
    y = x[:, 0] + 0.5 * torch.randn(120)
    probe = RidgeProbe((1e-6, 1.0)).fit(x[:100], y[:100])
    assert probe.penalty == 1.0


def test_scores_do_not_depend_on_the_scale_of_the_features(data):
    x, y, labels = data
    for probe, target in ((RidgeProbe, y), (ClassProbe, labels)):
        plain, tiny = (probe().fit(s * x[:300], target[:300]).score(s * x[300:], target[300:]) for s in (1, 1e-4))
        assert abs(plain - tiny) < 1e-6


def test_classes_between_others_are_not_lost():
    """Three classes on a line: least squares on one-hot targets never names the middle one."""
    y = torch.arange(300) % 3
    x = y[:, None] + 0.1 * torch.randn(300, 1)
    assert ClassProbe().fit(x, y).score(x, y) > 0.99


def test_table_of_spaces_and_factors():
    n = 2000
    shape, place = torch.randint(3, (n,)), torch.rand(n)
    content = torch.nn.functional.one_hot(shape, 3) + 0.01 * torch.randn(n, 3)
    spatial = torch.stack([place.cos(), place.sin()], 1)
    constant = torch.ones(n, 4)
    table = score_spaces(
        {"content": content, "spatial": spatial, "constant": constant},
        {"shape": shape, "x": place},
        categories=("shape",),
    )
    assert table.scores["content"]["shape"] == 1
    assert table.scores["spatial"]["x"] > 0.99
    assert abs(table.scores["content"]["x"]) < 0.05
    assert table.scores["spatial"]["shape"] < 0.45
    assert abs(table.chance["shape"] - 1 / 3) < 0.05
    assert table.chance["x"] == 0
    # A collapsed space looks clean in its scores, and constant beside them.
    assert table.scores["constant"]["shape"] < 0.45
    assert table.variance["constant"] == 0
    assert table.effective_rank["constant"] == 0
    assert set(table.as_dict()) == {"spaces", "factors", "scores", "chance", "variance", "effective_rank"}


def test_embedding_in_batches_is_embedding_at_once():
    encoder = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5))
    wrapped = lambda images: {"h": encoder(images)}  # noqa: E731
    module = type("M", (torch.nn.Module,), {"forward": lambda self, images: wrapped(images)})()
    module.inner = encoder
    source = torch.rand(37, 1, 2, 2)
    out = compute_embeddings(module, lambda index: source[index], torch.arange(37), batch_size=8)
    assert torch.equal(out["h"], source.flatten(1))
    assert module.training


@pytest.mark.parametrize(
    "call",
    [
        lambda: RidgeProbe().fit(torch.rand(20, 3), torch.rand(19)),
        lambda: RidgeProbe().fit(torch.full((20, 3), torch.nan), torch.rand(20)),
        lambda: RidgeProbe(()),
        lambda: score_spaces({"a": torch.rand(20, 2)}, {"x": torch.rand(21)}),
        lambda: score_spaces({"a": torch.rand(20, 2)}, {"x": torch.rand(20)}, categories=("shape",)),
    ],
)
def test_bad_input(call):
    with pytest.raises(UnweaveError) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_code_without_scatter_within_classes_is_perfect():
    """An integer column predicts itself, and a one-hot code its class."""
    y = torch.arange(600) % 6
    for code in (y[:, None].float(), torch.nn.functional.one_hot(y, 6).float(), 1e-3 * y[:, None] + 5.0):
        assert ClassProbe().fit(code[:300], y[:300]).score(code[300:], y[300:]) == 1


@pytest.mark.parametrize("value", [0.0, 7.0, 1e6])
def test_from_a_constant_the_most_common_class_is_predicted(value):
    y = (torch.arange(400) % 4 == 0).long()
    constant = torch.full((400, 5), value)
    assert ClassProbe().fit(constant, y).score(constant, y) == 0.75
