"""A trained run as a module: images in, h and the embedding in every space out."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unweave.augment import Transform
from unweave.augment._apply import prepare_images
from unweave.data.config import MAX_PIXELS
from unweave.data.decode import Decoder
from unweave.describe import CLASS, describe, rebuild
from unweave.errors import UnweaveError
from unweave.inference.inputs import Inputs, decoder_for, is_one_image
from unweave.inference.preprocessing import describe_preprocessing
from unweave.models import Encoder
from unweave.objectives import BaseMethod
from unweave.settings import require_number
from unweave.training.run_folder import RunFolder


class SpacesModel(nn.Module):
    """Images (n, c, h, w), uint8 or float in [0, 1], to ``{"h": …, "content": …, …}``.

    It prepares images as during training and encodes them. It is in evaluation mode and on the CPU at first.

    Args:
        encoder: maps prepared images to features by name.
        preparation: the transforms before the encoder, as ``views.preparation``.
        input_shape: the shape (c, h, w) of the encoder's input.
        description: of the encoder and the preparation, as a run's checkpoint holds it; by default made from them.

    Examples:
        >>> import unweave as uw, unweave.augment as A
        >>> encoder = uw.Encoder(uw.SmallConvNet(16), ("content",), dim=4)
        >>> model = SpacesModel(encoder, [A.Normalize((0.5,) * 3, (0.5,) * 3)], (3, 16, 16))
        >>> model(torch.zeros(2, 3, 16, 16, dtype=torch.uint8))["content"].shape
        torch.Size([2, 4])
    """

    def __init__(
        self,
        encoder: nn.Module,
        preparation: Sequence[Transform] = (),
        input_shape: Sequence[int] = (3, 224, 224),
        description: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.preparation = encoder, list(preparation)
        self.input_shape = _checked_shape(input_shape)
        for transform in self.preparation:
            if not isinstance(transform, Transform):
                raise UnweaveError(f"`preparation` takes transforms of unweave.augment, not {transform!r}")
            transform.check(self.input_shape[0], (self.input_shape[1], self.input_shape[2]))
        self._given = dict(description or {})
        self.eval()

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The names of the features: h and the spaces."""
        if isinstance(self.encoder, Encoder):
            return ("h", *self.encoder.spaces)
        with torch.no_grad():
            found = self(torch.zeros(1, *self.input_shape, device=self.device))
        if not isinstance(found, Mapping):
            raise UnweaveError(f"`encoder` must give a dictionary of features by name, not {type(found).__name__}")
        return tuple(found)

    @property
    def spaces(self) -> tuple[str, ...]:
        """The names of the spaces."""
        return tuple(name for name in self.outputs if name != "h")

    @property
    def size(self) -> int:
        """The side of the images in pixels."""
        return self.input_shape[-1]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        first = next(chain(self.parameters(), self.buffers()), None)
        return torch.device("cpu") if first is None else first.device

    @property
    def decoder(self) -> Decoder:
        """How image files become the model's input."""
        return decoder_for(self.input_shape, MAX_PIXELS)

    @property
    def preprocessing(self) -> dict[str, Any]:
        """The preprocessing of images as JSON data, for programs without unweave (see inference/preprocessing.py)."""
        return describe_preprocessing(self.input_shape, self.preparation)

    @property
    def description(self) -> dict[str, Any]:
        """What ``load`` needs besides the weights, as JSON data."""
        return {
            "spaces": list(self.spaces),
            "encoder": self._given.get("encoder") or describe(self.encoder),
            "preparation": self._given.get("preparation") or describe(self.preparation),
            "input_shape": list(self.input_shape),
            "method": self._given.get("method"),
        }

    @property
    def identity(self) -> str:
        """A short text that is the same for the same description and weights: of a run and of its export."""
        digest = hashlib.sha256(json.dumps(self.description, sort_keys=True).encode())
        for name, weight in sorted(self.encoder.state_dict().items()):
            digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
            content: Any = weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            digest.update(content)
        return digest.hexdigest()[:16]

    def normalize(self, z: Tensor) -> Tensor:
        """An embedding in the geometry of the loss with which it was trained; unchanged where that is not known."""
        return z if self._method is None else self._method.normalize(z)

    @property
    def _method(self) -> BaseMethod | None:
        """The base method of the run, where it is one of unweave's."""
        method = self._given.get("method")
        ours = isinstance(method, Mapping) and str(method.get(CLASS, "")).startswith("unweave.")
        return rebuild(method) if ours else None

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """h (n, d) and the embedding in every space by name."""
        return self.encoder(prepare_images(images, self.preparation))

    def embed(
        self, images: Any, *, batch_size: int = 256, workers: int | None = None, max_pixels: int = MAX_PIXELS
    ) -> dict[str, Tensor]:
        """The features of one image, h (d,) and the embedding in every space by name; of several, (n, d).

        Args:
            images: one image (a path, bytes, a PIL image, an array (h, w, c), a tensor (c, h, w)); a list of these,
                which may be mixed; an array (n, h, w, c) or a tensor (n, c, h, w); or what ``open_source`` takes: a
                folder, Parquet or CSV files, a glob, a ``Dataset``. Arrays and tensors are uint8, or float in [0, 1].
            batch_size: images that pass through the network at a time.
            workers: processes that decode a source; by default one for each core, and none for few images.
            max_pixels: larger images are unreadable.

        Raises:
            UnweaveError: an image cannot be read. ``embed_images`` can skip such images.

        Notes:
            An image has one embedding, whatever it is passed as: all are decoded, cropped and resized alike. Only
            tensors of the model's input shape are used as they are. On a CPU, equal batches give equal bits; another
            batch size may change the last digits.

        Examples:
            >>> import unweave as uw
            >>> from PIL import Image
            >>> encoder = uw.Encoder(uw.SmallConvNet(16), ("content",), dim=4)
            >>> model = SpacesModel(encoder, input_shape=(3, 16, 16))
            >>> photo = Image.new("RGB", (40, 30), "red")
            >>> {name: tuple(z.shape) for name, z in model.embed(photo).items()}
            {'h': (128,), 'content': (4,)}
            >>> model.embed([photo, torch.zeros(3, 20, 20)])["content"].shape
            torch.Size([2, 4])
        """
        require_number("batch_size", batch_size, ">= 1")
        require_number("workers", workers, ">= 0")
        require_number("max_pixels", max_pixels, ">= 1")
        inputs = Inputs(self.input_shape, self.device, batch_size, workers, max_pixels)
        parts = [self.encode(batch) for batch in inputs.batches(images)]
        features = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        return {name: value[0] for name, value in features.items()} if is_one_image(images) else features

    @torch.no_grad()
    def encode(self, batch: Tensor) -> dict[str, Tensor]:
        """``forward`` without gradients, for a batch of the model's input shape."""
        return self(batch.contiguous())


def load(
    path: str | Path, *, encoder: nn.Module | None = None, preparation: Sequence[Transform] | None = None
) -> SpacesModel:
    """The model of a run's folder, or of a folder that ``unweave export`` has written. Nothing is unpickled.

    Args:
        path: the folder.
        encoder: a module of the run's architecture, where the encoder or its backbone is not one of unweave's; it gets
            the weights.
        preparation: the transforms before the encoder, where one of them is not unweave's.

    Examples:
        >>> import tempfile, unweave as uw
        >>> views = uw.Views({})
        >>> encoder = uw.Encoder(uw.SmallConvNet(16, layers=((4, 2),), dim=8), views.spaces, dim=4, hidden=8)
        >>> objective, config = uw.DisentangledLoss(uw.SimCLR()), uw.TrainConfig(steps=1, batch_size=8)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     run = uw.train(uw.Sprites(16), views, encoder, objective, config, out, progress=False)
        ...     model = uw.load(out)
        >>> model.spaces, model.size
        (('content',), 16)
    """
    description, weights = _read(RunFolder(path))
    if encoder is None:
        _require_ours(description.get("encoder"), f"the encoder of {path} has a part", "encoder=…")
    if preparation is None:
        _require_ours(description.get("preparation"), f"the preparation of {path} has a part", "preparation=[…]")
    try:
        encoder = _build_encoder(description["encoder"]) if encoder is None else encoder
        preparation = rebuild(list(description["preparation"])) if preparation is None else preparation
        model = SpacesModel(encoder, preparation, description["input_shape"], description)
    except Exception as error:  # for arguments of a wrong kind, constructors raise nearly any error
        raise UnweaveError(
            f"{path} describes a model that cannot be built ({_short(error)}): its files are damaged, or of another "
            "version of unweave"
        ) from None
    try:
        model.encoder.load_state_dict(weights)
    except RuntimeError as error:
        raise UnweaveError(f"the weights in {path} do not fit the encoder: {_short(error)}") from None
    return model


def _read(folder: RunFolder) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description and the weights in a folder."""
    path = folder.path
    if folder.checkpoint.is_file():
        return folder.load_model()
    if folder.exported_model.is_file():
        return folder.load_exported_model()
    if folder.exported_weights.is_file():
        raise UnweaveError(f"{path} has no {folder.exported_model.name}: it is an incomplete copy of an export")
    if folder.config.is_file() or folder.metrics.is_file():
        raise UnweaveError(f"{path} has no checkpoint: the run was stopped too early, or the file was removed")
    hint = "" if path.is_dir() else ": it is a file in one" if path.is_file() else ": there is no such folder"
    raise UnweaveError(f"{path} is not the folder of a run or of an export{hint}")


def _require_ours(description: Any, what: str, remedy: str) -> None:
    """Raises where a class is named that is not one of unweave's."""
    if isinstance(description, Mapping):
        kind = description.get(CLASS, "unweave.")
        if not str(kind).startswith("unweave."):
            raise UnweaveError(
                f"{what} that unweave cannot construct ({str(kind)[:80]}); construct it and call "
                f"uw.load(path, {remedy})"
            )
    parts = description.values() if isinstance(description, Mapping) else description
    for part in parts if isinstance(description, (Mapping, list)) else ():
        _require_ours(part, what, remedy)


def _build_encoder(description: Mapping[str, Any]) -> nn.Module:
    state = torch.get_rng_state()
    try:
        # The weights come from the run; published ones need not be downloaded.
        encoder = rebuild({**description, "pretrained": False})
    finally:
        torch.set_rng_state(state)  # loading a model does not change the global generator
    if not isinstance(encoder, nn.Module):
        raise TypeError(f"the encoder is a {type(encoder).__name__}")
    return encoder


def _checked_shape(shape: Any) -> tuple[int, int, int]:
    numbers = tuple(shape) if isinstance(shape, Sequence) else ()
    if len(numbers) != 3 or not all(type(number) is int and number >= 1 for number in numbers):
        raise UnweaveError(f"`input_shape` must be three whole numbers (channels, height, width), not {shape!r}")
    return numbers


def _short(error: Exception) -> str:
    """The reason on one line."""
    kind = "" if isinstance(error, UnweaveError) else f"{type(error).__name__}: "
    return " ".join(f"{kind}{error}".split())[:200]
