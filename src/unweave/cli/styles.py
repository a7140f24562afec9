"""``unweave styles``."""

from pathlib import Path
from typing import Annotated

import tyro

from unweave.augment.config import STYLES


def styles(
    photo: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="PHOTO")] = None,
    /,
    *,
    out: Path = Path("unweave-styles.html"),
) -> None:
    """List the styles that `unweave train --styles` accepts, and write a page with pictures of each.

    Args:
        photo: A photograph to show them on; by default one that comes with scikit-learn.
        out: The page.
    """
    for name, transforms in STYLES.items():
        print(f"{name:12}{', '.join(transforms)}")
    from unweave.files import make_writable_folder
    from unweave.report.styles import write_styles_page

    make_writable_folder(out.parent)
    write_styles_page(out, photo)
    print(f"pictures: {out}")
