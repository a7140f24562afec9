"""The sensitivity matrix: how much each space changes when the parameters of one group change. It needs no labels.

    S[space, group] = mean ‖z(v) − z(v′)‖² / mean ‖z(v) − z(w)‖²

    v: a view; v′: a view of the same image that differs in this group alone; w: a view of another image

0 is invariant; 1 is a change as large as that to another image.

Legend: n images, d dimensions.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from unweave.augment import Views
from unweave.errors import UnweaveError


@torch.no_grad()
def sensitivity(
    model: nn.Module,
    views: Views,
    images: Tensor,
    *,
    normalize: Callable[[Tensor], Tensor] | None = None,
    batch_size: int = 256,
    seed: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, dict[str, float]]:
    """The sensitivity of every space to every group of ``views``, on the given images.

    Wanted: content near 0 for every group; each style space large for its own group and near 0 for the others.

    Args:
        model: a model that ``uw.load`` returned, or an encoder that maps views to embeddings by space.
        views: the groups of transforms.
        images: (n, c, h, w), from which views are made: at least two, better hundreds, and not those of training.
        normalize: the geometry of the loss (``base.normalize``); by default the model's, if it has one.
        batch_size: images that pass through the network at a time.
        seed: of the parameters of the views.
        on_progress: called with the number of images of each batch that is done.

    Examples:
        >>> import unweave as uw, unweave.augment as A
        >>> views = uw.Views({"flip": [A.RandomHorizontalFlip()]})
        >>> class Mean(torch.nn.Module):
        ...     def forward(self, images):
        ...         return {"content": images.mean((2, 3))}
        >>> found = sensitivity(Mean(), views, torch.rand(8, 3, 4, 4))
        >>> round(found["content"]["flip"], 6)
        0.0
    """
    if len(images) < 2:
        raise UnweaveError(f"`images`: at least 2 are needed for the distance between images, not {len(images)}")
    encoder = getattr(model, "encoder", model)
    normalize = normalize or getattr(model, "normalize", None) or _unchanged
    device = next((p.device for p in encoder.parameters()), images.device)
    was_training = encoder.training
    encoder.eval()
    found: dict[str, dict[str, float]] = {}
    for number, group in enumerate(views.groups):
        generator = torch.Generator().manual_seed(seed * 1009 + number)
        first: dict[str, list[Tensor]] = {}
        second: dict[str, list[Tensor]] = {}
        for batch in images.split(batch_size):
            pair = views.differing(batch.to(device), group, generator=generator)
            for side, view in zip((first, second), pair, strict=True):
                for space, z in encoder(view).items():
                    side.setdefault(space, []).append(z.float())
                if on_progress:
                    on_progress(len(view))
        for space in first:
            a, b = normalize(torch.cat(first[space])), normalize(torch.cat(second[space]))
            found.setdefault(space, {})[group] = _ratio(a, b)
    encoder.train(was_training)
    return {space: row for space, row in found.items() if space != "h"}


def _ratio(a: Tensor, b: Tensor) -> float:
    """Mean squared distance between rows of a and b, relative to that between different rows of a."""
    within = (a - b).square().sum(1).mean()
    between = 2 * a.var(0, correction=1).sum()  # the mean over pairs of different rows
    return float(within / between.clamp(min=torch.finfo(a.dtype).tiny))


def _unchanged(z: Tensor) -> Tensor:
    return z
