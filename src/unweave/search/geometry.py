"""The vectors of an index: embeddings of unit length, whitened so that every direction of a space counts about as much.

A few directions hold most of the variance of a trained space, and the mean of its embeddings is far from 0, so that the
cosine of any two is large. Around their mean, and with the largest variances reduced, unrelated images have a cosine of
about 0, and images that differ in little a cosine near 1.

Legend: n images, d dimensions, v the variance along a principal axis, v̄ the mean of all d.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave.errors import UnweaveError
from unweave.tensor_files import open_tensors, save_tensors

FITTED = 4096
"""Images, drawn at random, on which a whitening is fitted."""
PER_DIMENSION = 2
"""Images for each dimension of a space: of fewer the variances are not known well enough, and it is not whitened."""
COLLAPSED = 1e-8
"""Mean variance of unit vectors below which they differ by rounding alone."""


def unit(z: Tensor) -> Tensor:
    """Rows of length 1; rows of zeros, and of numbers that are not finite, become zeros."""
    return F.normalize(torch.nan_to_num(z.float(), 0.0, 0.0, 0.0), dim=-1)


@dataclass(frozen=True)
class Whitening:
    """Subtracts the mean of unit vectors and divides along each principal axis by √(1 + v/v̄).

    The variance along an axis becomes v/(1 + v/v̄): at most v̄, and unchanged where it is far below. Equal variances
    would amplify directions that hold little but noise. Variances are estimated with the shrinkage of Chen et al.
    (2010, OAS): those of few images with many dimensions would otherwise make all images equally far apart.

    Examples:
        >>> z = torch.tensor([[3.0, 0.1], [3.0, -0.1], [3.0, 0.2], [3.0, -0.2]])
        >>> (Whitening.fit(z)(z) @ Whitening.fit(z)(z).T)[0].round().tolist()
        [1.0, -1.0, 1.0, -1.0]
    """

    mean: Tensor
    """(d,)"""
    matrix: Tensor
    """(d, d)"""

    @classmethod
    def fit(cls, z: Tensor) -> "Whitening":
        """By embeddings (n, d)."""
        from sklearn.covariance import oas

        x, d = unit(z).double(), z.shape[1]
        mean = x.mean(0)
        if x.var(0, correction=0).mean() < COLLAPSED:
            return cls(torch.zeros(d), torch.eye(d))
        covariance, _ = oas((x - mean).numpy(), assume_centered=True)
        variance, axes = torch.linalg.eigh(torch.from_numpy(covariance))
        matrix = axes / (1 + variance / variance.mean()).sqrt() @ axes.T
        return cls(mean.float(), matrix.float())

    def __call__(self, z: Tensor) -> Tensor:
        """Unit vectors of embeddings (…, d)."""
        return unit((unit(z) - self.mean) @ self.matrix)


def enough(n: int, d: int) -> bool:
    """Whether n images are enough to whiten d dimensions.

    Examples:
        >>> enough(100, 512), enough(2000, 512)
        (False, True)
    """
    return n >= PER_DIMENSION * d


@dataclass(frozen=True)
class Geometry:
    """How embeddings become vectors of an index: at unit length, whitened in the spaces that have a whitening.

    Examples:
        >>> Geometry().vectors("content", torch.tensor([3.0, 4.0]))
        tensor([0.6000, 0.8000])
    """

    whitening: Mapping[str, Whitening] = field(default_factory=dict)

    @classmethod
    def fit(cls, features: Mapping[str, Tensor]) -> "Geometry":
        """By the embeddings (n, d) of each space; of few images without a whitening."""
        return cls({space: Whitening.fit(z) for space, z in features.items() if enough(len(z), z.shape[1])})

    def vectors(self, space: str, z: Tensor) -> Tensor:
        """Unit vectors of a space's embeddings (…, d), on the CPU."""
        z = z.detach().cpu()
        return self.whitening[space](z) if space in self.whitening else unit(z)

    def save(self, path: Path) -> None:
        """Writes a file with checksums."""
        parts = {
            f"{name}.{space}": tensor
            for space, whitening in self.whitening.items()
            for name, tensor in vars(whitening).items()
        }
        save_tensors(path, parts, {})

    @classmethod
    def load(cls, path: Path) -> "Geometry":
        """From a file; raises where it is absent or damaged."""
        if not path.is_file():
            raise UnweaveError(f"{path} is missing, without which the vectors have no meaning: build the index again")
        with open_tensors(path) as file:
            spaces = [name.removeprefix("mean.") for name in file.names if name.startswith("mean.")]
            return cls({space: Whitening(file.get(f"mean.{space}"), file.get(f"matrix.{space}")) for space in spaces})
