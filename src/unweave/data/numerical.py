"""Latent-variable data with known truth (paper, section 5.1; von Kügelgen et al. 2021, appendix D).

    content c ~ N(0, Σ_c)  ─►  style s = a + B·c + noise  ─►  perturbed style s̃  ─►  observation x = f(c, s̃)

Every part is explicit, so that one can try assumptions of one's own: sizes, dependence of content's own dimensions,
styles caused by content and by each other, how interventions act, how deep the mixing f is. Several worlds that differ
only in their seed are drawn together: each has its own covariances, causes and mixing, stacked in the first dimension.

Legend: r worlds, n samples, d_c and d_s dimensions of content and style, d = d_c + d_s, M style variables.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from unweave.errors import UnweaveError

CANDIDATES = 25_000
"""Matrices drawn for a mixing layer, of which the best-conditioned thousandth is used."""


@dataclass(frozen=True, kw_only=True)
class LatentModel:
    """What is the same in all worlds."""

    content: int = 5
    """Dimensions of content."""
    style: int = 5
    """Dimensions of style."""
    variables: int = 1
    """Style variables s_1 … s_M of equal size that style consists of: what pairs of views share one by one."""
    statistical: bool = False
    """Dependence within content and within style: covariances from a Wishart distribution instead of the identity."""
    causal: bool = False
    """Style is caused by content: a and B are drawn from N(0, 1) instead of being 0."""
    chain: bool = False
    """Style dimensions are caused by those before them too, with effects from N(0, 1)."""
    additive: bool = True
    """Whether a style's own noise u is added to what causes it; if not, content also sets its scale, to e^(±1)."""
    intervention: Literal["shift", "perfect"] = "shift"
    """How style is perturbed: noise is added to it, or replaces it."""
    layers: int = 3
    """Square layers of the mixing function."""
    slope: float = 0.2
    """Of the leaky ReLU between them, on the negative side; 1 makes the mixing linear."""
    rounding: float = 0.0
    """Width w over which the kink of the leaky ReLU is rounded off, slope·x + (1 − slope)·w·softplus(x/w): with any but
    0 the mixing is a diffeomorphism."""

    def __post_init__(self) -> None:
        for name in ("content", "style", "layers"):
            if getattr(self, name) < 1:
                raise UnweaveError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.variables < 1 or self.style % self.variables:
            raise UnweaveError(f"{self.style} dimensions of style cannot be {self.variables} variables of equal size")
        if not 0 < self.slope <= 1:
            raise UnweaveError(f"slope must be in (0, 1], or f could not be inverted; not {self.slope}")
        if self.rounding < 0:
            raise UnweaveError(f"rounding is a width, not negative: {self.rounding}")
        if self.intervention not in ("shift", "perfect"):
            raise UnweaveError(f"intervention is 'shift' or 'perfect', not {self.intervention!r}")


class Worlds:
    """Worlds of one model, one for each seed.

    >>> worlds = Worlds(LatentModel(content=2, style=1), seeds=(0, 1))
    >>> content, style = worlds.sample(4, torch.Generator().manual_seed(0))
    >>> worlds.observe(content, style).shape
    torch.Size([2, 4, 3])
    """

    def __init__(self, model: LatentModel, seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.model = model
        drawn = [_draw_world(model, seed) for seed in seeds]
        stacked = {name: torch.stack([world[name] for world in drawn]).to(device) for name in drawn[0]}
        self.content_factor, self.style_factor = stacked["content"], stacked["style"]
        self.shift_factor, self.effect, self.offset = stacked["shift"], stacked["effect"], stacked["offset"]
        self.links, self.scale_effect = stacked["links"], stacked["scale"]
        self.mixing = stacked["mixing"]

    def sample(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Content (r, n, d_c) and style (r, n, d_s)."""
        content = self._normal(n, generator, self.content_factor)
        noise = self._normal(n, generator, self.style_factor) * self._noise_scale(content)
        caused = self.offset[:, None] + content @ self.effect.mT + noise
        if not self.model.chain:
            return content, caused
        style: list[Tensor] = []
        for i in range(self.model.style):
            before = sum((self.links[:, i, k, None] * style[k] for k in range(i)), torch.zeros_like(caused[..., 0]))
            style.append(caused[..., i] + before)
        return content, torch.stack(style, -1)

    def pairs(self, style: Tensor, shared: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Two perturbed styles s̃ and s̃′ of each sample, which agree in variable m where ``shared`` (n,) is m.

        The paper's equation for p^(m)(s̃, s̃′ | s): variables count from 1, and 0 shares nothing but content.
        """
        a, b = self.perturb(style, generator), self.perturb(style, generator)
        size = self.model.style // self.model.variables
        variable = torch.arange(self.model.style, device=style.device) // size + 1
        return a, torch.where(shared[:, None].to(style.device) == variable, a, b)

    def perturb(self, style: Tensor, generator: torch.Generator) -> Tensor:
        """Style after an intervention on all of its dimensions."""
        noise = self._normal(style.shape[1], generator, self.shift_factor)
        return noise if self.model.intervention == "perfect" else style + noise

    def conditional_rank(self, content: Tensor, style: Tensor) -> Tensor:
        """F(s̃ | c) of each dimension of a perturbed style, in (0, 1): what of it content does not explain.

        Uniform whatever the content, and equal to the rank of the exogenous noise where noise is additive.
        """
        spread = self.shift_factor.square().sum(-1)[:, None]  # variances, (r, 1, d_s)
        if self.model.intervention == "perfect":
            return torch.special.ndtr(style / spread.sqrt())
        links = self.links if self.model.chain else torch.zeros_like(self.links)
        total = torch.linalg.inv(
            torch.eye(self.model.style, device=links.device) - links
        )  # of all paths, (r, d_s, d_s)
        mean = (self.offset[:, None] + content @ self.effect.mT) @ total.mT
        own = (total[:, None] * self._noise_scale(content)[..., None, :]) @ self.style_factor[:, None]
        return torch.special.ndtr((style - mean) / (spread + own.square().sum(-1)).sqrt())

    def _noise_scale(self, content: Tensor) -> Tensor:
        """What content multiplies each style's own noise by, (r, n, d_s)."""
        if self.model.additive:
            return torch.ones(*content.shape[:-1], self.model.style, device=content.device)
        return torch.exp(torch.tanh(content @ self.scale_effect.mT))

    def observe(self, content: Tensor, style: Tensor) -> Tensor:
        """x = f(c, s), (r, n, d)."""
        x = torch.cat([content, style], -1)
        for layer in range(self.model.layers):
            x = x @ self.mixing[:, layer]
            if layer + 1 < self.model.layers:
                x = self._activation(x)
        return x

    def _activation(self, x: Tensor) -> Tensor:
        slope, width = self.model.slope, self.model.rounding
        if width == 0:
            return F.leaky_relu(x, slope)
        return slope * x + (1 - slope) * F.softplus(x, beta=1 / width)

    def _normal(self, n: int, generator: torch.Generator, factor: Tensor) -> Tensor:
        """(r, n, k) from N(0, factor·factorᵀ)."""
        r, k = factor.shape[:2]
        noise = torch.randn(r, n, k, generator=generator, device=generator.device).to(factor.device)
        return noise @ factor.mT


@cache
def _draw_world(model: LatentModel, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def factor(size: int) -> Tensor:
        """Of a covariance: the identity, or Wishart(size, I), which is A·Aᵀ of a square Gaussian A."""
        return normal(size, size) if model.statistical else torch.eye(size)

    world = {"content": factor(model.content), "style": factor(model.style), "shift": factor(model.style)}
    cause = 1.0 if model.causal else 0.0
    world["effect"] = cause * normal(model.style, model.content)
    world["offset"] = cause * normal(model.style)
    size = model.content + model.style
    world["mixing"] = torch.stack([_well_conditioned(size, generator) for _ in range(model.layers)])
    world["links"] = normal(model.style, model.style).tril(-1)
    world["scale"] = normal(model.style, model.content)
    return world


def _well_conditioned(size: int, generator: torch.Generator) -> Tensor:
    """A matrix of U(−1, 1) with columns of length 1, from the best-conditioned thousandth of many."""
    matrices = torch.rand(CANDIDATES, size, size, generator=generator) * 2 - 1
    matrices = matrices / matrices.norm(dim=1, keepdim=True)
    best = torch.linalg.cond(matrices).argsort()[: CANDIDATES // 1000]
    return matrices[best[int(torch.randint(len(best), (), generator=generator))]]
