"""``unweave export``: a run's model in forms that others read: safetensors with its configuration, and ONNX."""

import contextlib
import io
import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from unweave._version import __version__
from unweave.errors import UnweaveError
from unweave.inference.model import WEIGHTS, SpacesModel
from unweave.training.checkpoint import atomically
from unweave.training.loop import make_folder
from unweave.training.pretrain import CONFIG, write_config
from unweave.training.pretrain_config import to_mapping

ONNX = "model.onnx"


def export_run(model: SpacesModel, out: str | Path, *, onnx: bool = True) -> list[Path]:
    """Writes the files to the folder ``out`` and names them; ``uw.load(out)`` gives the model back."""
    out = Path(out)
    make_folder(out)
    weights = {name: value.contiguous() for name, value in model.encoder.state_dict().items()}
    try:
        with atomically(out / WEIGHTS) as temporary:
            save_file(weights, temporary, {"format": "pt", "unweave": __version__})
        write_config(out / CONFIG, {**to_mapping(model.config), "unweave": __version__})
        written = [out / WEIGHTS, out / CONFIG]
        if onnx:
            with atomically(out / ONNX) as temporary:
                temporary.write_bytes(to_onnx(model))
            written.append(out / ONNX)
    except OSError as error:
        raise UnweaveError(f"cannot write to {out}: {error.strerror or error}") from None
    return written


class _Tuple(nn.Module):
    """ONNX graphs have outputs in order, and take floats."""

    def __init__(self, model: SpacesModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.model(images).values())


def to_onnx(model: SpacesModel) -> bytes:
    """An ONNX graph: ``images``, float32 (n, 3, size, size) in [0, 1], to ``h`` and one output for each space."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise UnweaveError(
            "ONNX needs two packages more: pip install 'unweave[export]'; or leave it out by --no-onnx"
        ) from None
    example = torch.zeros(2, 3, model.size, model.size)
    names = ["h", *model.spaces]
    with _quiet():
        program: Any = torch.onnx.export(
            _Tuple(model).cpu().eval(),
            (example,),
            dynamo=True,
            input_names=["images"],
            output_names=names,
            dynamic_shapes=({0: torch.export.Dim("n")},),
            verbose=False,
        )
    try:
        return program.model_proto.SerializeToString()
    except Exception as error:  # protobuf's own error, whose name differs between its versions
        reason = " ".join(str(error).split())[:120]
        raise UnweaveError(f"ONNX files hold 2 GB at most ({reason}); leave it out by --no-onnx") from None


@contextlib.contextmanager
def _quiet() -> Any:
    """The exporter speaks of its own workings on every channel."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
