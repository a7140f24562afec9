import pytest

from small_models import small_model
from unweave.inference import export_model


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a small exported model."""
    out = tmp_path_factory.mktemp("run")
    export_model(small_model(), out, onnx=False)
    return out
