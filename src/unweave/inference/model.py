"""A trained run as a module: images in, h and every space's z out."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from unweave.data.images import Encoded, UnreadableImageError, decode
from unweave.errors import UnweaveError
from unweave.models import Encoder
from unweave.training.checkpoint import load_checkpoint
from unweave.training.loop import CHECKPOINT
from unweave.training.pretrain import CONFIG, read_config
from unweave.training.pretrain_config import PretrainConfig
from unweave.training.recipe import MEAN, STD, make_encoder

WEIGHTS = "model.safetensors"


class SpacesModel(nn.Module):
    """Images (n, 3, size, size), uint8 or float in [0, 1], to ``{"h": …, "content": …, "spatial": …}``.

    ``spaces`` names the outputs besides h, ``size`` is the images' side, ``config`` how the model was trained. It is in
    evaluation mode, on the CPU, until told otherwise.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, encoder: Encoder, config: PretrainConfig) -> None:
        super().__init__()
        self.encoder, self.config = encoder, config
        self.spaces, self.size = encoder.spaces, config.size
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(3, 1, 1), persistent=False)
        self.eval()

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """h (n, d) and z of every space by name."""
        if images.dtype == torch.uint8:
            images = images / 255
        return self.encoder((images - self.mean) / self.std)

    @torch.inference_mode()
    def embed(self, image: Encoded | str) -> dict[str, Tensor]:
        """One image, from a path, bytes or PIL: h (d,) and z of every space."""
        try:
            pixels = decode(Path(image) if isinstance(image, str) else image, self.size)
        except UnreadableImageError as error:
            raise UnweaveError(f"the image cannot be read: {error}") from None
        device = next(self.parameters()).device
        batch = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].to(device)
        return {name: value[0] for name, value in self(batch).items()}


def load(path: str | Path) -> SpacesModel:
    """The model of a run's folder, or of the folder that ``unweave export`` has written. Nothing is unpickled."""
    path = Path(path)
    if not (path / CONFIG).is_file():
        hint = "" if path.is_dir() else ": there is no such folder"
        raise UnweaveError(f"{path} is no run of `unweave train`, nor an export of one{hint}")
    config = read_config(path / CONFIG)
    if (path / CHECKPOINT).is_file():
        weights = load_checkpoint(path / CHECKPOINT)["encoder"]
    elif (path / WEIGHTS).is_file():
        try:
            weights = load_file(path / WEIGHTS)
        except (SafetensorError, OSError) as error:
            raise UnweaveError(f"{path / WEIGHTS} cannot be read: {error}") from None
    else:
        raise UnweaveError(f"{path} has no checkpoint yet: the run has not come so far")
    state = torch.get_rng_state()
    encoder = make_encoder(config)
    torch.set_rng_state(state)  # to load a model is to draw nothing
    try:
        encoder.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise UnweaveError(f"the weights in {path} do not fit its {CONFIG}: {reason}") from None
    return SpacesModel(encoder, config)
