"""The evaluation of a run on photographs: on some labelled images, decoded when training begins."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from unweave.augment import Views
from unweave.data import load_images
from unweave.data.sources.base import MISSING, Source, Subset
from unweave.data.unreadable import UnreadableImages
from unweave.errors import UnweaveError
from unweave.evaluation import OnlineProbe
from unweave.pretraining.config import PretrainConfig

PROBED = 4000
"""Images on which spaces are evaluated during training."""


class DeferredProbe:
    """An ``OnlineProbe`` on some labelled images of a source; without scores where they are too few."""

    def __init__(
        self, source: Source, config: PretrainConfig, views: Views, every: int, say: Callable[[str], None]
    ) -> None:
        self.every = every
        self._source, self._config, self._views, self._say = source, config, views, say
        self._probe: OnlineProbe | None = None

    def prepare(self, device: torch.device) -> None:
        """Decodes the images, once."""
        if self._probe is not None:
            return
        data, labels = self._config.data, self._source.labels or []
        order = torch.randperm(len(self._source), generator=torch.Generator().manual_seed(1)).tolist()
        chosen = Subset(self._source, [i for i in order if labels[i] != MISSING][:PROBED])
        unreadable = UnreadableImages(len(chosen), 1.0)
        decoded = load_images(
            chosen,
            self._config.views.size,
            channels=data.channels,
            max_pixels=data.max_pixels,
            cache="ram",
            workers=data.workers,
            unreadable=unreadable,
        )
        kept = [i for i in range(len(chosen)) if i not in unreadable]
        known = torch.tensor(chosen.labels)[kept]
        if len(kept) < 20 or len(known.unique()) < 2:
            self._say(f"too few labelled images for a probe: {len(kept)} of {len(known.unique())} classes")
            return
        kind = self._config.evaluation.probe
        self._probe = OnlineProbe(decoded[torch.tensor(kept)], known, self._views, kind=kind, every=self.every)

    def __call__(self, encoder: nn.Module) -> dict[str, float]:
        """Accuracies by space."""
        return {} if self._probe is None else self._probe(encoder)


def make_probe(
    source: Source, config: PretrainConfig, views: Views, say: Callable[[str], None]
) -> DeferredProbe | None:
    """A probe on the images of ``source``, or on other ones where the settings name them; None without labels."""
    settings = config.evaluation
    if settings.probe == "none":
        return None
    steps_per_epoch = max(1, len(source) // config.training.batch_size)
    if settings.probe_data is not None:
        source = replace(config.data, root=None).open(settings.probe_data)
        if source.labels is None:
            raise UnweaveError(f"`probe_data` {settings.probe_data} has no labels")
    if source.labels is None:
        return None
    return DeferredProbe(source, config, views, settings.probe_every * steps_per_epoch, say)
