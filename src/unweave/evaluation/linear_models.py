"""Ridge and logistic regression with a fixed penalty: scikit-learn's models, on any device.

With a fixed penalty, directions of little variance contribute little. The probes of ``probes.py`` choose a penalty
relative to the features' variance, and use such directions.

Legend: n rows, d features, k outputs or classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave.evaluation.probes import r2


class RidgeRegression:
    """min ‖y − x·w − b‖² + α‖w‖²: scikit-learn's ``Ridge``.

    Examples:
        >>> x = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
        >>> round(RidgeRegression().fit(x[:100], x[:100, :1] + 1).score(x[100:], x[100:, :1] + 1), 3)
        1.0
    """

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def fit(self, x: Tensor, y: Tensor) -> "RidgeRegression":
        """Features (n, d) and targets (n, k); returns itself."""
        x, y = x.double(), y.double().view(len(y), -1)
        mean_x, mean_y = x.mean(0), y.mean(0)
        x, y = x - mean_x, y - mean_y
        gram = x.T @ x + self.alpha * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        self.coef = torch.linalg.solve(gram, x.T @ y)
        self.intercept = mean_y - mean_x @ self.coef
        return self

    def score(self, x: Tensor, y: Tensor) -> float:
        """r², the mean over outputs."""
        return float(r2(x.double() @ self.coef + self.intercept, y.double().view(len(y), -1)).mean())


class LogisticRegression:
    """min C·Σ cross entropy + ½‖w‖²: scikit-learn's ``LogisticRegression``, with one logit for two classes.

    Examples:
        >>> x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
        >>> y = torch.arange(300) % 3
        >>> LogisticRegression().fit(x + 9 * y[:, None], y).score(x + 9 * y[:, None], y)
        1.0
    """

    def __init__(self, C: float = 1.0, iterations: int = 1000) -> None:
        self.C, self.iterations = C, iterations

    def fit(self, x: Tensor, y: Tensor) -> "LogisticRegression":
        """Features (n, d) and classes (n,) from 0; returns itself."""
        x = x.double()
        centre = x.mean(0)  # the intercept has no penalty, so centring changes nothing but the speed
        x = x - centre
        classes = max(2, int(y.max()) + 1)
        logits = 1 if classes == 2 else classes
        weight = torch.zeros(x.shape[1], logits, dtype=x.dtype, device=x.device, requires_grad=True)
        bias = torch.zeros(logits, dtype=x.dtype, device=x.device, requires_grad=True)
        solver = torch.optim.LBFGS(
            [weight, bias],
            max_iter=self.iterations,
            tolerance_grad=1e-8,
            tolerance_change=1e-12,
            history_size=20,
            line_search_fn="strong_wolfe",
        )

        def closure() -> Tensor:
            solver.zero_grad()
            scores = x @ weight + bias
            if logits == 1:
                loss = F.binary_cross_entropy_with_logits(scores[:, 0], y.to(x.dtype))
            else:
                loss = F.cross_entropy(scores, y)
            # Divided by n: the same minimum, and step sizes that do not depend on the number of rows.
            loss = loss + weight.square().sum() / (2 * self.C * len(x))
            loss.backward()
            return loss

        with torch.enable_grad():
            solver.step(closure)
        self.weight, self.bias = weight.detach(), bias.detach() - centre @ weight.detach()
        return self

    @torch.no_grad()
    def predict_probability(self, x: Tensor) -> Tensor:
        """The probability of each class, (n, k)."""
        scores = x.double() @ self.weight + self.bias
        if scores.shape[1] > 1:
            return scores.softmax(1)
        return torch.cat([-scores, scores], 1).sigmoid()

    def predict(self, x: Tensor) -> Tensor:
        """The class of each row."""
        return self.predict_probability(x).argmax(1)

    def score(self, x: Tensor, y: Tensor) -> float:
        """Accuracy."""
        return float((self.predict(x) == y).double().mean())
