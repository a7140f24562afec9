"""The objectives that the identifiability experiment compares, for many runs at once.

All have the form  Σ_m λ_m · invariance_m − Σ entropies  and differ in how the two are estimated, in the range of the
outputs, and in whether λ grows. An entropy is that of a group of spaces: of all together (joint) or of some alone.

Legend: r runs, n samples, d_m dimensions of space m (0 content, 1 … M styles).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from unweave import BarlowTwins, SimCLR, VICReg
from unweave.objectives import BaseMethod
from unweave.reproduce.identifiability.entropy import gaussian_coordinates_entropy, nearest_neighbour_entropy

ABLATIONS = ("none", "per-space entropy", "no style entropy", "no content entropy", "all pairs")


class StackedObjective(ABC):
    """Invariances and entropies of a stack of runs."""

    adapted: bool = True
    """Whether λ grows while a space is not invariant."""
    weight: float = 1.0
    """The first λ."""

    def outputs(self, z: Tensor) -> Tensor:
        """The embeddings, from the outputs of the networks."""
        return z

    @abstractmethod
    def invariance(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """The invariance term of pairs (r, n, d): (r,)."""

    def invariance_gap(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """The squared distance of the two views over that of different samples: (r,)."""
        spread = 2 * torch.cat([z_a, z_b], 1).var(1, correction=0).sum(-1)
        return (z_a - z_b).square().sum(-1).mean(-1) / spread.clamp(min=1e-12)

    @abstractmethod
    def negative_entropy(self, a: list[Tensor], b: list[Tensor]) -> Tensor:
        """The negative entropy of the spaces (r, n, d_m) together: (r,)."""

    def groups(self, styles: int, ablation: str) -> list[list[int]]:
        """The groups of spaces whose joint entropies are maximised."""
        every = list(range(styles + 1))
        return {
            "per-space entropy": [[m] for m in every],
            "no style entropy": [[0]],
            "no content entropy": [every[1:]],
        }.get(ablation, [every])


def content_and_joint(styles: int, ablation: str) -> list[list[int]] | None:
    """The groups of the paper's objective, which has a content entropy and a joint entropy."""
    every = list(range(styles + 1))
    return {"none": [[0], every], "all pairs": [[0], every], "no content entropy": [every]}.get(ablation)


@dataclass(frozen=True)
class Theorem(StackedObjective):
    """The objective of the theorem: E‖φ_m(x̃) − φ_m(x̃′)‖ with unit weights, and entropy on the unit cube."""

    neighbours: int = 3
    adapted = False

    def outputs(self, z: Tensor) -> Tensor:
        """Values in (0, 1)."""
        return z.sigmoid()

    def invariance(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """E‖z − z′‖, not squared."""
        return ((z_a - z_b).square().sum(-1) + 1e-12).sqrt().mean(-1)

    def negative_entropy(self, a: list[Tensor], b: list[Tensor]) -> Tensor:
        """Estimated on the first views."""
        return -nearest_neighbour_entropy(torch.cat(a, -1), self.neighbours)


@dataclass(frozen=True)
class Ours(StackedObjective):
    """The same in Gaussian coordinates, φ_m = Φ(z_m), with distances and neighbours measured in z and a growing λ.

    Distances are squared and relative to the variance of the space, so that λ does not shrink it. As in the paper's
    objective there is a content entropy besides the joint entropy; both have the same maximiser. λ starts at 10, so
    that spaces are invariant from the beginning.
    """

    neighbours: int = 3
    weight: float = 10.0

    def invariance(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """d_m E‖z − z′‖² / E‖z − z″‖², z″ another sample's."""
        return z_a.shape[-1] * self.invariance_gap(z_a, z_b)

    def negative_entropy(self, a: list[Tensor], b: list[Tensor]) -> Tensor:
        """Estimated on the first views."""
        return -gaussian_coordinates_entropy(torch.cat(a, -1), self.neighbours)

    def groups(self, styles: int, ablation: str) -> list[list[int]]:
        """Content, and all spaces."""
        return content_and_joint(styles, ablation) or super().groups(styles, ablation)


@dataclass(frozen=True)
class Split(StackedObjective):
    """The paper's objective: a self-supervised method's invariance, content entropy and joint entropy."""

    base: BaseMethod
    bounded: bool = False
    """Restrict outputs to the unit cube, for a base method that does not determine their scale."""

    @property
    def weight(self) -> float:  # type: ignore[override]
        """The base method's standard λ."""
        return self.base.invariance_weight

    def outputs(self, z: Tensor) -> Tensor:
        """Values in (0, 1) where bounded."""
        return z.sigmoid() if self.bounded else z

    def invariance(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """The base method's."""
        return torch.vmap(self.base.invariance)(z_a, z_b)

    def negative_entropy(self, a: list[Tensor], b: list[Tensor]) -> Tensor:
        """The base method's entropy term, of both views."""
        if len(a) == 1:
            return torch.vmap(self.base.entropy)(a[0], b[0])
        return torch.vmap(lambda *z: self.base.joint_entropy(z[: len(a)], z[len(a) :]))(*a, *b)

    def groups(self, styles: int, ablation: str) -> list[list[int]]:
        """Content, and all spaces."""
        return content_and_joint(styles, ablation) or super().groups(styles, ablation)


OBJECTIVES: dict[str, StackedObjective] = {
    "theorem": Theorem(),
    "ours": Ours(),
    "simclr": Split(
        SimCLR(temperature=0.05, similarity="euclidean", negatives="other_view", decoupled=False, block=1 << 20),
        bounded=True,
    ),
    "vicreg": Split(VICReg()),
    "barlow_twins": Split(BarlowTwins()),
}
