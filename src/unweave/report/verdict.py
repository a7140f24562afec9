"""What the sensitivity matrix says, in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

INVARIANT = 0.15
"""Largest sensitivity of a space that is called invariant."""
ENCODES = 0.5
"""Least sensitivity of a style space that is said to encode its own group."""
COLLAPSED = 0.1
"""Variance below which a space is called collapsed, as the collapse guard has it."""
SHOWN = 3
"""Shortcomings that the summary names."""


@dataclass(frozen=True)
class Finding:
    """One sentence about one space."""

    space: str
    good: bool
    text: str


def assess(
    spaces: Sequence[str], sensitivity: Mapping[str, Mapping[str, float]], variance: Mapping[str, float]
) -> list[Finding]:
    """Findings about each space: collapsed or not, invariant to what, and whether a style space encodes its group.

    Examples:
        >>> matrix = {"content": {"color": 0.02}, "color": {"color": 0.8}}
        >>> for finding in assess(("content", "color"), matrix, {"content": 0.9, "color": 0.9}):
        ...     print(finding.good, finding.text)
        True content is invariant to color (0.02)
        True color encodes color (0.80)
    """
    findings = []
    for space in spaces:
        if variance[space] < COLLAPSED:
            text = f"{space} has collapsed: its variance is {variance[space]:.3f}, so its sensitivity has no meaning"
            findings.append(Finding(space, False, text))
            continue
        for group, value in sensitivity[space].items():
            findings.append(_own(space, value) if group == space else _other(space, group, value))
    return findings


def _own(space: str, value: float) -> Finding:
    if value >= ENCODES:
        return Finding(space, True, f"{space} encodes {space} ({value:.2f})")
    how = "hardly" if value <= INVARIANT else "weakly"
    return Finding(space, False, f"{space} {how} encodes {space} ({value:.2f}; at least {ENCODES} is wanted)")


def _other(space: str, group: str, value: float) -> Finding:
    if value <= INVARIANT:
        return Finding(space, True, f"{space} is invariant to {group} ({value:.2f})")
    return Finding(space, False, f"{space} is not invariant to {group} ({value:.2f}; at most {INVARIANT} is wanted)")


def summary(findings: Sequence[Finding]) -> str:
    """One sentence: separate, or what is not.

    Examples:
        >>> summary([Finding("content", False, "content is not invariant to color (0.40; at most 0.15 is wanted)")])
        'The spaces are not separate: content is not invariant to color (0.40; at most 0.15 is wanted).'
    """
    bad = [finding.text for finding in findings if not finding.good]
    if not findings:
        return "There is one space and no style: nothing to separate."
    if not bad:
        return "The spaces are separate: each is invariant to the other groups and each style space encodes its own."
    more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
    return f"The spaces are not separate: {'; '.join(bad[:SHOWN])}{more}."
