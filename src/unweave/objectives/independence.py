"""How much one embedding tells of another, in any way: the Hilbert–Schmidt independence criterion, normalised.

The theorem's third step needs every style space to be independent of content. Joint entropy asks for it only where
there is no room left; this asks for it outright.

Legend: n rows, k_z and k_other (n, n) Gaussian kernels of the two embeddings, centred.
"""

import torch
from torch import Tensor


def dependence(z: Tensor, other: Tensor) -> Tensor:
    """⟨k_z, k_other⟩ / (‖k_z‖·‖k_other‖): about 0 where z (n, d) and other (n, e) are independent, 1 for copies.

    The kernels are as wide as the mean distance of their own rows, so that the scale of an embedding does not matter.

    >>> u = torch.linspace(-1, 1, 500)[:, None]
    >>> round(dependence(u, 3 * u).item(), 2), dependence(u, u**2).item() > 0.1  # not correlated, yet dependent
    (1.0, True)
    """
    k_z, k_other = centred_kernel(z), centred_kernel(other)
    norms = k_z.square().sum() * k_other.square().sum()
    return (k_z * k_other).sum() / norms.clamp(min=torch.finfo(z.dtype).tiny).sqrt()


def centred_kernel(z: Tensor) -> Tensor:
    """exp(−‖z_i − z_j‖² / mean ‖z_i − z_j‖²), less the means of its rows and columns."""
    squares = z.square().sum(1)
    distances = (squares[:, None] + squares - 2 * z @ z.T).clamp(min=0)
    kernel = (-distances / distances.detach().mean().clamp(min=torch.finfo(z.dtype).tiny)).exp()
    return kernel - kernel.mean(0) - kernel.mean(1)[:, None] + kernel.mean()
