import os

# Tests run in as many processes as there are cores: each uses one thread. Set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

import small_runs as small
import unweave as uw
from unweave.training import launch

launch.cpu_has_bfloat16 = lambda: False  # the same precision on every machine

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def one_thread():
    """Sums in one order, so that two runs can be compared bit for bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def photos() -> torch.Tensor:
    """Eight real photographs, 96×128, uint8: parts of the two that come with scikit-learn."""
    whole = [torch.from_numpy(image.copy()).permute(2, 0, 1) for image in load_sample_images().images]
    corners = [(40, 60), (200, 300), (120, 420), (300, 100)]
    return torch.stack([image[:, y : y + 96, x : x + 128] for image in whole for y, x in corners]).contiguous()


@pytest.fixture(scope="session")
def photo_folder(tmp_path_factory, photos) -> Path:
    """Sixty crops of photographs as JPEGs, in two classes. Not to be written to."""
    path = tmp_path_factory.mktemp("photos")
    for i in range(60):
        photo = photos[i % 8].permute(1, 2, 0).numpy()[i % 7 : 80 + i % 7, 2 * i % 40 : 80 + 2 * i % 40]
        target = path / ("old" if i % 8 < 4 else "new") / f"{i:02}.jpg"
        target.parent.mkdir(exist_ok=True)
        Image.fromarray(photo).save(target, quality=90)
    return path


@pytest.fixture(scope="session")
def photo_run(tmp_path_factory, photo_folder) -> Path:
    """A run of the photographs, with content, spatial and appearance. Not to be written to."""
    out = tmp_path_factory.mktemp("photo-run") / "run"
    settings = {**small.PHOTOS, "epochs": 1, "probe": "none", "report": False, "progress": False}
    uw.pretrain(photo_folder, out=out, **settings)
    return out


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED_DATA.is_dir():
        pytest.skip("the shared research data is not on this machine")
    return SHARED_DATA


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
