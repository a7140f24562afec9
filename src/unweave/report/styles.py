"""A page that shows the stock styles on a photograph."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unweave.augment.config import STYLES, ViewsConfig
from unweave.data.decode import decode
from unweave.data.sources.base import Encoded
from unweave.data.unreadable import UnreadableImageError
from unweave.errors import UnweaveError
from unweave.report.figures import as_png, image_grid
from unweave.report.templates import render

SIZE, COLUMNS = 96, 8


def write_styles_page(out: Path, photo: Encoded | None = None) -> None:
    """Writes an HTML page with views of a photograph that differ in one style alone, for each stock style."""
    image = _load(photo)
    styles = [
        {"name": name, "transforms": ", ".join(parts), "picture": _picture(image, name)}
        for name, parts in STYLES.items()
    ]
    out.write_text(render(Path(__file__).with_name("styles.html"), styles=styles), encoding="utf-8")


def style_views(image: Tensor, name: str, columns: int = COLUMNS) -> Tensor:
    """The image (c, h, w) and views of it that only this style changes: (columns, c, h, w) in [0, 1]."""
    from unweave.augment import Views

    config = ViewsConfig(styles=(name,), size=SIZE, blur=(1.0, 1.0), solarize=(0.5, 0.5))
    views = config.build()
    transforms = views.transforms(name)
    repeated = image.expand(columns - 1, *image.shape)
    changed = Views({}, ungrouped=transforms)(repeated, generator=torch.Generator().manual_seed(0)).a
    if changed.shape[-1] != SIZE:
        changed = torch.nn.functional.interpolate(changed, (SIZE, SIZE), mode="bilinear", antialias=True)
    return torch.cat([image[None].float() / 255, changed])


def _load(photo: Encoded | None) -> Tensor:
    if photo is None:
        from sklearn.datasets import load_sample_images

        flower = load_sample_images().images[1]
        photo = _from_array(flower)
    try:
        return torch.from_numpy(decode(photo, SIZE).copy()).permute(2, 0, 1)
    except UnreadableImageError as error:
        raise UnweaveError(f"the photograph cannot be read: {error}") from None


def _from_array(pixels: Any) -> Any:
    from PIL import Image

    return Image.fromarray(pixels)


def _picture(image: Tensor, name: str) -> str:
    return as_png(image_grid(style_views(image, name)[None]))
