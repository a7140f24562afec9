"""``figure.svg`` and ``README.md`` of the numerical experiment: the paper's claim beside what was measured."""

from pathlib import Path

from rich.console import Console

from unweave.experiments.report import save_svg
from unweave.experiments.table import Row, Table, markdown

COLORS = {"content_r2": "#7b3fe4", "style_r2": "#e8760c"}


def write_report(out: Path, table: Table) -> None:
    """Both files, and a line for each setting and weight on the terminal."""
    draw(out / "figure.svg", table.rows)
    (out / "README.md").write_text(readme(table))
    console = Console()
    for (setting, weights), rows in grouped(table.rows).items():
        line = ", ".join(
            f"{size}: {mean(rows, size, 'content_r2'):.2f}/{mean(rows, size, 'style_r2'):.2f}" for size in sizes(rows)
        )
        console.print(f"{setting}, {weights} λ, content/style r² by size: {line}", soft_wrap=True)


def grouped(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """By setting and weights, in the order of the rows."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["setting"], row["weights"]), []).append(row)
    return groups


def sizes(rows: list[Row]) -> list[int]:
    """Of the embeddings."""
    return sorted({row["dim_z"] for row in rows})


def mean(rows: list[Row], size: int, name: str) -> float:
    """Over seeds."""
    values = [row[name] for row in rows if row["dim_z"] == size]
    return float(sum(values) / len(values))


def readme(table: Table) -> str:
    """The paper's claims, what was measured, and the numbers behind it."""
    groups = grouped(table.rows)
    lines = [
        "# Only content, whatever the size of the embedding",
        "",
        "Section 5.1 of Eastwood et al., on latent-variable data (dim(c) = dim(s) = 5). Written by the command below.",
        "",
        "![r² of content and style against the size of the embedding](figure.svg)",
        "",
        "| the paper | measured |",
        "|---|---|",
        *(f"| {claim} | {found} |" for claim, found in claims(groups)),
        "",
        "## r², mean over seeds (least – most)",
        "",
        "Kernel ridge on fresh data. *Floor*: what true content alone tells of style.",
        "",
    ]
    header = ["setting", "λ", "of", *(str(size) for size in sizes(table.rows)), "floor"]
    body = []
    for (setting, weights), rows in groups.items():
        for name in ("content_r2", "style_r2"):
            cells = [spread(rows, size, name) for size in sizes(table.rows)]
            floor = f"{sum(row['style_floor'] for row in rows) / len(rows):.2f}" if name == "style_r2" else ""
            body.append([setting, weights, name.removesuffix("_r2"), *cells, floor])
    lines += [*markdown(header, body), "", *barely_perturbed(table.rows), *table.provenance_lines()]
    return "\n".join(lines) + "\n"


def spread(rows: list[Row], size: int, name: str) -> str:
    """Mean, and the range over seeds."""
    values = [row[name] for row in rows if row["dim_z"] == size]
    if not values:
        return ""
    return f"{sum(values) / len(values):.3f} ({min(values):.2f} – {max(values):.2f})"


def claims(groups: dict[tuple[str, str], list[Row]]) -> list[tuple[str, str]]:
    """Sentences of the paper, and the numbers that bear on them."""
    found = []
    for setting in dict.fromkeys(name for name, _ in groups):
        fixed, adapted = groups[setting, "fixed"], groups[setting, "adapted"]
        small, large = min((s for s in sizes(fixed) if s >= 5), default=sizes(fixed)[0]), sizes(fixed)[-1]
        found.append((
            f"{setting}: with fixed λ, excess room fills with style",
            f"style r² rises from {mean(fixed, small, 'style_r2'):.3f} at size {small} to "
            f"{mean(fixed, large, 'style_r2'):.3f} at {large}",
        ))  # fmt: skip
        style, floor = max((mean(adapted, s, "style_r2"), mean(adapted, s, "style_floor")) for s in sizes(adapted))
        least = min(mean(adapted, s, "content_r2") for s in sizes(adapted) if s >= small)
        found.append((
            f"{setting}: with adapted λ, only content is recovered",
            f"style r² at most {abs(style):.3f}, content alone tells {floor:.3f}; content r² at least {least:.3f}",
        ))  # fmt: skip
    return found


def barely_perturbed(rows: list[Row]) -> list[str]:
    """Where the assumption behind it all, that perturbation reaches every style, is nearly broken."""
    weak = {(row["setting"], row["seed"]): row["least_perturbed"] for row in rows}
    cells = [[setting, str(seed), f"{share:.2g}"] for (setting, seed), share in weak.items() if share < 0.01]
    if not cells:
        return []
    return [
        "## Style that is hardly perturbed",
        "",
        "To tell content from style, an embedding must see style differ between two views. In these worlds there is a",
        "direction of style in which the two views differ by less than a hundredth of what two samples do (squared",
        "distances): content in all but name. The smaller the share, the larger λ would have to be to drive it out.",
        "",
        *markdown(["setting", "seed", "share"], cells),
        "",
    ]


def draw(path: Path, rows: list[Row]) -> None:
    """r² against the size of the embedding; a panel a setting, every seed a dot."""
    from matplotlib.figure import Figure

    groups = grouped(rows)
    settings = list(dict.fromkeys(setting for setting, _ in groups))
    drawing = Figure(figsize=(3.6 * len(settings) + 0.6, 3.4), layout="constrained")
    axes = drawing.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    for axis, setting in zip(axes, settings, strict=True):
        for weights, style in (("fixed", "--"), ("adapted", "-")):
            mine = groups[setting, weights]
            for name, color in COLORS.items():
                label = f"{name.removesuffix('_r2')}, {weights} λ"
                line = [mean(mine, size, name) for size in sizes(mine)]
                axis.plot(sizes(mine), line, style, color=color, label=label)
                axis.plot([r["dim_z"] for r in mine], [r[name] for r in mine], ".", color=color, ms=3, alpha=0.5)
        floor = [row["style_floor"] for row in rows if row["setting"] == setting]
        axis.axhline(sum(floor) / len(floor), color="#999", lw=0.8, ls=":")
        axis.axvline(5, color="#ccc", lw=0.8)
        axis.set_title(setting)
        axis.set_xlabel("size of the embedding")
    axes[0].set_ylabel("r²")
    axes[0].legend(fontsize=8)
    save_svg(drawing, path)
