"""How much one embedding tells of another, in any way: the Hilbert–Schmidt independence criterion, normalised.

The theorem's third step needs every style space to be independent of content. Joint entropy asks for it only where
there is no room left; this asks for it outright.

Legend: n rows, k_z and k_other (n, n) Gaussian kernels of the two embeddings, centred.
"""

import torch
from torch import Tensor

SHARPNESS = (1.0, 4.0, 16.0)
"""Of z's kernels. A kernel as wide as the embedding sees what the whole of it tells and is all but blind to what is
told within a neighbourhood: a space in which scale lies along a curve, and shape a little to its left or right. With
the wide one alone, shape was read from sprites' scale space to 0.72, with these to 0.44, from the same half-way point.
"""


def dependence(z: Tensor, other: Tensor) -> Tensor:
    """⟨k_z, k_other⟩ / (‖k_z‖·‖k_other‖): about 0 where z (n, d) and other (n, e) are independent; the mean over k_z of
    several widths.

    Widths go with the mean distance of an embedding's own rows, so that its scale does not matter.

    >>> u = torch.linspace(-1, 1, 500)[:, None]
    >>> dependence(u, 3 * u).item() > 0.7, dependence(u, u**2).item() > 0.1  # not correlated, yet dependent
    (True, True)
    """
    [k_other] = centred_kernels(other, SHARPNESS[:1])
    found = [_cosine(k_z, k_other) for k_z in centred_kernels(z, SHARPNESS)]
    return torch.stack(found).mean()


def centred_kernels(z: Tensor, sharpness: tuple[float, ...]) -> list[Tensor]:
    """exp(−s·‖z_i − z_j‖² / mean ‖z_i − z_j‖²) for each s, less the means of its rows and columns."""
    squares = z.square().sum(1)
    distances = (squares[:, None] + squares - 2 * z @ z.T).clamp(min=0)
    distances = distances / distances.detach().mean().clamp(min=torch.finfo(z.dtype).tiny)
    return [_centred((-s * distances).exp()) for s in sharpness]


def _centred(kernel: Tensor) -> Tensor:
    return kernel - kernel.mean(0) - kernel.mean(1)[:, None] + kernel.mean()


def _cosine(k: Tensor, other: Tensor) -> Tensor:
    norms = k.square().sum() * other.square().sum()
    return (k * other).sum() / norms.clamp(min=torch.finfo(k.dtype).tiny).sqrt()
