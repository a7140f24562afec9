"""The disentangled objective (paper, equations 2 and 3).

    loss = Σ_m λ_m · inv(z_m of pairs of kind m)  +  ent(z_0 of all pairs)  +  ent([z_0, …, z_M] of all pairs)
           M + 1 invariance terms                    content entropy           joint entropy

Each invariance term sees only the pairs that share what its space is to keep. The content entropy puts content into the
content space; the joint entropy prevents the style spaces from copying it.

Legend: n images, d_m dimensions of space m, z_a[m] and z_b[m] (n, d_m), shared (n,) the kind of each pair.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from unweave.describe import Described
from unweave.device_cache import cached_tensor
from unweave.distributed import gather, rank, world_size
from unweave.errors import UnweaveError
from unweave.objectives.base import BaseMethod, Embeddings, LossTerms, Objective
from unweave.objectives.collapse import CollapseGuard, CollapseWarning, effective_rank, variance
from unweave.objectives.hsic import Independence, dependence, linear_dependence, whitened
from unweave.objectives.lambdas import FixedWeights, LambdaRule
from unweave.objectives.noise import counted_normal
from unweave.settings import require_number

Entropy = Literal["content+joint", "content+conditional", "content+pairwise", "joint", "per-space"]
CHECK_EVERY = 50
"""Updates between two checks for a collapse: each check waits for the device."""
FIRST_CHECK = 10
"""The update of the first check."""
MEASURED = 512
"""Images on which a space's variance and effective rank are measured."""


class DisentangledLoss(Described, Objective):
    """λ-weighted invariance of every space + content entropy + joint entropy, over a base method.

    Args:
        base: ``SimCLR()``, ``VICReg()`` or ``BarlowTwins()``.
        spaces: the names of the spaces in order, as ``views.spaces``; content alone gives the base method itself.
        lambda_rule: how λ is adapted; by default it stays at the base method's standard weight.
        collapse_guard: limits λ where a space is close to collapse.
        content_pairs: "own" computes content's invariance on pairs of kind 0, as in the paper; "all" on every pair,
            since all of them share content.
        entropy: "content+joint", as in the paper's objective; "content+conditional", the same with a joint entropy that
            has no gradient for content; "content+pairwise", in place of it a joint entropy of content with each style
            space, likewise without a gradient for content; "joint" alone, as in the paper's theorem; "per-space", one
            for every space, as in LooC, which does not prevent copies of content in the style spaces.
        independence: penalises the dependence of each style space on the content space, which receives no gradient from
            this term. Not in the paper.
        power: replaces the base method's invariance by w·d²·mean r^power, where d is the root mean square distance of
            different images, in the geometry of the loss, r the distance of two views over d, and w a constant of the
            method; and the gap by the squared power mean of r. Not in the paper.
        relative: with ``power``, divides mean r^power by the same mean over views of different images, which receives a
            gradient. For VICReg and Barlow Twins, where a power below 2 alone prefers codes with rare outliers. Not in
            the paper.
        power_start: updates before ``power`` replaces the base method's invariance.
        noise: standard deviation of Gaussian noise that is added to both views before the loss, relative to the root
            mean square of the embedding in the geometry of the loss. What is encoded below this scale then has no
            value to the entropy. λ, variance and effective rank are measured without it. Not in the paper.

    Under several processes the embeddings are gathered, so that loss, λ and gradients are those of one process on the
    whole batch. Every process must bring the same number of images.

    Notes:
        The joint entropy is that of content plus that of the styles given content. Content's own entropy is a term of
        the loss already; with "content+conditional" it counts once, and content is what the base method learns alone.
        "content+pairwise" is the sum of the entropies of single styles given content. What two style spaces could
        share, being invariant to both groups, is content's, so that independence of content separates them too.

        The squared distance is least at a mean, the distance itself at a median. Where some views do not show content,
        a squared invariance places each view at the mean of the contents it may have, which encodes how certain they
        are and thereby style (a small sprite is less certain). With ``power=1`` a view lies at one content exactly, as
        soon as that content has more than half of the probability; and style vanishes at a finite λ, since near full
        invariance the penalty decreases more slowly than the entropy's gain.

    Examples:
        >>> import torch, unweave as uw
        >>> rule = uw.DualAscent.over(steps=1000)
        >>> objective = uw.DisentangledLoss(uw.SimCLR(), spaces=("content", "color"), lambda_rule=rule)
        >>> z_a, z_b = ({space: torch.randn(8, 4) for space in objective.spaces} for _ in "ab")
        >>> terms = objective(z_a, z_b, shared=torch.arange(8) % 2)
        >>> objective.update(terms)  # the dual step, after the optimiser's
    """

    lambdas: Tensor
    updates: Tensor
    collapsed: Tensor
    """Which spaces were close to collapse at the last check."""
    starts: Tensor
    tolerances: Tensor
    independence_weights: Tensor

    def __init__(
        self,
        base: BaseMethod,
        *,
        spaces: Sequence[str] = ("content",),
        lambda_rule: LambdaRule | None = None,
        collapse_guard: CollapseGuard | None = None,
        content_pairs: Literal["own", "all"] = "own",
        entropy: Entropy = "content+joint",
        independence: Independence | None = None,
        power: float | None = None,
        relative: bool = False,
        power_start: int = 0,
        noise: float = 0.0,
    ) -> None:
        super().__init__()
        self.base, self.spaces = base, tuple(spaces)
        self.lambda_rule = FixedWeights() if lambda_rule is None else lambda_rule
        self.collapse_guard = CollapseGuard() if collapse_guard is None else collapse_guard
        if not self.spaces or self.spaces[0] != "content" or len(set(self.spaces)) != len(self.spaces):
            raise UnweaveError(f"`spaces` must be different names, 'content' first, not {self.spaces}")
        if content_pairs not in ("own", "all"):
            raise UnweaveError(f"`content_pairs` is 'own' or 'all', not {content_pairs!r}")
        if entropy not in get_args(Entropy):
            raise UnweaveError(f"`entropy` is one of {', '.join(get_args(Entropy))}, not {entropy!r}")
        if power is not None and not 1 <= power <= 2:
            raise UnweaveError(f"`power` is between 1 and 2, not {power}")
        for name, value in (("relative", relative), ("power_start", power_start)):
            if value and power is None:
                raise UnweaveError(f"`{name}` needs `power`")
        require_number("power_start", power_start, ">= 0")
        require_number("noise", noise, ">= 0")
        self.content_pairs, self.entropy, self.independence = content_pairs, entropy, independence
        self.power, self.relative, self.power_start, self.noise = power, relative, power_start, noise
        start = base.invariance_weight if self.lambda_rule.start is None else self.lambda_rule.start
        self.register_buffer("lambdas", self._per_space("start", start))
        self.register_buffer("starts", self.lambdas.clone(), persistent=False)
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.register_buffer("collapsed", torch.zeros(len(self.spaces), dtype=torch.bool))
        self.register_buffer("tolerances", self._per_space("tolerance", self.lambda_rule.tolerance), persistent=False)
        weight = 0.0 if independence is None else independence.weight
        of_styles = {"content": 0.0, **weight} if isinstance(weight, Mapping) else weight
        self.register_buffer("independence_weights", self._per_space("weight", of_styles), persistent=False)
        self._updates = 0  # the value of the buffer, known to the host

    def _per_space(self, name: str, value: float | Mapping[str, float]) -> Tensor:
        if isinstance(value, Mapping):
            if set(value) != set(self.spaces):
                raise UnweaveError(f"`{name}` names the spaces {sorted(value)}, but there are {sorted(self.spaces)}")
            return torch.tensor([float(value[space]) for space in self.spaces])
        return torch.full((len(self.spaces),), float(value))

    @property
    def geometry(self) -> BaseMethod:
        """That of the base method."""
        return self.base

    @property
    def least_batch(self) -> int:
        """As many pairs of every kind as the base method needs."""
        return max(2, len(self.spaces) * (2 if self.relative else self.base.least_pairs))

    def forward(
        self, z_a: Embeddings, z_b: Embeddings, shared: Tensor, targets: Mapping[str, Tensor] | None = None
    ) -> LossTerms:
        """The terms of a batch: embeddings by space, (n, d_m) each, and the group that each pair shares, (n,)."""
        self._check(z_a, z_b, shared)
        with torch.autocast(z_a["content"].device.type, enabled=False):  # similarities need more than eight bits
            a = [gather(_full_precision(z_a[space])) for space in self.spaces]
            b = [gather(_full_precision(z_b[space])) for space in self.spaces]
            shared = shared if world_size() == 1 else gather(shared.to(a[0].device))
            return self._terms(a, b, shared)

    def _terms(self, a: list[Tensor], b: list[Tensor], shared: Tensor) -> LossTerms:
        """The terms of the global batch."""
        clean_a, clean_b = a, b
        if self.noise > 0:
            a, b = ([self._noisy(z, 2 * m + side) for m, z in enumerate(views)] for side, views in enumerate((a, b)))
        invariances, gaps = [], []
        for m in range(len(self.spaces)):
            invariances.append(self._invariance(*self._own_pairs(m, a[m], b[m], shared)))
            gaps.append(self._gap(*self._own_pairs(m, clean_a[m].detach(), clean_b[m].detach(), shared)))
        invariance = torch.stack(invariances)
        content_entropy, joint_entropy = self._entropies(a, b)
        loss = (self.lambdas.to(invariance.dtype) * invariance).sum() + content_entropy + joint_entropy

        measured: dict[str, Tensor] = {}
        if self.independence is not None and self._updates >= self.independence.start:
            dependences = self._dependences(a, b)
            loss = loss + (self.independence_weights * self.independence.scale(self.updates) * dependences).sum()
            measured["dependence"] = dependences.detach()
        with torch.no_grad():
            pairs = zip(clean_a, clean_b, strict=True)
            seen = [self.base.normalize(torch.cat([x[:MEASURED], y[:MEASURED]])) for x, y in pairs]
            per_space = {
                "lambda": self.lambdas.clone(),
                "invariance": invariance.detach(),
                "invariance_gap": torch.stack(gaps),
                "variance": torch.stack([variance(z) for z in seen]),
                "effective_rank": torch.stack([effective_rank(z) for z in seen]),
                **measured,
            }
        entropies = {"content_entropy": content_entropy.detach(), "joint_entropy": joint_entropy.detach()}
        return LossTerms(loss, self.spaces, entropies, per_space)

    def _invariance(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """The base method's, or that of distances to a power."""
        if self.power is None or self._updates < self.power_start:
            return self.base.invariance(z_a, z_b)
        return self.base.distance_invariance(z_a, z_b, self.power, self.relative)

    def _gap(self, z_a: Tensor, z_b: Tensor) -> Tensor:
        """What the rule for λ compares with its tolerance."""
        if self.power is None and not self.lambda_rule.relative_gap:
            return self.base.invariance_gap(z_a, z_b)
        return self.base.distance_gap(z_a, z_b, self.power or 2.0, self.relative)

    def _noisy(self, z: Tensor, stream: int) -> Tensor:
        """z in the geometry of the loss, with noise that depends on the number of updates."""
        z = self.base.normalize(z)
        size = z.detach().square().mean().sqrt()
        return z + self.noise * size * counted_normal(tuple(z.shape), self.updates, stream).to(z.dtype)

    def _entropies(self, a: list[Tensor], b: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Content's entropy, and that of all spaces; without styles the two are the same and count once."""
        content = self.base.entropy(a[0], b[0])
        if len(a) == 1:
            return content, torch.zeros_like(content)
        if self.entropy == "per-space":
            styles = [self.base.entropy(x, y) for x, y in zip(a[1:], b[1:], strict=True)]
            return content, torch.stack(styles).sum()
        if self.entropy in ("content+conditional", "content+pairwise"):
            a, b = [a[0].detach(), *a[1:]], [b[0].detach(), *b[1:]]
        if self.entropy == "content+pairwise":
            pairs = zip(a[1:], b[1:], strict=True)
            return content, torch.stack([self.base.joint_entropy([a[0], x], [b[0], y]) for x, y in pairs]).sum()
        joint = self.base.joint_entropy(a, b)
        return (torch.zeros_like(joint) if self.entropy == "joint" else content), joint

    def _dependences(self, a: list[Tensor], b: list[Tensor]) -> Tensor:
        """The dependence of each space on content, 0 for content itself: (M + 1,)."""
        assert self.independence is not None
        both = [self.base.normalize(torch.cat(views)) for views in zip(a, b, strict=True)]
        if self.independence.kernel != "gaussian":
            other = whitened(both[0].detach()) if self.independence.kernel == "whitened" else both[0].detach()
            found = [linear_dependence(z, other, views=2) for z in both[1:]]
        else:
            found = [dependence(z, both[0].detach()) for z in both[1:]]
        return torch.stack([torch.zeros_like(a[0][0, 0]), *found])

    def _own_pairs(self, m: int, z_a: Tensor, z_b: Tensor, shared: Tensor) -> tuple[Tensor, Tensor]:
        """The pairs on which space m's invariance is computed."""
        if len(self.spaces) == 1 or (m == 0 and self.content_pairs == "all"):
            return z_a, z_b
        rows = (shared == m).nonzero().squeeze(1)
        if rows.device != z_a.device:  # the same at every step: copied once
            rows = cached_tensor(tuple(rows.tolist()), z_a.device, torch.int64)
        if len(rows) == 0:
            raise UnweaveError(
                f"no pair in this batch shares {self.spaces[m]!r}; use a batch of at least {len(self.spaces)} images"
            )
        return z_a[rows], z_b[rows]

    @torch.no_grad()
    def update(self, terms: LossTerms) -> None:
        """The dual step: adapts λ by its rule. Call it after the optimiser's step."""
        self._updates += 1
        self.updates.add_(1)
        measured = terms.per_space
        collapsed = self.collapse_guard.collapsed(measured["variance"], measured["effective_rank"])
        if self._updates == FIRST_CHECK or self._updates % CHECK_EVERY == 0:
            self._report_collapse(terms)
        if self.lambda_rule.changes_at(self._updates):
            gaps = measured["invariance_gap"].to(self.lambdas)
            proposed = self.lambda_rule.step(self.lambdas, gaps, self.tolerances)
            self.lambdas.copy_(self.collapse_guard.limit(self.lambdas, proposed, collapsed, self.starts))

    def stage(self) -> tuple[bool, bool]:
        """Whether the independence term is part of the loss, and whether distances to the power are."""
        independent = self.independence is not None and self._updates >= self.independence.start
        return independent, self._updates >= self.power_start

    @torch.no_grad()
    def finish(self, terms: LossTerms) -> None:
        """Reports spaces that are collapsed at the end."""
        measured = terms.per_space
        collapsed = self.collapse_guard.reported(measured["variance"], measured["effective_rank"]).tolist()
        if found := [_state(m, terms) for m, is_collapsed in enumerate(collapsed) if is_collapsed]:
            _warn(
                f"collapsed at the end of training: {'; '.join(found)}; embeddings there hardly differ between images: "
                f"train longer, or with {self._remedy()}"
            )

    def _report_collapse(self, terms: LossTerms) -> None:
        """Once each time a space comes close to collapse, and when it has recovered."""
        collapsed = self.collapse_guard.reported(terms.per_space["variance"], terms.per_space["effective_rank"])
        before, now = (
            {m for m, is_one in enumerate(spaces.tolist()) if is_one} for spaces in (self.collapsed, collapsed)
        )
        for m in sorted(now - before):
            reduced = "" if isinstance(self.lambda_rule, FixedWeights) else "; its λ is being reduced"
            _warn(f"step {self._updates}: close to collapse: {_state(m, terms)}{reduced}; {self._remedy()} may help")
        for m in sorted(before - now):
            _warn(f"step {self._updates}: recovered from collapse: {_state(m, terms)}")
        self.collapsed.copy_(collapsed)

    def _remedy(self) -> str:
        smaller = "a smaller λ" if isinstance(self.lambda_rule, FixedWeights) else "a larger `tolerance`"
        return f"{smaller} or a smaller `lr`"

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._updates = int(self.updates)

    def _check(self, z_a: Embeddings, z_b: Embeddings, shared: Tensor) -> None:
        for side in (z_a, z_b):
            if different := set(side) - {"h"} ^ set(self.spaces):
                raise UnweaveError(
                    f"the embeddings have the spaces {sorted(set(side) - {'h'})}, the objective {sorted(self.spaces)}: "
                    f"{sorted(different)} differ; construct both with spaces=views.spaces"
                )
        n = len(shared)
        for space in self.spaces:
            a, b = z_a[space], z_b[space]
            if a.ndim != 2 or a.shape != b.shape or len(a) != n:
                raise UnweaveError(
                    f"space {space!r}: both views must have the shape ({n}, d), as `shared` has {n} entries, not "
                    f"{tuple(a.shape)} and {tuple(b.shape)}"
                )
        if n < 2:
            raise UnweaveError(f"a batch of {n} images has no negatives; use at least 2 images")
        if shared.device.type == "cpu":  # elsewhere the check would wait for the device
            low, high = (int(value) for value in shared.aminmax())
            if low < 0 or high >= len(self.spaces):
                raise UnweaveError(
                    f"`shared` must be between 0 and {len(self.spaces) - 1}, the number of groups, not {low} to {high}"
                )


def _state(m: int, terms: LossTerms) -> str:
    spread, directions = (terms.per_space[name][m].item() for name in ("variance", "effective_rank"))
    return f"space {terms.spaces[m]!r} (variance {spread:.3g}, effective rank {directions:.3g})"


def _warn(message: str) -> None:
    if rank() == 0:
        warnings.warn(message, CollapseWarning, stacklevel=4)


def _full_precision(z: Tensor) -> Tensor:
    return z.float() if z.dtype in (torch.float16, torch.bfloat16) else z
