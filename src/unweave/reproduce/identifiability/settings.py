"""The settings of the identifiability experiment: within the theorem's assumptions, and one step outside."""

from dataclasses import dataclass, replace

from unweave.data import LatentModel


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A kind of latent model, and how the sizes of the spaces differ from those of its variables."""

    meaning: str
    causal: bool = False
    chain: bool = False
    additive: bool = True
    perfect: bool = False
    style_size: int = 1
    extra_content: int = 0
    rounding: float = 0.25
    """Smoothing of the mixing's leaky ReLU: A1 requires a diffeomorphism."""

    def model(self, styles: int, dim_c: int) -> LatentModel:
        """The latent model."""
        return LatentModel(
            content=dim_c,
            style=styles * self.style_size,
            variables=styles,
            causal=self.causal,
            chain=self.chain,
            additive=self.additive,
            intervention="perfect" if self.perfect else "shift",
            rounding=self.rounding,
        )


_A = Setting(meaning="styles independent of content, shift interventions")
_B = Setting(
    meaning="styles caused by content and by each other, perfect interventions", causal=True, chain=True, perfect=True
)
SETTINGS = {
    "a": _A,
    "b": _B,
    "c": Setting(meaning="styles caused by content, shift interventions, additive noise", causal=True),
    "c-scaled": Setting(meaning="as c, but content scales the noise", causal=True, additive=False),
    "a-kinked": replace(_A, meaning="as a, mixing by leaky ReLUs, not a diffeomorphism (A1)", rounding=0.0),
    "b-kinked": replace(_B, meaning="as b, mixing by leaky ReLUs, not a diffeomorphism (A1)", rounding=0.0),
    "a-small": replace(_A, meaning="as a, content space one dimension too small (A1)", extra_content=-1),
    "b-small": replace(_B, meaning="as b, content space one dimension too small (A1)", extra_content=-1),
    "a-large": replace(_A, meaning="as a, content space one dimension too large (A1)", extra_content=1),
    "b-large": replace(_B, meaning="as b, content space one dimension too large (A1)", extra_content=1),
    "a-2d": replace(_A, meaning="as a, styles of 2 dimensions (A3)", style_size=2),
    "b-2d": replace(_B, meaning="as b, styles of 2 dimensions (A3)", style_size=2),
}
INSIDE = ("a", "b", "c", "c-scaled")
OUTSIDE = ("kinked", "small", "large", "2d")
