"""``unweave export``: a run's model as safetensors with its description, and as ONNX."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unweave._version import __version__
from unweave.errors import UnweaveError
from unweave.files import atomic_write
from unweave.inference.model import SpacesModel
from unweave.tensor_files import save_tensors
from unweave.training.run_folder import RunFolder


def export_model(model: SpacesModel, out: str | Path, *, onnx: bool = True) -> list[Path]:
    """Writes the model to the folder ``out`` and returns the files; ``uw.load(out)`` loads it again.

    Examples:
        >>> import tempfile, unweave as uw
        >>> model = SpacesModel(uw.Encoder(uw.SmallConvNet(16), ("content",), dim=4), input_shape=(3, 16, 16))
        >>> with tempfile.TemporaryDirectory() as out:
        ...     [file.name for file in export_model(model, out, onnx=False)]
        ['model.safetensors', 'model.json']
    """
    folder = RunFolder(out)
    folder.create()
    try:
        save_tensors(folder.exported_weights, model.encoder.state_dict(), {"format": "pt", "unweave": __version__})
        folder.save_exported_model({"unweave": __version__, **model.description})
        written = [folder.exported_weights, folder.exported_model]
        if onnx:
            with atomic_write(folder.onnx) as temporary:
                temporary.write_bytes(to_onnx(model))
            written.append(folder.onnx)
    except OSError as error:
        raise UnweaveError(f"cannot write to {out}: {error.strerror or error}") from None
    return written


class _Tuple(nn.Module):
    """The model with its outputs in order, as ONNX graphs have them."""

    def __init__(self, model: SpacesModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.model(images).values())


def to_onnx(model: SpacesModel) -> bytes:
    """An ONNX graph from ``images``, float32 (n, c, h, w) in [0, 1], to ``h`` and one output for each space."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise UnweaveError("`onnx` needs two more packages: pip install 'unweave[export]'; or disable `onnx`") from None
    example = torch.zeros(2, *model.input_shape)
    with _quiet():
        program: Any = torch.onnx.export(
            _Tuple(model).cpu().eval(),
            (example,),
            dynamo=True,
            input_names=["images"],
            output_names=["h", *model.spaces],
            dynamic_shapes=({0: torch.export.Dim("n")},),
            verbose=False,
        )
    try:
        return program.model_proto.SerializeToString()
    except Exception as error:  # protobuf's error, whose name differs between its versions
        reason = " ".join(str(error).split())[:120]
        raise UnweaveError(f"ONNX files hold at most 2 GB ({reason}); disable `onnx`") from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences the exporter's log, warnings and output."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
