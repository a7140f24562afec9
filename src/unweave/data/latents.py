"""Latent-variable data with known truth (paper, section 5.1; von Kügelgen et al. 2021, appendix D).

    content c ~ N(0, Σ_c)  ─►  style s = a + B·c + noise  ─►  perturbed style s̃  ─►  observation x = f(c, s̃)

Every assumption is a setting: sizes, dependence among the dimensions of content, styles caused by content and by each
other, the kind of intervention, the depth of the mixing f. Several instances that differ only in their seed are sampled
together; each has its own covariances, causal effects and mixing, stacked in the first dimension.

Legend: r instances, n samples, d_c and d_s dimensions of content and style, d = d_c + d_s, M style variables.
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
"""Matrices drawn for a mixing layer; one of the best-conditioned 0.1% is used."""


@dataclass(frozen=True, kw_only=True)
class LatentModel:
    """A data-generating process, up to what is drawn from a seed.

    Examples:
        >>> LatentModel(content=2, style=2, variables=2, causal=True).variables
        2
    """

    content: int = 5
    """Dimensions of content."""
    style: int = 5
    """Dimensions of style."""
    variables: int = 1
    """Style variables s_1 … s_M, of equal size, that style consists of. Pairs of views share one of them."""
    statistical: bool = False
    """Dependence within content and within style: covariances from a Wishart distribution, not the identity."""
    causal: bool = False
    """Content causes style: a and B are drawn from N(0, 1), not 0."""
    chain: bool = False
    """Each style dimension is also caused by those before it, with effects from N(0, 1)."""
    additive: bool = True
    """Whether the exogenous noise of a style is added to its causes; if not, content scales it by up to e^(±1)."""
    intervention: Literal["shift", "perfect"] = "shift"
    """How style is perturbed: noise is added to it ("shift") or replaces it ("perfect")."""
    layers: int = 3
    """Square layers of the mixing function."""
    slope: float = 0.2
    """Negative slope of the leaky ReLU between them; 1 makes the mixing linear."""
    rounding: float = 0.0
    """Width w over which the kink of the leaky ReLU is smoothed, slope·x + (1 − slope)·w·softplus(x/w). The mixing is a
    diffeomorphism unless it is 0."""

    def __post_init__(self) -> None:
        for name in ("content", "style", "layers"):
            if getattr(self, name) < 1:
                raise UnweaveError(f"LatentModel: `{name}` must be at least 1, not {getattr(self, name)}")
        if self.variables < 1 or self.style % self.variables:
            raise UnweaveError(
                f"LatentModel: `style` {self.style} cannot be divided into `variables` {self.variables} of equal size"
            )
        if not 0 < self.slope <= 1:
            raise UnweaveError(f"LatentModel: `slope` must be in (0, 1], so that f is invertible, not {self.slope}")
        if self.rounding < 0:
            raise UnweaveError(f"LatentModel: `rounding` is a width and cannot be negative: {self.rounding}")
        if self.intervention not in ("shift", "perfect"):
            raise UnweaveError(f"LatentModel: `intervention` is 'shift' or 'perfect', not {self.intervention!r}")


class StackedLatents:
    """Instances of a latent model, one for each seed, sampled together.

    Examples:
        >>> latents = StackedLatents(LatentModel(content=2, style=1), seeds=(0, 1))
        >>> content, style = latents.sample(4, torch.Generator().manual_seed(0))
        >>> latents.observe(content, style).shape
        torch.Size([2, 4, 3])
    """

    def __init__(self, model: LatentModel, seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.model = model
        drawn = [_draw_instance(model, seed) for seed in seeds]
        stacked = {name: torch.stack([instance[name] for instance in drawn]).to(device) for name in drawn[0]}
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
        """Two perturbed styles s̃ and s̃′ of each sample, equal in variable m where ``shared`` (n,) is m.

        The paper's p^(m)(s̃, s̃′ | s). Variables count from 1; where ``shared`` is 0, only content is shared.
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
        """F(s̃ | c) of each dimension of a perturbed style, in (0, 1): the part that content does not explain.

        It is uniform given content, and equals the rank of the exogenous noise where noise is additive.
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
        """The factor by which content multiplies the exogenous noise of each style, (r, n, d_s)."""
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
def _draw_instance(model: LatentModel, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def factor(size: int) -> Tensor:
        """A of a covariance A·Aᵀ: the identity, or square Gaussian, so that the covariance is Wishart(size, I)."""
        return normal(size, size) if model.statistical else torch.eye(size)

    instance = {"content": factor(model.content), "style": factor(model.style), "shift": factor(model.style)}
    cause = 1.0 if model.causal else 0.0
    instance["effect"] = cause * normal(model.style, model.content)
    instance["offset"] = cause * normal(model.style)
    size = model.content + model.style
    instance["mixing"] = torch.stack([_well_conditioned(size, generator) for _ in range(model.layers)])
    instance["links"] = normal(model.style, model.style).tril(-1)
    instance["scale"] = normal(model.style, model.content)
    return instance


def _well_conditioned(size: int, generator: torch.Generator) -> Tensor:
    """A matrix of U(−1, 1) with columns of length 1, one of the best-conditioned 0.1% of many."""
    matrices = torch.rand(CANDIDATES, size, size, generator=generator) * 2 - 1
    matrices = matrices / matrices.norm(dim=1, keepdim=True)
    best = torch.linalg.cond(matrices).argsort()[: CANDIDATES // 1000]
    return matrices[best[int(torch.randint(len(best), (), generator=generator))]]
