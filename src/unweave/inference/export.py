"""``unweave export``: a run's model as safetensors with its description, and as ONNX."""

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unweave._version import __version__
from unweave.errors import UnweaveError
from unweave.files import atomic_write, remove_partial_writes
from unweave.inference.model import SpacesModel
from unweave.training.run_folder import RunFolder


def export_model(model: SpacesModel, out: str | Path, *, onnx: bool = True) -> list[Path]:
    """Writes the model to the folder ``out`` and returns the files; ``uw.load(out)`` loads it again.

    A model with an encoder or a transform of your own is loaded with ``uw.load(out, encoder=…, preparation=…)``. The
    section ``preprocessing`` of model.json, which model.onnx holds too, says how images become the model's input.

    Examples:
        >>> import tempfile, unweave as uw
        >>> model = SpacesModel(uw.Encoder(uw.SmallConvNet(16), ("content",), dim=4), input_shape=(3, 16, 16))
        >>> with tempfile.TemporaryDirectory() as out:
        ...     [file.name for file in export_model(model, out, onnx=False)]
        ['model.safetensors', 'model.json']
    """
    folder = RunFolder(out)
    folder.create()
    description = {"unweave": __version__, **model.description, "preprocessing": model.preprocessing}
    graph = to_onnx(model) if onnx else None
    try:
        folder.save_exported_model(description, model.encoder.state_dict())
        written = [folder.exported_weights, folder.exported_model]
        if graph is not None:
            remove_partial_writes(folder.onnx)
            with atomic_write(folder.onnx) as temporary:
                temporary.write_bytes(graph)
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
        features = self.model(images)
        return tuple(features[name] for name in self.model.outputs)


def to_onnx(model: SpacesModel) -> bytes:
    """An ONNX graph from ``images``, float32 (n, c, h, w) in [0, 1], to ``h`` and one output for each space.

    Its metadata hold ``preprocessing`` as JSON.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError:
        raise UnweaveError("`onnx` needs two more packages: pip install 'unweave[export]'; or disable `onnx`") from None
    names, device, training = list(model.outputs), model.device, model.training
    try:
        with _quiet():
            program: Any = torch.onnx.export(
                _Tuple(model).cpu().eval(),
                (torch.zeros(2, *model.input_shape),),
                dynamo=True,
                input_names=["images"],
                output_names=names,
                dynamic_shapes=({0: torch.export.Dim("n")},),
                verbose=False,
            )
    except Exception as error:  # the exporter raises nearly any error for a module that it cannot trace
        reason = " ".join(str(error).split())[:160]
        raise UnweaveError(f"the model cannot be written as ONNX ({reason}); disable `onnx`") from None
    finally:
        model.to(device).train(training)
    about = {"unweave": __version__, "preprocessing": json.dumps(model.preprocessing)}
    try:
        proto = program.model_proto
        onnx.helper.set_model_props(proto, about)
        return proto.SerializeToString()
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
