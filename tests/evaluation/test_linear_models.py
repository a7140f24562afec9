import pytest
import torch
from sklearn.linear_model import LogisticRegression as TheirLogistic
from sklearn.linear_model import Ridge as TheirRidge

from unweave.evaluation import LogisticRegression, RidgeRegression


@pytest.mark.parametrize("size", [1.0, 0.01, 30.0])
def test_ridge_is_scikit_learns(size):
    x, y = size * torch.randn(300, 6).double(), torch.randn(300, 2).double() + 3
    ours = RidgeRegression(alpha=1.0).fit(x[:200], y[:200]).score(x[200:], y[200:])
    theirs = TheirRidge(alpha=1.0).fit(x[:200], y[:200])
    assert ours == pytest.approx(theirs.score(x[200:].numpy(), y[200:].numpy()), abs=1e-9)


@pytest.mark.parametrize("size", [1.0, 0.05])
def test_logistic_regression_is_scikit_learns(size):
    y = torch.randint(4, (800,))
    x = size * (torch.randn(800, 5) + 2 * torch.nn.functional.one_hot(y, 5))
    ours = LogisticRegression().fit(x[:500], y[:500])
    theirs = TheirLogistic(C=1.0, max_iter=2000, tol=1e-8).fit(x[:500].numpy(), y[:500].numpy())
    centred = ours.weight - ours.weight.mean(1, keepdim=True)
    torch.testing.assert_close(centred, torch.from_numpy(theirs.coef_.T).double(), atol=2e-2, rtol=2e-2)
    assert ours.score(x[500:], y[500:]) == pytest.approx(theirs.score(x[500:].numpy(), y[500:].numpy()), abs=0.01)


def test_directions_of_little_variance_contribute_little():
    y = torch.randint(2, (1000,))
    features = torch.cat([torch.randn(1000, 3), 1e-4 * y[:, None].float()], 1)
    assert LogisticRegression().fit(features[:500], y[:500]).score(features[500:], y[500:]) < 0.65
    assert (
        RidgeRegression().fit(features[:500], y[:500, None].float()).score(features[500:], y[500:, None].float()) < 0.1
    )


@pytest.mark.parametrize("shift", [0.0, 100.0])
@pytest.mark.parametrize("classes", [2, 4])
def test_logistic_regression_reaches_scikit_learns_optimum(classes, shift):
    y = torch.randint(classes, (600,))
    x = (torch.randn(600, 5) + 2 * torch.nn.functional.one_hot(y, 5)).double() + shift
    ours = LogisticRegression(C=0.3).fit(x[:400], y[:400])
    theirs = TheirLogistic(C=0.3, max_iter=10_000, tol=1e-10).fit((x[:400] - shift).numpy(), y[:400].numpy())
    expected = torch.from_numpy(theirs.predict_proba((x[400:] - shift).numpy()))
    torch.testing.assert_close(ours.predict_probability(x[400:]), expected, atol=1e-4, rtol=0)
    assert torch.equal(ours.predict(x[400:]), torch.from_numpy(theirs.predict((x[400:] - shift).numpy())))
