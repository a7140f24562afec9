"""Entropy estimated from distances to nearest neighbours (Kozachenko and Leonenko 1987), for the theorem's objective.

Legend: … a batch of samples, n rows, d dimensions.
"""

import math

import torch
from torch import Tensor

DIFFERENCES = 2
"""Dimensions up to which distances are computed from differences: with few, neighbours are too close for products."""


def nearest_neighbour_entropy(z: Tensor, k: int = 3) -> Tensor:
    """Differential entropy of the distribution that ``z`` (…, n, d) was drawn from, in nats: (…).

    H ≈ ψ(n) − ψ(k) + log V_d + d · mean log r_k, where r_k is a row's distance to its k-th nearest neighbour and V_d
    the volume of the unit ball. The choice of the neighbour has no gradient, its distance has.

    Examples:
        >>> z = torch.rand(4000, 1, generator=torch.Generator().manual_seed(0))
        >>> abs(nearest_neighbour_entropy(z).item()) < 0.05  # uniform on (0, 1): 0
        True
    """
    n, d = z.shape[-2:]
    nearest = kth_neighbour(z.detach(), k)
    neighbour = z.gather(-2, nearest.expand(*nearest.shape[:-1], d))
    tiny = torch.finfo(z.dtype).tiny
    log_radius = 0.5 * (z - neighbour).square().sum(-1).clamp(min=tiny).log()
    log_ball = d / 2 * math.log(math.pi) - math.lgamma(d / 2 + 1)
    digamma = torch.digamma(torch.tensor([float(n), float(k)], dtype=torch.float64))
    return d * log_radius.mean(-1) + float(digamma[0] - digamma[1]) + log_ball


def kth_neighbour(z: Tensor, k: int) -> Tensor:
    """The row of the k-th nearest neighbour of each row, (…, n, 1)."""
    distances = _squared_distances(z)
    distances.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
    for _ in range(k - 1):  # k minima: faster than topk on a GPU for small k
        distances.scatter_(-1, distances.argmin(-1, keepdim=True), torch.inf)
    return distances.argmin(-1, keepdim=True)


def _squared_distances(z: Tensor) -> Tensor:
    """Squared distances of every row to every other (…, n, n), up to a constant along each row."""
    if z.shape[-1] <= DIFFERENCES:
        columns = z.unbind(-1)
        return torch.stack([(x[..., None] - x[..., None, :]).square_() for x in columns]).sum(0)
    # ‖z_j‖² − 2 z_i·z_j, from products of the high and low halves of each number, which TF32 does not round.
    high = z.bfloat16().to(z.dtype)
    low = z - high
    product = torch.cat([high, high, low], -1) @ torch.cat([high, low, high], -1).mT
    return torch.add(z.square().sum(-1)[..., None, :], product, alpha=-2)


def gaussian_coordinates_entropy(z: Tensor, k: int = 3) -> Tensor:
    """Entropy on the unit cube of u = Φ(z), Φ the standard normal distribution function, measured in z: (…).

    H(u) = H(z) + E Σ_j log Φ′(z_j) = H(z) − ½ E‖z‖² − (d/2) log 2π, at most 0, and 0 where u is uniform. The estimate
    is biased near the boundary of the cube, more so in many dimensions; z has no boundary.

    Examples:
        >>> z = torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))
        >>> abs(gaussian_coordinates_entropy(z).item()) < 0.05
        True
    """
    d = z.shape[-1]
    return nearest_neighbour_entropy(z, k) - z.square().sum(-1).mean(-1) / 2 - d / 2 * math.log(2 * math.pi)
