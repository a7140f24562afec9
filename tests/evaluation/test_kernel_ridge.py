import pytest
import torch
from sklearn.kernel_ridge import KernelRidge as Theirs
from sklearn.model_selection import GridSearchCV

from unweave.evaluation.kernel_ridge import ALPHAS, GAMMAS, KernelRidge, standardise


@pytest.fixture
def data():
    x = torch.randn(900, 3).double()
    y = torch.stack([x[:, 0].sin() * x[:, 1], x[:, 2] ** 2], 1) + 0.1 * torch.randn(900, 2)
    return x, y


def test_with_every_row_a_landmark_it_is_scikit_learns(data):
    x, y = data
    ours = KernelRidge(alphas=(0.1,), gammas=(0.2,), landmarks=10_000).fit(x[:400], y[:400])
    (fx, tx), (fy,) = standardise(x[:400], x[400:]), standardise(y[:400])
    theirs = Theirs(alpha=0.1, kernel="rbf", gamma=0.2).fit(fx.numpy(), fy.numpy())
    expected = torch.from_numpy(theirs.predict(tx.numpy())) * y[:400].std(0, correction=0) + y[:400].mean(0)
    torch.testing.assert_close(ours.predict(x[400:]), expected, atol=1e-4, rtol=0)


def test_landmarks_and_grid_agree_with_the_exact_search_to_a_hundredth(data):
    x, y = data
    (fx, tx), (fy, ty) = standardise(x[:600], x[600:]), standardise(y[:600], y[600:])
    search = GridSearchCV(Theirs(kernel="rbf"), {"alpha": ALPHAS, "gamma": GAMMAS}, cv=3)
    exact = search.fit(fx.numpy(), fy.numpy()).score(tx.numpy(), ty.numpy())
    for landmarks in (300, 600):
        ours = KernelRidge(landmarks=landmarks).fit(x[:600], y[:600])
        assert abs(ours.score(x[600:], y[600:]) - exact) < 0.01


def test_nothing_is_found_where_there_is_nothing():
    x, y = torch.randn(600, 4), torch.randn(600, 2)
    assert abs(KernelRidge().fit(x[:400], y[:400]).score(x[400:], y[400:])) < 0.1


def test_a_batch_is_its_parts_and_columns_of_zeros_do_no_harm(data):
    x, y = data
    pair = torch.stack([x, x.flip(0)]), torch.stack([y, y])
    together = KernelRidge(landmarks=100).fit(pair[0][:, :600], pair[1][:, :600])
    alone = [
        KernelRidge(landmarks=100).fit(a[:600], b[:600]).scores(a[600:], b[600:]) for a, b in zip(*pair, strict=True)
    ]
    torch.testing.assert_close(together.scores(pair[0][:, 600:], pair[1][:, 600:]), torch.stack(alone))
    padded = torch.cat([x, torch.zeros(len(x), 4)], 1)
    wider = KernelRidge(landmarks=100).fit(padded[:600], y[:600]).scores(padded[600:], y[600:])
    torch.testing.assert_close(wider, alone[0])


def test_each_output_has_the_penalty_that_suits_it():
    x = torch.randn(800, 1)
    easy, noisy = (3 * x).sin(), 0.2 * x + torch.randn(800, 1)
    both = (
        KernelRidge().fit(x[:400], torch.cat([easy, noisy], 1)[:400]).scores(x[400:], torch.cat([easy, noisy], 1)[400:])
    )
    single = [KernelRidge().fit(x[:400], y[:400]).score(x[400:], y[400:]) for y in (easy, noisy)]
    torch.testing.assert_close(both, torch.tensor(single, dtype=torch.float64))
