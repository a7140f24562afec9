"""The numbers on our pages, as expressions over the results they come from.

``text`` is on ``page`` with the values of ``numbers``, pairs of a file and an expression over its ``data`` or ``rows``.
"""

from dataclasses import dataclass

NUMERICAL, THEOREM = "results/numerical/table.json", "results/identifiability/table.json"
SPRITES, SPACES = "results/sprites/table.json", "results/sprite-spaces/table.json"
VIEWS, STEP, TRAINING = (f"results/benchmarks/{name}.json" for name in ("views", "step", "training"))


@dataclass(frozen=True)
class Claim:
    page: str
    text: str
    numbers: list[tuple[str, str]]


def at_50(weights, score, setting="independent"):
    chosen = f"r['setting'] == '{setting}' and r['weights'] == '{weights}' and r['dim_z'] == 50"
    return NUMERICAL, f"abs(mean(r['{score}'] for r in rows if {chosen}))"


def over_sizes(function, score, setting):
    """The smallest or largest mean over seeds, of embeddings with at least as many dimensions as content."""
    chosen = f"r['setting'] == '{setting}' and r['weights'] == 'adapted' and r['dim_z'] == d"
    return NUMERICAL, f"{function}(mean(r['{score}'] for r in rows if {chosen}) for d in (5, 8, 10, 15, 20, 30, 50))"


OURS = "r['objective'] == 'ours' and r['ablation'] == 'none'"
UP_TO_4 = f"{OURS} and r['setting'] in ('a', 'b') and r['styles'] <= 4"


def theorem(function, score, chosen=UP_TO_4):
    return THEOREM, f"{function}(r['{score}'] for r in rows if {chosen})"


def conjecture(score, styles):
    return theorem("mean", score, f"{OURS} and r['setting'] == 'c' and r['styles'] {styles}")


ADAPTED = "r['weights'] == 'adapted' and r['rule'] == 'geometric'"
WHOLE, RELEASED = f"{ADAPTED} and r['views'] == 'whole'", f"{ADAPTED} and r['views'] == 'release'"
FLOORS = "{'color': 0.3 if r['strength'] == 'weak' else 0.1, 'scale': 1/6, 'orientation': 0, 'x': 0, 'y': 0}"
"""Chance, and of color the groups that weak jitter does not mix."""


def clean(probe, chosen=WHOLE):
    """Runs in which every style is within 0.05 of its floor, by a probe."""
    scores = "r" if probe is None else f"r['{probe}']"
    return SPRITES, f"len([r for r in rows if {chosen} and all({scores}[s] <= f + 0.05 for s, f in {FLOORS}.items())])"


SIX = "r['method'] == 'simclr' and r['ablation'] == 'none' and r['mode'] == 'latents'"
OWN = "{'content': 'shape', 'color': 'color', 'scale': 'scale', 'orientation': 'orientation', 'x': 'x', 'y': 'y'}"


def views(library, device, size):
    def rate(name):
        chosen = f"r['library'] == '{name}' and r['device'] == '{device}' and r['size'] == {size}"
        return f"mean(r['views_per_second'] for r in rows if {chosen})"

    return VIEWS, f"{rate('unweave')} / {rate(library)}"


def training(name, part, key):
    value = f"r['{part}']['{key}']" if part else f"r['{key}']"
    return TRAINING, f"mean({value} for r in rows if r['name'] == '{name}')"


README = [
    (
        "50 dimensions: style r² {:.2f} with fixed λ, {:.2f} with adapted λ; content r² {:.3f} and {:.3f}",
        [at_50("fixed", "style_r2"), at_50("adapted", "style_r2"), at_50("fixed", "content_r2"), at_50("adapted", "content_r2")],
    ),
    (
        "with statistical dependence style r² is still up to {:.2f}, content r² {:.2f}",
        [over_sizes("max", "style_r2", "statistical"), over_sizes("min", "content_r2", "statistical")],
    ),
    (
        "worst of {:d} runs: content r² {:.3f}, own style {:.3f}, leak {:.3f}",
        [
            (THEOREM, f"len([r for r in rows if {UP_TO_4}])"),
            theorem("min", "content_r2"), theorem("min", "diagonal"), theorem("max", "leak"),
        ],
    ),
    ("8 styles: own style down to {:.2f}", [theorem("min", "diagonal", f"{OURS} and r['setting'] in ('a', 'b') and r['styles'] == 8")]),
    (
        "holds up to 4 styles (r² {:.2f} against {:.2f}), reversed with 8 ({:.2f} against {:.2f})",
        [conjecture("exogenous", "<= 4"), conjecture("diagonal", "<= 4"), conjecture("exogenous", "== 8"), conjecture("diagonal", "== 8")],
    ),
    (
        "accuracy of shape at least 0.99 in {:d} of {:d} runs; all styles within 0.05 of their floor in {:d} of 18",
        [
            (SPRITES, f"len([r for r in rows if {WHOLE} and r['shape'] >= 0.99])"),
            (SPRITES, f"len([r for r in rows if {WHOLE}])"),
            clean(None),
        ],
    ),
    (
        "unnormalised {:d} of 18, with 1% noise {:d}, standardised {:d}; released views {:d} of {:d}",
        [clean("raw"), clean("noisy"), clean("standardised"), clean(None, RELEASED), (SPRITES, f"len([r for r in rows if {RELEASED}])")],
    ),
    (
        "{:d} of 3 seeds: every space predicts its own factor (at least {:.2f}), every other factor at most {:.2f} above chance; "
        "DCI disentanglement {:.2f}",
        [
            (SPACES, f"len([r for r in rows if {SIX}])"),
            (SPACES, f"min(r['scores'][s][f] for r in rows if {SIX} for s, f in {OWN}.items())"),
            (SPACES, f"max(v - r['chance'][f] for r in rows if {SIX} for s, d in r['scores'].items() for f, v in d.items() if {OWN}[s] != f)"),
            (SPACES, f"mean(r['dci']['disentanglement'] for r in rows if {SIX})"),
        ],
    ),
    (
        "with pixel transforms the accuracy of scale is {:.2f}. Without the independence term DCI is {:.2f}",
        [
            (SPACES, "mean(r['scores']['scale']['scale'] for r in rows if r['mode'] == 'pixels')"),
            (SPACES, "mean(r['dci']['disentanglement'] for r in rows if r['ablation'] == 'no independence')"),
        ],
    ),
    ("{:.0f} (224px) and {:.0f} (64px) times as many views per second as kornia", [views("kornia", "cuda", 224), views("kornia", "cuda", 64)]),
    ("on 2 CPU cores {:.1f} and {:.1f} times", [views("kornia", "cpu", 224), views("kornia", "cpu", 64)]),
    (
        "{:.2f} (64px, cached) and {:.2f} (224px, from JPEG files) of the same step",
        [training("64px Parquet, cached", "with styles", "ratio"), training("224px JPEG files", "with styles", "ratio")],
    ),
    (
        "{:.1f} times lightly where both decode at every step (64px), {:.1f} times at 224px",
        [training("64px Parquet, streamed", None, "times_lightly"), training("224px JPEG files", None, "times_lightly")],
    ),
]  # fmt: skip
CLAIMS = [Claim("README.md", text, numbers) for text, numbers in README]
