"""The numbers on our pages, as expressions over the results they come from.

``text`` is on ``page`` with the values of ``numbers``, pairs of a file and an expression over its ``data`` or ``rows``.
"""

from dataclasses import dataclass

NUMERICAL, THEOREM = "results/numerical/table.json", "results/identifiability/table.json"
SPRITES, SPACES = "results/sprites/table.json", "results/sprite-spaces/table.json"
VIEWS, STEP, TRAINING = (f"results/benchmarks/{name}.json" for name in ("views", "step", "training"))
FIRST_VIEWS, FIRST_TRAINING = (f"results/benchmarks/{name}.json" for name in ("views-first-host", "training-first-run"))


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


def views(device, size, file=VIEWS):
    """How many times kornia's rate ours is."""

    def rate(name):
        chosen = f"r['library'] == '{name}' and r['device'] == '{device}' and r['size'] == {size}"
        return f"mean(r['views_per_second'] for r in rows if {chosen})"

    return file, f"{rate('unweave')} / {rate('kornia')}"


def training(name, part, key, file=TRAINING):
    value = f"r['{part}']['{key}']" if part else f"r['{key}']"
    return file, f"mean({value} for r in rows if r['name'] == '{name}')"


def demo(space, factor, seed, minus_chance=False):
    value = f"data['scores']['{space}']['{factor}']"
    return f"results/demo/seed{seed}.json", f"{value} - data['chance']['{factor}']" if minus_chance else value


PROBES, FAULTS = "results/benchmarks/probes.json", "results/benchmarks/faults.json"


def probes_row(task, images, digits):
    """Seconds of unweave on 2 cores and on the GPU, those of scikit-learn, and how many times faster ours are."""

    def seconds(library, device, key="seconds"):
        chosen = f"r['library'] == '{library}' and r['device'] == '{device}' and r['problem'].startswith('{task},')"
        return PROBES, f"mean(r['{key}'] for r in rows if {chosen})"

    label = "cub-box (ridge)" if task == "cub-box" else task
    text = f"| {label} | {images} | {{:.1f}} | {{:.2f}} | {{:.{digits}f}} | {{:.0f}} | {{:.0f}} |"
    ours = [seconds("unweave", "cpu"), seconds("unweave", "cuda"), seconds("scikit-learn", "cpu")]
    return text, [*ours, seconds("unweave", "cpu", "times_faster"), seconds("unweave", "cuda", "times_faster")]


def faults_row(text, campaign):
    chosen = f"[r for r in rows if r['campaign'] == '{campaign}'][0]"
    return f"| {text} | {{:,d}} | {{:d}} |", [(FAULTS, f"{chosen}['trials']"), (FAULTS, f"{chosen}['failures']")]


SEARCH, EXPLORE, EMBED = (f"results/benchmarks/{name}.json" for name in ("search", "explore", "embed"))


def search_row(store, rows, label):
    chosen = f"[r for r in rows if (r['store'], r['rows']) == ('{store}', {rows})][0]"
    text = f"| {store} | {label} | {{:.0f}} | {{:.0f}} | {{:.2f}} | {{:.1f}} | {{:,.0f}} |"
    queries = [f"max(q['{key}'] for q in {chosen}['queries'])" for key in ("milliseconds", "milliseconds_p95")]
    worst = f"min(q['recall'] for q in {chosen}['queries'])"
    values = [*queries, worst, f"{chosen}['build_seconds']", f"{chosen}['megabytes']"]
    return text, [(SEARCH, value) for value in values]


def small_images(function, key):
    return EMBED, f"{function}(r['{key}'] for r in rows if r['size'] == 64)"


def probes_range(function, device):
    return PROBES, f"{function}(r['times_faster'] for r in rows if r['device'] == '{device}' and 'times_faster' in r)"


def faults(*campaigns):
    return FAULTS, f"sum(r['trials'] for r in rows if r['campaign'] in {campaigns} and r['failures'] == 0)"


def precision(number, feature, file="retrieval"):
    return f"results/benchmarks/{file}.json", f"rows[{number}]['scores']['{feature}']['precision_at_10']"


README = [
    (
        "same color of flowers {:.2f} against {:.2f} and of cars {:.2f} against {:.2f}, same box of birds {:.2f} "
        "against {:.2f}, same planted appearance {:.2f} against {:.2f}",
        [
            precision(number, feature)
            for number, own in ((7, "appearance"), (8, "appearance"), (6, "spatial"), (1, "appearance"))
            for feature in (own, "h")
        ],
    ),
    (
        "all spaces but appearance: same photograph in another appearance {:.2f} against {:.2f}",
        [precision(0, feature, "retrieval-32px") for feature in ("all but appearance", "h")],
    ),
    (
        "same species {:.3f} against {:.3f}, same photograph in another appearance {:.2f} against {:.2f}",
        [precision(number, feature) for number in (5, 0) for feature in ("content", "h")],
    ),
    (
        "whitened, {:.3f} against {:.3f} for a photograph whatever its style",
        [precision(4, feature, "retrieval-32px") for feature in ("content", "h")],
    ),
    (
        "5 folds: {:.0f} to {:.0f} times as fast as scikit-learn on 2 cores, {:.0f} to {:.0f} times on an H200",
        [probes_range(f, device) for device in ("cpu", "cuda") for f in ("min", "max")],
    ),
    (
        "{:d} runs killed or stopped at random moments resume to the same weights; {:,d} damaged files",
        [faults("kills", "terminations"), faults("images", "run_files")],
    ),
    ("with seed 0, the default, hue from color is {:.2f}", [demo("color", "color", 0)]),
    ("shape (accuracy {:.2f}), color hue ({:.2f})", [demo("content", "shape", 21), demo("color", "color", 21)]),
    (
        "spatial position (r² {:.2f}); shape from spatial {:.2f} at most (chance {:.2f}), hue from content {:.2f}",
        [
            demo("spatial", "y", 23),
            demo("spatial", "shape", 21),
            ("results/demo/seed23.json", "data['chance']['shape']"),
            demo("content", "color", 21, minus_chance=True),
        ],
    ),
    (
        "50 dimensions: style r² {:.2f} with fixed λ, {:.2f} with adapted λ; content r² {:.3f} and {:.3f}",
        [
            at_50("fixed", "style_r2"),
            at_50("adapted", "style_r2"),
            at_50("fixed", "content_r2"),
            at_50("adapted", "content_r2"),
        ],
    ),
    (
        "with statistical dependence style r² is still up to {:.2f}, content r² {:.2f}",
        [over_sizes("max", "style_r2", "statistical"), over_sizes("min", "content_r2", "statistical")],
    ),
    (
        "worst of {:d} runs: content r² {:.3f}, own style {:.3f}, leak {:.3f}",
        [
            (THEOREM, f"len([r for r in rows if {UP_TO_4}])"),
            theorem("min", "content_r2"),
            theorem("min", "diagonal"),
            theorem("max", "leak"),
        ],
    ),
    (
        "8 styles: own style down to {:.2f}",
        [theorem("min", "diagonal", f"{OURS} and r['setting'] in ('a', 'b') and r['styles'] == 8")],
    ),
    (
        "holds up to 4 styles (r² {:.2f} against {:.2f}), reversed with 8 ({:.2f} against {:.2f})",
        [
            conjecture("exogenous", "<= 4"),
            conjecture("diagonal", "<= 4"),
            conjecture("exogenous", "== 8"),
            conjecture("diagonal", "== 8"),
        ],
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
        [
            clean("raw"),
            clean("noisy"),
            clean("standardised"),
            clean(None, RELEASED),
            (SPRITES, f"len([r for r in rows if {RELEASED}])"),
        ],
    ),
    (
        "{:d} of 3 seeds: every space predicts its own factor (at least {:.2f}), every other factor at most {:.2f} "
        "above chance; DCI disentanglement {:.2f}",
        [
            (SPACES, f"len([r for r in rows if {SIX}])"),
            (SPACES, f"min(r['scores'][s][f] for r in rows if {SIX} for s, f in {OWN}.items())"),
            (
                SPACES,
                f"max(v - r['chance'][f] for r in rows if {SIX} for s, d in r['scores'].items() for f, v in d.items() "
                f"if {OWN}[s] != f)",
            ),
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
    (
        "{:.0f} to {:.0f} (224px) and {:.0f} to {:.0f} (64px) times as many views per second as kornia",
        [views("cuda", 224, FIRST_VIEWS), views("cuda", 224), views("cuda", 64, FIRST_VIEWS), views("cuda", 64)],
    ),
    ("on 2 CPU cores {:.1f} and {:.1f} times", [views("cpu", 224), views("cpu", 64)]),
    (
        "{:.2f} (64px, cached) and {:.2f} (224px, from JPEG files) of the same step",
        [
            training("64px Parquet, cached", "with styles", "ratio"),
            training("224px JPEG files", "with styles", "ratio", FIRST_TRAINING),
        ],
    ),
    (
        "{:.1f} to {:.1f} times lightly where both decode at every step (64px), {:.1f} times at 224px",
        [
            training("64px Parquet, streamed", None, "times_lightly", FIRST_TRAINING),
            training("64px Parquet, streamed", None, "times_lightly"),
            training("224px JPEG files", None, "times_lightly", FIRST_TRAINING),
        ],
    ),
]


def rate(library, device, size):
    chosen = f"r['library'] == '{library}' and r['device'] == '{device}' and r['size'] == {size}"
    return VIEWS, f"mean(r['views_per_second'] for r in rows if {chosen})"


def views_row(title, device, size):
    return f"| {title} | {size} px | {{:,.0f}} | {{:,.0f}} | {{:,.0f}} |", [
        rate(library, device, size) for library in ("unweave", "kornia", "torchvision")
    ]


def training_row(title, name, file=TRAINING):
    return f"| {title} | {{:,.0f}} | {{:.2f}} | {{:,.0f}} | {{:,.0f}} | {{:.1f}} |", [
        training(name, "with styles", "images_per_second", file),
        training(name, "with styles", "ratio", file),
        training(name, "without styles", "images_per_second", file),
        training(name, None, "lightly_simclr_images_per_second", file),
        training(name, None, "times_lightly", file),
    ]


def step(size, key):
    return STEP, f"mean(r['{key}'] for r in rows if r['size'] == {size})"


TRANSFER = "results/transfer/table.json"
TUNING = "results/transfer/tuning.json"
THREE_HEADS = "SimCLR three heads"
PER_SPACE = "SimCLR + per-space entropy"
FINE_TUNED = {"model": "SimCLR + Ours-FT", "base": "SimCLR continued"}
OURS_ON_PHOTOGRAPHS = "r['model'] == 'SimCLR + Ours-Scratch'"


def transfer(column, features="z", model="SimCLR + Ours-Scratch"):
    """A mean over seeds, in points."""
    chosen = f"r['model'] == '{model}' and r['features'] == '{features}'"
    return f"100 * mean(r['{column}'] for r in rows if {chosen})"


def paired_rows(features="z", model="SimCLR + Ours-Scratch", base="SimCLR", base_features=None):
    """Rows r of a model and q of its base, for every seed that both have."""
    own = f"r['model'] == '{model}' and r['features'] == '{features}'"
    other = f"q['model'] == '{base}' and q['features'] == '{base_features or features}' and q['seed'] == r['seed']"
    return f"for r in rows for q in rows if {own} and {other}"


def paired_gain(column, *which, **named):
    """The differences of two models for every seed that both have."""
    return f"r['{column}'] - q['{column}'] {paired_rows(*which, **named)}"


def gain_without_position():
    """The mean difference of z, in points, over all tasks but boxes and key points."""
    tasks = "[t for t in r['tasks'] if t not in ('cub-box', 'cub-keypoints')]"
    return TRANSFER, f"100 * mean(mean(r['tasks'][t] - q['tasks'][t] for t in {tasks}) {paired_rows()})"


def gain(*which, sign=1, **named):
    """The mean of those differences, in points."""
    return TRANSFER, f"{100 * sign} * mean({paired_gain(*which, **named)})"


def gain_half_width(*which, **named):
    """Of the 95% interval of that mean."""
    return TRANSFER, f"100 * half_width({paired_gain(*which, **named)})"


def class_share(space, model="SimCLR + Ours-Scratch"):
    """The accuracy of classes from a style space, divided by content's."""
    content = transfer("pretraining_top1", "content", model)
    return TRANSFER, f"({transfer('pretraining_top1', space, model)}) / ({content})"


def photograph_sensitivity(function, wanted):
    """The smallest or largest entry of the sensitivity matrix, a mean over seeds, of these spaces s and groups g."""
    entry = f"mean(r['sensitivity'][s][g] for r in rows if {OURS_ON_PHOTOGRAPHS} and r['features'] == 'z')"
    spaces, groups = "('content', 'spatial', 'appearance')", "('spatial', 'appearance')"
    return TRANSFER, f"{function}({entry} for s in {spaces} for g in {groups} if {wanted})"


def default_sensitivity(name, space, group):
    """Of the defaults, on photographs that were not used to choose them."""
    return f"results/defaults/{name}/report.json", f"data['sensitivity']['{space}']['{group}']"


def trial_scores(model):
    """The averages of z of a model's trials, in points."""
    return f"[100 * r['scores']['z']['average'] for r in rows if r['model'] == '{model}']"


RETRIEVAL_ROWS = [
    (0, "planted appearances | same photograph | content"),
    (1, "planted appearances | same appearance | appearance"),
    (2, "planted framings | same photograph | content"),
    (3, "planted framings | same framing | spatial"),
    (4, "planted both | same photograph, other appearance | mix {:.3f}"),
    (5, "CUB | same species | content"),
    (6, "CUB | same box | spatial"),
    (7, "Flowers | same color | appearance"),
    (8, "Cars | same color | appearance"),
]


SMALL_RETRIEVAL = "results/benchmarks/retrieval-32px.json"
SMALL_RETRIEVAL_ROWS = [
    (0, "planted appearances | same photograph | all but appearance"),
    (1, "planted appearances | same appearance | appearance"),
    (2, "planted framings | same photograph | all but spatial"),
    (3, "planted framings | same framing | spatial"),
    (4, "planted styles | same photograph | content"),
    (5, "planted both | same photograph, other appearance | mix"),
    (6, "CUB | same species | content"),
    (7, "CUB | same box | spatial"),
    (8, "Flowers | same color | appearance"),
    (9, "Cars | same color | appearance"),
]


CONTENT_BESIDE_WHITENED_H = [
    [precision(number, feature)[1] for feature in ("h, whitened", "content")] for number in (4, 6)
]


def small_retrieval_row(number, text):
    """Of two runs: the question's own features, h, and h whitened."""
    own = text.rpartition("| ")[2].replace("mix", "like content, unlike appearance")
    columns = [(own, "defaults"), ("h", "defaults"), ("h, whitened", "defaults")]
    columns += [(own, "loose"), ("h", "loose"), ("h, whitened", "loose")]
    columns += [(name, "defaults") for name in ("baseline z", "baseline h", "color histogram", "chance")]
    files = {"defaults": "retrieval-32px", "loose": "retrieval-32px-loose"}
    return f"| {text} |" + " {:.3f} |" * len(columns), [precision(number, name, files[run]) for name, run in columns]


def retrieval_row(number, text):
    columns = ("content", "spatial", "appearance", "h", "baseline z", "baseline h", "color histogram", "chance")
    mix = ("like content, unlike appearance",) if "mix" in text else ()
    return f"| {text} |" + " {:.3f} |" * len(columns), [precision(number, name) for name in (*mix, *columns)]


BENCHMARKS = [
    probes_row("pets", "3,680", 0),
    probes_row("flowers", "2,040", 0),
    probes_row("caltech101", "3,030", 0),
    probes_row("dtd", "800", 0),
    probes_row("cub-box", "5,994", 1),
    faults_row("SIGKILL at a random moment; the run resumes to the same weights", "kills"),
    faults_row("SIGTERM at a random moment", "terminations"),
    faults_row("a damaged image", "images"),
    faults_row("a damaged file of a run", "run_files"),
    faults_row("hostile file names", "names"),
    faults_row("wrong flags", "flags"),
    *(retrieval_row(*row) for row in RETRIEVAL_ROWS),
    *(small_retrieval_row(*row) for row in SMALL_RETRIEVAL_ROWS),
    (
        "for *same framing* in precision only, not in mAP ({:.3f} and {:.3f})",
        [(SMALL_RETRIEVAL, f"rows[3]['scores']['{name}']['map']") for name in ("spatial", "h")],
    ),
    (
        "changed, by {:.3f} ± {:.3f}, and level with it at the species; if h is whitened too, it is ahead of content "
        "by {:.3f} and {:.3f}",
        [
            (SMALL_RETRIEVAL, "rows[4]['ahead_of']['h']['precision_at_10']"),
            (SMALL_RETRIEVAL, "rows[4]['ahead_of']['h']['precision_at_10_standard_error']"),
            *((SMALL_RETRIEVAL, f"{whitened_h} - {content}") for whitened_h, content in CONTENT_BESIDE_WHITENED_H),
        ],
    ),
    search_row("exact", 100_000, "100,000"),
    search_row("exact", 1_000_000, "1,000,000"),
    search_row("lance", 100_000, "100,000"),
    search_row("lance", 1_000_000, "1,000,000"),
    search_row("qdrant", 100_000, "100,000"),
    (
        "search is {:.0f} ms where each user pauses for a second, and {:.0f} ms without pauses",
        [(EXPLORE, f"rows[{i}]['search']['p95_ms']") for i in (0, 1)],
    ),
    (
        "{:.2f} to {:.2f} of the rate of decoding alone, and {:.2f} to {:.2f} of the rate of decoding",
        [small_images(f, key) for key in ("of_decoding", "of_both") for f in ("min", "max")],
    ),
    views_row("NVIDIA H200", "cuda", 224),
    views_row("NVIDIA H200", "cuda", 64),
    views_row("2 CPU cores", "cpu", 224),
    views_row("2 CPU cores", "cpu", 64),
    training_row("64 px, Parquet, cached", "64px Parquet, cached"),
    training_row("64 px, Parquet, streamed", "64px Parquet, streamed"),
    training_row("224 px, JPEG files, streamed (first run)", "224px JPEG files", FIRST_TRAINING),
    (
        "{:.0f} times as many views at 224 px here and {:.0f} times as many on another host, {:.0f} and {:.0f} times "
        "at 64 px",
        [views("cuda", 224), views("cuda", 224, FIRST_VIEWS), views("cuda", 64), views("cuda", 64, FIRST_VIEWS)],
    ),
    (
        "The ratio is {:.2f} for a ResNet-50 at 224 px (batch 256, {:.3f} s) and {:.2f} for a ResNet-18 at 64 px "
        "(batch 1024, {:.3f} s)",
        [step(224, "ratio"), step(224, "step_seconds"), step(64, "ratio"), step(64, "step_seconds")],
    ),
    ("had {:.1f} times", [training("64px Parquet, streamed", None, "times_lightly", FIRST_TRAINING)]),
]
RESULTS = [
    (
        "{:.1f} against {:.1f} points on average, most of all on boxes and key points ({:.1f} against {:.1f}); without "
        "these two tasks the difference is {:.1f} points",
        [
            *(
                (TRANSFER, transfer(column, model=model))
                for column in ("average", "spatial")
                for model in ("SimCLR + Ours-Scratch", "SimCLR")
            ),
            gain_without_position(),
        ],
    ),
    ("here h gains {:.1f}", [gain("average", "h")]),
    (
        "Fine-tuned from SimCLR z is {:.1f} ± {:.1f} points ahead of SimCLR trained for as long, its h {:.2f} ± {:.2f} "
        "behind",
        [
            gain("average", **FINE_TUNED),
            gain_half_width("average", **FINE_TUNED),
            gain("average", "h", **FINE_TUNED, sign=-1),
            gain_half_width("average", "h", **FINE_TUNED),
        ],
    ),
    (
        "it should be invariant to (sensitivity of content at most {:.3f}, of styles at most {:.3f}",
        [photograph_sensitivity("max", "s == 'content'"), photograph_sensitivity("max", "s not in ('content', g)")],
    ),
    ("with {:.2f} of content's accuracy. One entropy", [class_share("appearance")]),
    (
        "transfers as well (−{:.1f} ± {:.1f} points, 2 seeds), and classes are predicted from its spatial space with "
        "{:.2f} in place of {:.2f}",
        [
            gain("average", base=PER_SPACE, sign=-1),
            gain_half_width("average", base=PER_SPACE),
            class_share("spatial", PER_SPACE),
            class_share("spatial"),
        ],
    ),
    (
        "our z is +{:.1f} ± {:.1f} points ahead of that h",
        [gain("average", base_features="h"), gain_half_width("average", base_features="h")],
    ),
    (
        "its z is {:.1f} points ahead of SimCLR's on that seed, ours {:.1f} points ahead of it",
        [gain("average", model=THREE_HEADS), gain("average", base=THREE_HEADS)],
    ),
    (
        "SimCLR had {:d} tuning trials, ours {:d}: on validation images 4 of ours reach {:.1f} in expectation, "
        "SimCLR's {:d} at best {:.1f}",
        [
            (TUNING, f"len({trial_scores('SimCLR')})"),
            (TUNING, f"len({trial_scores('SimCLR + Ours-Scratch')})"),
            (TUNING, f"mean(max(some) for some in combinations({trial_scores('SimCLR + Ours-Scratch')}, 4))"),
            (TUNING, f"len({trial_scores('SimCLR')})"),
            (TUNING, f"max({trial_scores('SimCLR')})"),
        ],
    ),
    (
        "style r² {:.2f} at 50 dimensions, {:.2f} with fixed λ",
        [at_50("adapted", "style_r2"), at_50("fixed", "style_r2")],
    ),
    (
        "style is not fully removed (r² up to {:.2f}) and content r² is {:.2f}",
        [over_sizes("max", "style_r2", "statistical"), over_sizes("min", "content_r2", "statistical")],
    ),
    (
        "in the worst of {:d} runs with r² {:.3f} and {:.3f}",
        [(THEOREM, f"len([r for r in rows if {UP_TO_4}])"), theorem("min", "content_r2"), theorem("min", "diagonal")],
    ),
    ("within 0.05 of its floor in {:d} of 18 adapted runs", [clean(None)]),
    (
        "with unnormalised embeddings it is {:d} of 18, with 1% noise {:d}, standardised {:d}",
        [clean("raw"), clean("noisy"), clean("standardised")],
    ),
    (
        "scale fails (accuracy {:.2f})",
        [(SPACES, "mean(r['scores']['scale']['scale'] for r in rows if r['mode'] == 'pixels')")],
    ),
]
README += [
    (
        "where no pair shares a style, is {:.1f} points ahead of SimCLR",
        [gain("average", model=THREE_HEADS)],
    ),
    (
        "z {:.1f}, SimCLR {:.1f} (+{:.1f} ± {:.1f} points), without the tasks of position +{:.1f}; h +{:.1f} ± {:.1f}",
        [
            (TRANSFER, transfer("average")),
            (TRANSFER, transfer("average", model="SimCLR")),
            gain("average"),
            gain_half_width("average"),
            gain_without_position(),
            gain("average", "h"),
            gain_half_width("average", "h"),
        ],
    ),
    (
        "content at most {:.3f}, of styles to the other group at most {:.3f}, to their own at least {:.3f}",
        [
            photograph_sensitivity("max", "s == 'content'"),
            photograph_sensitivity("max", "s not in ('content', g)"),
            photograph_sensitivity("min", "s == g"),
        ],
    ),
    ("predicts classes with {:.2f} of content's accuracy", [class_share("appearance")]),
]
PRESETS = [
    (
        "CIFAR-10 {:.1f} % and Caltech-101 {:.1f} % by linear probes of z",
        [
            (
                TRANSFER,
                f"100 * mean(r['tasks']['{task}'] for r in rows if {OURS_ON_PHOTOGRAPHS} and r['features'] == 'z')",
            )
            for task in ("cifar10", "caltech101")
        ],
    ),
    (
        "content {:.2f} and {:.2f}, spatial {:.2f} and {:.2f}, appearance {:.2f} and {:.2f}",
        [
            photograph_sensitivity("max", f"s == '{space}' and g == '{group}'")
            for space in ("content", "spatial", "appearance")
            for group in ("spatial", "appearance")
        ],
    ),
    *(
        (
            "content {:.2f} and {:.2f}, spatial {:.2f} and {:.2f}, appearance {:.2f} and {:.2f}" + end,
            [
                default_sensitivity(name, space, group)
                for space in ("content", "spatial", "appearance")
                for group in ("spatial", "appearance")
            ],
        )
        for name, end in (("pets-flowers-cars", "; of birds"), ("cub", '",'))
    ),
]
OWN_IMAGES = [("content's sensitivity to spatial is {:.4f}", [default_sensitivity("cub", "content", "spatial")])]
CLAIMS = [
    Claim(page, text, numbers)
    for page, claims in (
        ("README.md", README),
        ("docs/benchmarks.md", BENCHMARKS),
        ("docs/results.md", RESULTS),
        ("docs/guides/own-images.md", OWN_IMAGES),
        ("src/unweave/pretraining/presets.py", PRESETS),
    )
    for text, numbers in claims
]
