"""What ``unweave embed`` does, from names on a command line to a file."""

from pathlib import Path

import torch
from rich.console import Console

from unweave.data.source import open_source
from unweave.errors import UnweaveError
from unweave.inference.embed import embed_images
from unweave.inference.model import load
from unweave.training.metrics import ProgressBar


def embed_data(
    run: Path,
    data: str,
    out: Path,
    columns: dict[str, str | None],
    *,
    batch_size: int = 256,
    workers: int | None = None,
    max_bad: float = 0.01,
    device: str = "auto",
) -> None:
    """Embeds DATA by the model of RUN; ``columns`` are ``open_source``'s settings."""
    if batch_size < 1:
        raise UnweaveError(f"--batch-size must be at least 1, not {batch_size}")
    source = open_source(data, **columns)
    model = load(run)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    with ProgressBar(len(source), 0, "embedding", show=True, step="image") as bar:
        skipped = embed_images(
            model, source, out, batch_size=batch_size, device=device, workers=workers, max_bad=max_bad,
            watch=bar.advance,
        )  # fmt: skip
    say = Console(stderr=True, soft_wrap=True, highlight=False)
    say.print(f"{len(source) - len(skipped):,} images in {out}: h, {', '.join(model.spaces)}")
    for name, reason in list(skipped.reasons.items())[:10]:
        say.print(f"skipped {name}: {reason}")
    if len(skipped) > 10:
        say.print(f"and {len(skipped) - 10} more")
