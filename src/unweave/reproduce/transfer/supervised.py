"""The upper end of the table: the same network trained with the labels of the pre-training images."""

from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unweave import PretrainConfig
from unweave.console import ProgressBar
from unweave.data import load_images, open_labelled
from unweave.evaluation import as_targets
from unweave.inference import SpacesModel, export_model
from unweave.reproduce.transfer.data import TransferData

SMOOTHING = 0.1
"""Label smoothing."""


def train_supervised(data: TransferData, config: PretrainConfig, folder: Path, *, progress: bool = True) -> None:
    """Minimises the cross-entropy of the classes on one view of each image, and exports the model to ``folder``."""
    if (folder / "model.json").exists():
        return
    part = open_labelled(data.pretraining).fit
    labels, device = as_targets(part.labels).values.to(data.device), data.images.device
    images = load_images(part.source, config.decode_size, device=device, workers=config.data.workers)
    views, training = config.views.build(), config.training
    torch.manual_seed(training.seed)
    encoder = config.build_encoder(views.spaces).to(device).to(memory_format=torch.channels_last)
    classifier = nn.Linear(encoder.feature_dim, int(labels.max()) + 1, device=device)
    optimizer = training.optim.build(nn.ModuleList([encoder, classifier]), training.batch_size)
    steps, generator = training.total_steps(len(labels)), torch.Generator(device).manual_seed(training.seed)
    order = list(islice(_shuffled(len(labels), training.batch_size, training.seed), steps))
    encoder.train()
    with ProgressBar(steps, 0, "supervised", show=progress) as bar:
        for step, (index, batch) in enumerate(zip(order, images.batches(order, device), strict=True)):
            for group in optimizer.param_groups:
                group["lr"] = training.optim.learning_rate(step, steps, training.batch_size)
            view = views(batch, generator=generator).a
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                logits = classifier(encoder(view.to(memory_format=torch.channels_last))["h"])
            loss = F.cross_entropy(logits.float(), labels[index.to(device)], label_smoothing=SMOOTHING)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                bar.show(loss.item())
            bar.advance(step + 1)
    export_model(SpacesModel(encoder.cpu(), views.preparation, (3, *[config.views.size] * 2)), folder, onnx=False)


def _shuffled(images: int, batch_size: int, seed: int) -> Iterator[Tensor]:
    """The numbers of the images of each batch, in another order in every epoch."""
    for epoch in count():
        order = torch.randperm(images, generator=torch.Generator().manual_seed(seed * 1009 + epoch))
        yield from order[: images - images % batch_size].split(batch_size)
