"""Independence of a style space from content: the normalised Hilbert–Schmidt independence criterion (HSIC).

The third step of the paper's proof needs every style space to be independent of content. The joint entropy enforces it
only where a space has no spare dimensions; this term penalises dependence directly. It is not in the paper.

Legend: n rows, k_z and k_other (n, n) centred Gaussian kernels of two embeddings.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from unweave.errors import UnweaveError
from unweave.settings import require, require_choice

SHARPNESS = (1.0, 4.0, 16.0)
"""Inverse squared widths of z's kernels, relative to its mean squared distance.

A kernel as wide as the embedding barely responds to dependence within a small neighbourhood, such as a factor encoded
by a small displacement across a long curve; the narrower kernels do.
"""

RIDGE = 1e-2
"""Of ``whitened``, relative to the mean variance: directions with much less are rounding and noise."""
NEGLIGIBLE = 1e-8
"""Variance of a collapsed embedding: what is left is rounding, and dividing by it would give a gradient of any size."""


@dataclass(frozen=True, kw_only=True)
class Independence:
    """Weight and schedule of the independence term in ``DisentangledLoss``.

    The term is absent for ``start`` updates and then grows linearly to its full weight over ``ramp`` updates.

    Examples:
        >>> [Independence(weight=2.0, start=2, ramp=4).scale(update) for update in (0, 1, 2, 3, 5, 9)]
        [0.0, 0.0, 0.25, 0.5, 1.0, 1.0]

    Notes:
        Before content is learned the term removes style from the style spaces instead of content, so it should start
        about when λ starts to grow. A sudden start multiplies the gradient, which Adam's second moment has not seen.
    """

    weight: float | Mapping[str, float] = 1.0
    """One weight, or one for each style space by name."""
    start: int = 0
    """Updates before the term is part of the loss."""
    ramp: int = 0
    """Updates over which it grows to its full weight."""
    kernel: Literal["gaussian", "linear", "whitened"] = "gaussian"
    """"linear" penalises correlation alone, which is what a linear probe finds, and is not biased in spaces of many
    dimensions; "whitened" the same with a whitened content, whose directions of small variance then count as much as
    those of large; "gaussian" penalises every dependence, and suits spaces of few dimensions."""

    def __post_init__(self) -> None:
        require_choice(self, "kernel")
        require(self, ">= 0", "start", "ramp")
        for number in self.weight.values() if isinstance(self.weight, Mapping) else [self.weight]:
            if not 0 <= number < float("inf"):
                raise UnweaveError(f"Independence: `weight` cannot be negative or infinite: {self.weight}")

    def scale(self, updates: int | Tensor) -> float | Tensor:
        """The fraction of the full weight after this number of updates."""
        if isinstance(updates, Tensor):
            return ((updates + 1 - self.start) / max(1, self.ramp)).clamp(0, 1)
        return min(1.0, max(0.0, (updates + 1 - self.start) / max(1, self.ramp)))


def dependence(z: Tensor, other: Tensor) -> Tensor:
    """⟨k_z, k_other⟩ / (‖k_z‖·‖k_other‖), averaged over kernels k_z of several widths.

    Close to 0 where z (n, d) and other (n, e) are independent. Kernel widths are relative to each embedding's mean
    distance, which receives no gradient: the scale of an embedding does not change the value.

    Examples:
        >>> u = torch.linspace(-1, 1, 500)[:, None]
        >>> dependence(u, 3 * u).item() > 0.7, dependence(u, u**2).item() > 0.1  # uncorrelated, yet dependent
        (True, True)
    """
    [k_other] = centred_kernels(other, SHARPNESS[:1])
    least = 10 * len(z) * torch.finfo(z.dtype).eps  # the entries of a kernel are at most 1
    found = [_cosine(k_z, k_other, least, least) for k_z in centred_kernels(z, SHARPNESS)]
    return torch.stack(found).mean()


def linear_dependence(z: Tensor, other: Tensor, views: int = 1) -> Tensor:
    """‖cross-covariance of z and other‖² over its largest possible value, without the bias of a finite batch.

    Rows are images, or several views of them one after the other. Products of a row with itself, and with other views
    of its image, are left out, since their mean is positive without any dependence; and the others are centred without
    them (U-centring), so that the expectation is 0 for independent rows in batches of any size. Needs 4 images.

    Args:
        z: (n, d).
        other: (n, e).
        views: how many views of each image the rows are.

    Examples:
        >>> z = torch.randn(400, 300, generator=torch.Generator().manual_seed(0))
        >>> noise = torch.randn(400, 300, generator=torch.Generator().manual_seed(1))
        >>> abs(linear_dependence(z, noise).item()) < 0.02, round(linear_dependence(z, 3 * z + 1).item(), 2)
        (True, 1.0)
    """
    images = len(z) // views
    number = torch.arange(len(z), device=z.device) % images
    different = number[:, None] != number
    k_z, k_other = (_u_centred((x - x.mean(0)) @ (x - x.mean(0)).T, different, views) for x in (z, other))
    return _cosine(k_z, k_other, _negligible_norm(z), _negligible_norm(other))


def _u_centred(gram: Tensor, different: Tensor, views: int) -> Tensor:
    """g_ij − a_i − a_j for rows of different images, 0 for others, with a such that every row sums to 0: (n, n)."""
    n = len(gram)
    gram = gram * different
    of_row = gram.sum(1)
    of_image = of_row.view(views, -1).sum(0).repeat(views)
    # The row sums are those of g less (n − views)·a_i, less the a of all rows of other images.
    total = of_row.sum() / (2 * (n - views))
    own = (of_image - views * total) / max(1, n - 2 * views)
    a = (of_row - total + own) / (n - views)
    return (gram - a[:, None] - a) * different


def _negligible_norm(z: Tensor) -> Tensor:
    """The norm of the Gram matrix of a collapsed embedding (n, d): of variance ``NEGLIGIBLE``, or rounding alone."""
    rounding = 10 * torch.finfo(z.dtype).eps * z.detach().square().mean()
    return len(z) * z.shape[1] ** 0.5 * (NEGLIGIBLE + rounding)


def whitened(z: Tensor, ridge: float | None = None, iterations: int = 20) -> Tensor:
    """z (n, d) with uncorrelated dimensions of equal variance, but for directions of almost none: (n, d).

    The inverse square root of the covariance is found by Newton–Schulz iterations: matrix products alone, which can be
    part of a CUDA graph. ``ridge``, relative to the mean variance, is added to all variances: by default a hundredth,
    and more where there are fewer rows than dimensions, in which the covariance of a batch says little about most of
    its directions.

    Examples:
        >>> z = torch.randn(5000, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([10.0, 1.0])
        >>> whitened(z, ridge=1e-4).var(0)
        tensor([1.000..., 0.99...])
    """
    centred = z - z.mean(0)
    ridge = max(RIDGE, z.shape[1] / len(z) - 1) if ridge is None else ridge
    with _exact_products():
        covariance = centred.T @ centred / len(z)
        eye = torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
        mean = covariance.diagonal().mean().clamp(min=torch.finfo(z.dtype).tiny)
        relative = covariance / mean + ridge * eye
        size = relative.norm()
        root, inverse = relative / size, eye
        for _ in range(iterations):
            correction = (3 * eye - inverse @ root) / 2
            root, inverse = root @ correction, correction @ inverse
        return centred @ inverse / size.sqrt() / mean.sqrt()


@contextmanager
def _exact_products() -> Iterator[None]:
    """Matrix products in full single precision: with TF32's ten bits the iterations can diverge."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def centred_kernels(z: Tensor, sharpness: tuple[float, ...]) -> list[Tensor]:
    """exp(−s·‖z_i − z_j‖² / mean ‖z_i − z_j‖²) for each s, with row and column means removed."""
    squares = z.square().sum(1)
    distances = (squares[:, None] + squares - 2 * z @ z.T).clamp(min=0)
    rounding = 10 * torch.finfo(z.dtype).eps * squares.detach().mean()
    least = NEGLIGIBLE * z.shape[1] + rounding
    distances = distances / torch.maximum(distances.detach().mean(), least)
    return [_centred((-s * distances).exp()) for s in sharpness]


def _centred(kernel: Tensor) -> Tensor:
    return kernel - kernel.mean(0) - kernel.mean(1)[:, None] + kernel.mean()


def _cosine(k: Tensor, other: Tensor, least_k: float | Tensor, least_other: float | Tensor) -> Tensor:
    """⟨k, other⟩ / (‖k‖·‖other‖), with norms of at least so much."""
    squares = [x.square().sum().clamp(min=least**2) for x, least in ((k, least_k), (other, least_other))]
    return (k * other).sum() / (squares[0].sqrt() * squares[1].sqrt())
