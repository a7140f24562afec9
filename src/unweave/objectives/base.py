"""What a base method and an objective are.

A base method splits a self-supervised loss into an invariance and an entropy (paper, equation 1 and table 1). An
objective is what the training loop minimises: ``DisentangledLoss`` over a base method, or any module with the same few
methods.

Legend: n images, d dimensions, z_a and z_b (n, d) the embeddings of their two views.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unweave.errors import UnweaveError
from unweave.objectives.collapse import variance

SHIFTS = 4
"""Other images of the batch with which each is compared for the distance of different images."""
Embeddings = Mapping[str, Tensor]
"""(n, d_m) by space."""


class BaseMethod(ABC):
    """loss = invariance_weight · invariance(z_a, z_b) + entropy(z_a, z_b).

    A method holds hyper-parameters only; the mathematics is in functions of tensors.

    Examples:
        >>> import torch, unweave as uw
        >>> class Plain(uw.objectives.BaseMethod):
        ...     def invariance(self, z_a, z_b):
        ...         return (z_a - z_b).square().mean()
        ...     def invariance_gap(self, z_a, z_b):
        ...         return self.invariance(z_a, z_b)
        ...     def entropy(self, z_a, z_b):
        ...         return -torch.cat([z_a, z_b]).std(0).mean()
        >>> Plain().loss(torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0], [2.0]]))
        tensor(-1.1547)
    """

    invariance_weight: float = 1.0
    """The method's standard λ."""
    least_pairs: ClassVar[int] = 1
    """The least number of pairs on which its invariance is defined."""

    @abstractmethod
    def invariance(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """The distance between the two views of an image: the term that λ multiplies."""

    @abstractmethod
    def invariance_gap(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """The same on a scale where 0 is full invariance: compared with the tolerance ε when λ is adapted."""

    @abstractmethod
    def entropy(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """The negative entropy: low where the embeddings of different images are spread out."""

    def joint_entropy(self, z_a: Sequence[Tensor], z_b: Sequence[Tensor]) -> Tensor:
        """The entropy of all spaces together: of their concatenation."""
        return self.entropy(torch.cat(list(z_a), 1), torch.cat(list(z_b), 1))

    def normalize(self, z: Tensor) -> Tensor:
        """The embedding in the geometry of the loss, on which variance and effective rank are measured."""
        return z

    def distances(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """How far apart the two views of each image are, in the geometry of the loss and per dimension: (n,)."""
        return torch.linalg.vector_norm(self.normalize(z_a) - self.normalize(z_b), dim=1) / z_a.shape[1] ** 0.5

    def distance_weight(self, d: int) -> float:
        """The weight of mean distances² at which it is the method's invariance, but for a constant, in d dimensions."""
        return 1.0

    def spread(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """The root mean square distance of different images, in the same units as ``distances``."""
        return (2 * variance(self.normalize(torch.cat([z_a, z_b])))).sqrt().clamp(min=1e-12)

    def distance_invariance(self, z_a: Tensor, z_b: Tensor, power: float, relative: bool = False) -> Tensor:
        """weight · spread² · mean (distance / spread)^power, with ``distance_weight``.

        With a power of 2 it is the method's invariance, but for a constant; Barlow Twins' own squares each 1 − C_jj.
        The spread, which receives no gradient, makes it a square in the length of embeddings, as the entropies expect.

        With ``relative`` it is weight · spread² · mean distance^power / mean distance^power of different images, whose
        gradient the ratio has too. Where variance counts as entropy, a power below 2 alone prefers codes in which a few
        images are far from all others, since their variance is large and their mean distance small; the ratio does not.
        """
        spread = self.spread(z_a.detach(), z_b.detach())
        weight = self.distance_weight(z_a.shape[1]) * spread.square()
        if relative:
            return weight * self._distance_ratio(z_a, z_b, power)
        return weight * (self.distances(z_a, z_b) / spread).pow(power).mean()

    def distance_gap(self, z_a: Tensor, z_b: Tensor, power: float, relative: bool = False) -> Tensor:
        """The squared power mean of distance / spread: 0 is full invariance, about 1 none.

        With a power of 2 it is in units of the sensitivity matrix: the mean squared distance of two views over that of
        different images. The views of a pair may differ in several groups, those of the matrix in one. With
        ``relative`` both distances are to the power.
        """
        if relative:
            return self._distance_ratio(z_a, z_b, power).pow(2 / power)
        return (self.distances(z_a, z_b) / self.spread(z_a, z_b)).pow(power).mean().pow(2 / power)

    def _distance_ratio(self, z_a: Tensor, z_b: Tensor, power: float) -> Tensor:
        """mean distance^power of two views of an image over that of views of two images."""
        if len(z_a) < 2:
            raise UnweaveError("relative distances need at least 2 pairs of every kind: use a larger batch")
        shifts = range(1, min(SHIFTS, len(z_a) - 1) + 1)
        apart = torch.stack([self.distances(z_a, z_b.roll(k, 0)).pow(power).mean() for k in shifts]).mean()
        return self.distances(z_a, z_b).pow(power).mean() / apart.clamp(min=1e-12)

    def loss(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """The method as published."""
        return self.invariance_weight * self.invariance(z_a, z_b) + self.entropy(z_a, z_b)


@dataclass(frozen=True)
class LossTerms:
    """The result of an objective for one batch: the loss, which carries the gradient, and detached measurements.

    ``metrics`` has one number each, ``per_space`` one number for each space, in the order of ``spaces``.

    Examples:
        >>> import torch
        >>> terms = LossTerms(torch.tensor(2.0), ("content", "color"), per_space={"variance": torch.tensor([1.0, 0.5])})
        >>> terms.as_dict()
        {'loss': 2.0, 'content/variance': 1.0, 'color/variance': 0.5}
    """

    loss: Tensor
    spaces: tuple[str, ...] = ()
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    per_space: Mapping[str, Tensor] = field(default_factory=dict)

    def as_dict(self) -> dict[str, float]:
        """Numbers by name, as they are written to a run's metrics: ``loss``, ``content/lambda``, …"""
        out = {"loss": float(self.loss.detach()), **{name: float(value) for name, value in self.metrics.items()}}
        for name, values in self.per_space.items():
            for space, value in zip(self.spaces, values.tolist(), strict=True):
                out[f"{space}/{name}"] = value
        return out


class Objective(nn.Module):
    """What the training loop minimises.

    A subclass implements ``forward``. Trainable parameters that it registers (a predictor, heads) are optimised with
    the encoder's, and everything registered (a queue, a teacher) is part of the checkpoint. Before training the loop
    calls ``objective.sampler(views)`` and ``objective.attach(encoder)``, and each step:

        pair    = sampler(images, …)
        targets = objective.targets(pair)                     without gradients
        terms   = objective(z_a, z_b, pair.shared, targets)
        backward pass, optimiser step
        objective.update(terms)

    Examples:
        >>> import copy, unweave as uw
        >>> class MeanTeacher(uw.objectives.Objective):
        ...     spaces = ("content",)
        ...     def attach(self, encoder):
        ...         self.student = [encoder]  # in a list: not a submodule
        ...         self.teacher = copy.deepcopy(encoder).requires_grad_(False)
        ...     def targets(self, pair):
        ...         return {"teacher": self.teacher(pair.b)["content"]}
        ...     def forward(self, z_a, z_b, shared, targets):
        ...         return uw.objectives.LossTerms((z_a["content"] - targets["teacher"]).square().mean())
        ...     def update(self, terms):
        ...         for mean, new in zip(self.teacher.parameters(), self.student[0].parameters()):
        ...             mean.lerp_(new.detach(), 0.01)
    """

    spaces: tuple[str, ...]
    encodes_b: bool = True
    """Whether the encoder sees view b; where only a teacher does, ``forward`` gets no embeddings of it."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The encoder's outputs that the loss depends on; with "h", it depends on the backbone's output directly."""
        return self.spaces

    @property
    def least_batch(self) -> int:
        """The least number of images in a batch, over all processes."""
        return max(2, len(self.spaces))

    @property
    def geometry(self) -> BaseMethod | None:
        """The method whose ``normalize`` gives the geometry of the loss; None for embeddings as they are."""
        return None

    def sampler(self, views: Any) -> Any:
        """What makes the pairs of this objective, from the views of the run: by default the views themselves."""
        return views

    def attach(self, encoder: nn.Module) -> None:
        """Called once before training, with the encoder on its device: the place to create a teacher."""

    def targets(self, pair: Any) -> dict[str, Tensor]:
        """What the loss needs of a pair of views besides their embeddings, one row per image; without gradients."""
        return {}

    def forward(
        self, z_a: Embeddings, z_b: Embeddings, shared: Tensor, targets: Mapping[str, Tensor] | None = None
    ) -> LossTerms:
        """The terms of a batch: embeddings by space, (n, d_m) each, and the group that each pair shares, (n,)."""
        raise NotImplementedError

    def update(self, terms: LossTerms) -> None:
        """Called after each optimiser step: the place to adapt λ, a teacher or a queue."""

    def finish(self, terms: LossTerms) -> None:
        """Called after the last step: the place to report what the user should know about the outcome."""

    def stage(self) -> Hashable:
        """A value that changes when ``forward`` begins to compute something else: CUDA graphs are then recaptured."""
        return None
