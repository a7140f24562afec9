"""Settings of the objective."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from unweave.errors import UnweaveError
from unweave.settings import require, require_choice

if TYPE_CHECKING:
    from unweave.objectives import BaseMethod, DisentangledLoss, Independence, LambdaRule

RAMP = 0.1
"""The fraction of a run over which the independence term grows to its full weight."""
LAST_CHANGE = 0.8
"""The fraction of a run after which dual ascent leaves λ constant, so that the network converges under it."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """The base method, its terms and how λ is adapted.

    The defaults are those of the preset small, which were chosen on photographs; ``PAPER`` are the paper's.

    Examples:
        >>> ObjectiveConfig(method="vicreg").build(("content", "color"), steps=1000).base.invariance_weight
        25.0
    """

    method: Literal["simclr", "vicreg", "barlow-twins", "looc", "looc++", "augself"] = "simclr"
    """Base method; or one of the baselines LooC, LooC++ and AugSelf in place of the objective."""
    temperature: float = 0.07
    """Temperature τ of SimCLR and of the baselines."""
    joint_temperature: float | None = None
    """SimCLR's temperature in the joint entropy, which compares the mean of the similarities of several spaces; by
    default the temperature divided by their number, so that each counts as much as in an entropy of its own."""
    joint_own_view: bool = False
    """In SimCLR's joint entropy, count the other view of the same image as a negative: only style separates the two."""
    content_pairs: Literal["own", "all"] = "all"
    """Pairs on which content's invariance is computed: those that share no group, or all."""
    joint_content: float = 0.3
    """Weight of content's similarity in SimCLR's joint entropy, relative to a style's."""
    covariance_weight: float | None = None
    """Weight of VICReg's covariance penalty; by default the published 1, for 8192 dimensions. Fewer dimensions need a
    larger one."""
    off_diagonal_weight: float | None = None
    """Weight of Barlow Twins' off-diagonal correlations; by default the published 0.0051, for 8192 dimensions."""
    entropy: Literal["content+joint", "content+conditional", "content+pairwise", "joint", "per-space"] = (
        "content+pairwise"
    )
    """Entropies of the loss: of content and of all spaces together, the same without a gradient of the second for
    content, of content and of each style together with content, of all together alone, or of each space."""
    lambda_rule: Literal["dual-ascent", "additive", "signed-additive", "geometric", "fixed"] = "dual-ascent"
    """How the weight λ of each invariance term is adapted: dual ascent on log λ, the paper's rule, the same with a λ
    that may decrease, growth by a factor, or not at all. Without styles it is fixed."""
    content_lambda: float | None = None
    """First λ of content; by default the method's standard weight."""
    style_lambda: float | None = None
    """First λ of every style space; by default the method's standard weight."""
    lambda_lr: float = 1e-3
    """Step size η of λ in the additive rules; with the geometric rule, its growth per step."""
    lambda_factor: float = 30.0
    """The largest change of λ in all, as a factor, with dual ascent."""
    tolerance: float = 0.045
    """Invariance gap ε of every space below which λ does not grow; with dual ascent it is the accepted sensitivity."""
    content_tolerance: float | None = 0.12
    """Tolerance of content; none for that of the styles."""
    lambda_warmup: float = 0.5
    """Fraction of the run before λ begins to change; with dual ascent it is constant in the last fifth too."""
    min_variance: float = 0.4
    """Variance of a space, 1 where it is spread evenly, below which its λ is reduced: a short run, or one on few
    images, then stays less invariant instead of collapsing."""
    independence: float = 30.0
    """Weight of a penalty on the dependence of each style space on content; it starts with the change of λ and grows to
    its full weight over a tenth of the run."""
    independence_spaces: tuple[str, ...] = ("auto",)
    """Style spaces to which that penalty applies: names, all, or auto for those whose transforms do not move pixels.
    Position and size of an object are part of content too, and a spatial space should not lose them."""
    independence_kernel: Literal["gaussian", "linear", "whitened"] = "whitened"
    """Whether that penalty is on every dependence (HSIC), on correlation alone, or on correlation with a whitened
    content."""

    def __post_init__(self) -> None:
        require_choice(self, "method", "content_pairs", "entropy", "lambda_rule", "independence_kernel")
        require(self, "> 0", "temperature", "joint_temperature")
        require(
            self, ">= 0", "joint_content", "content_lambda", "style_lambda", "lambda_lr", "tolerance", "independence",
            "content_tolerance", "min_variance", "covariance_weight", "off_diagonal_weight",
        )  # fmt: skip
        require(self, ">= 1", "lambda_factor")
        require(self, "in [0, 1]", "lambda_warmup")

    def build(self, spaces: Sequence[str], steps: int, geometric: Collection[str] = ()) -> "DisentangledLoss":
        """The objective for a run of this many steps; ``geometric`` are the spaces whose transforms move pixels."""
        from unweave.objectives import CollapseGuard, DisentangledLoss

        return DisentangledLoss(
            self._base(len(spaces)),
            spaces=spaces,
            lambda_rule=self._lambda_rule(spaces, steps),
            collapse_guard=CollapseGuard(min_variance=self.min_variance),
            content_pairs=self.content_pairs,
            entropy=self.entropy,
            independence=self._independence(spaces, steps, geometric),
        )

    def _independence(self, spaces: Sequence[str], steps: int, geometric: Collection[str]) -> "Independence | None":
        from unweave.objectives import Independence

        chosen = self.independence_spaces
        if chosen in (("auto",), ("all",)):
            chosen = tuple(space for space in spaces[1:] if chosen == ("all",) or space not in geometric)
        if not self.independence or not chosen or len(spaces) == 1:
            return None
        if unknown := set(chosen) - set(spaces[1:]):
            names, styles = ", ".join(sorted(unknown)), ", ".join(spaces[1:])
            raise UnweaveError(f"`independence_spaces` names {names}; the style spaces are {styles}")
        return Independence(
            weight={space: self.independence if space in chosen else 0.0 for space in spaces[1:]},
            start=round(self.lambda_warmup * steps),
            ramp=round(RAMP * steps),
            kernel=self.independence_kernel,
        )

    def _base(self, spaces: int = 1) -> "BaseMethod":
        """The base method, for this number of spaces."""
        from unweave.objectives import BarlowTwins, SimCLR, VICReg

        if self.method == "simclr":
            compared = 2 if self.entropy == "content+pairwise" else spaces
            return SimCLR(
                self.temperature,
                joint_temperature=self.joint_temperature or self.temperature / compared,
                joint_own_view=self.joint_own_view,
                joint_content=self.joint_content,
            )
        if self.method == "vicreg":
            return VICReg() if self.covariance_weight is None else VICReg(covariance_weight=self.covariance_weight)
        if self.method == "barlow-twins":
            weight = self.off_diagonal_weight
            return BarlowTwins() if weight is None else BarlowTwins(off_diagonal_weight=weight)
        raise UnweaveError(f"`method` {self.method} is a baseline: use PretrainConfig.build_objective")

    def _lambda_rule(self, spaces: Sequence[str], steps: int) -> "LambdaRule":
        from unweave.objectives import AdditiveAscent, DualAscent, FixedWeights, GeometricGrowth

        standard = self._base().invariance_weight
        content, style = (standard if x is None else x for x in (self.content_lambda, self.style_lambda))
        start = {space: style if number else content for number, space in enumerate(spaces)}
        if self.lambda_rule == "fixed" or len(spaces) == 1:
            return FixedWeights(start=start)
        of_content = self.tolerance if self.content_tolerance is None else self.content_tolerance
        tolerance = {space: self.tolerance if number else of_content for number, space in enumerate(spaces)}
        if self.lambda_rule == "dual-ascent":
            window = (min(self.lambda_warmup, LAST_CHANGE), LAST_CHANGE)
            return DualAscent.over(steps, factor=self.lambda_factor, window=window, tolerance=tolerance, start=start)
        warmup = round(self.lambda_warmup * steps)
        if self.lambda_rule == "geometric":
            return GeometricGrowth(rate=self.lambda_lr, tolerance=tolerance, warmup=warmup, start=start)
        signed = self.lambda_rule == "signed-additive"
        return AdditiveAscent(lr=self.lambda_lr, tolerance=tolerance, warmup=warmup, start=start, can_decrease=signed)


PAPER = ObjectiveConfig(
    temperature=0.15,
    joint_temperature=0.15,
    content_pairs="own",
    entropy="content+joint",
    lambda_rule="additive",
    tolerance=1e-3,
    content_tolerance=None,
    lambda_warmup=0.1,
    min_variance=0.1,
    joint_content=1.0,
    independence=0.0,
)
"""The paper's objective and rule for λ, with the temperature of the authors' release."""
