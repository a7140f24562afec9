"""A trained run as a module: images in, h and the embedding in every space out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unweave.augment import Transform
from unweave.augment.views import prepare_images
from unweave.data.decode import Decoder
from unweave.data.sources.base import Encoded
from unweave.data.unreadable import UnreadableImageError
from unweave.describe import CLASS, rebuild
from unweave.errors import UnweaveError
from unweave.models import read_weights
from unweave.training.run_folder import RunFolder


class SpacesModel(nn.Module):
    """Images (n, c, h, w), uint8 or float in [0, 1], to ``{"h": …, "content": …, …}``.

    It prepares images as during training and encodes them. It is in evaluation mode and on the CPU at first.

    Args:
        encoder: maps prepared images to features by name.
        preparation: the transforms before the encoder, as ``views.preparation``.
        input_shape: the shape (c, h, w) of the encoder's input.
        description: of the encoder and the preparation, as a run's checkpoint holds it.

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
        self.input_shape = tuple(input_shape)
        self.spaces: tuple[str, ...] = tuple(getattr(encoder, "spaces", ()))
        self.description = dict(description or {})
        self.eval()

    @property
    def size(self) -> int:
        """The side of the images in pixels."""
        return self.input_shape[-1]

    @property
    def decoder(self) -> Decoder:
        """How image files become the model's input."""
        return Decoder(size=self.size, channels=self.input_shape[0])

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """h (n, d) and the embedding in every space by name."""
        return self.encoder(prepare_images(images, self.preparation))

    @torch.inference_mode()
    def embed(self, image: Encoded | str) -> dict[str, Tensor]:
        """The features of one image, from a path, bytes or PIL: h (d,) and the embedding in every space."""
        try:
            pixels = self.decoder(Path(image) if isinstance(image, str) else image)
        except UnreadableImageError as error:
            raise UnweaveError(f"the image cannot be read: {error}") from None
        device = next(self.parameters()).device
        batch = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].to(device)
        return {name: value[0] for name, value in self(batch).items()}


def load(path: str | Path, *, encoder: nn.Module | None = None) -> SpacesModel:
    """The model of a run's folder, or of a folder that ``unweave export`` has written. Nothing is unpickled.

    ``encoder`` is a module of the run's architecture, for runs whose encoder is not one of unweave's.

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
    folder = RunFolder(path)
    if folder.checkpoint.is_file():
        description, weights = folder.load_model()
    elif folder.exported_model.is_file():
        description, weights = folder.load_exported_model(), read_weights(folder.exported_weights)
    elif folder.config.is_file():
        raise UnweaveError(f"{path} has no checkpoint yet: the run was stopped too early")
    else:
        hint = "" if folder.path.is_dir() else ": there is no such folder"
        raise UnweaveError(f"{path} is not the folder of a run or of an export{hint}")
    encoder = _build_encoder(description["encoder"], path) if encoder is None else encoder
    try:
        encoder.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise UnweaveError(f"the weights in {path} do not fit the encoder: {reason}") from None
    return SpacesModel(encoder, rebuild(description["preparation"]), description["input_shape"], description)


def _build_encoder(description: Mapping[str, Any], path: str | Path) -> nn.Module:
    known = str(description.get(CLASS, "")).startswith("unweave.models.")
    backbone = description.get("backbone")
    if not known or not (isinstance(backbone, str) or str(backbone.get(CLASS, "")).startswith("unweave.models.")):  # type: ignore[union-attr]
        raise UnweaveError(
            f"{path} was trained with an encoder that unweave cannot construct ({description.get(CLASS)}); "
            "construct it and call uw.load(path, encoder=…)"
        )
    state = torch.get_rng_state()
    try:
        # The weights come from the run; published ones need not be downloaded.
        return rebuild({**description, "pretrained": False})
    finally:
        torch.set_rng_state(state)  # loading a model does not change the global generator
