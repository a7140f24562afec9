import os
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

import unweave as uw
from small_site import SETTINGS, running
from unweave.explore import make_app, make_maps

ROWS = 120
SPACES = ("content", "color", "spatial")


@pytest.fixture(scope="session")
def sprite_folder(tmp_path_factory) -> Path:
    """Sprites as PNG files in two folders, with near-duplicates: row 1 is row 0 as another file."""
    folder = tmp_path_factory.mktemp("explore") / "images"
    torch.manual_seed(0)
    chosen = torch.randint(0, 737_280, (ROWS,))
    chosen[1] = chosen[0]
    for i, image in enumerate(uw.Sprites(32)[chosen]):
        file = folder / ("first" if i < ROWS // 3 else "second") / f"{i:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).resize((64, 48)).save(file)
    return folder


@pytest.fixture(scope="session")
def index(sprite_folder):
    torch.manual_seed(0)
    encoder = uw.Encoder(uw.SmallConvNet(32), SPACES, dim=8)
    model = uw.SpacesModel(encoder, input_shape=(3, 32, 32))
    out = sprite_folder.parent / "index"
    return uw.Index.build(model, str(sprite_folder), out, workers=0, device="cpu", progress=False)


@pytest.fixture(scope="session")
def maps(index):
    return make_maps(index, config=SETTINGS, progress=False)


@pytest.fixture(scope="session")
def site(index, maps):
    pytest.importorskip("starlette", reason="needs the extra `explore`")
    with running(make_app(index, maps, SETTINGS)) as address:
        yield address


@pytest.fixture(scope="session")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("UNWEAVE_BROWSER") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("there is no Chromium on this machine (apt-get install chromium)")
    with api.sync_playwright() as playwright:
        flags = ["--no-sandbox", "--enable-unsafe-swiftshader"]
        opened = playwright.chromium.launch(executable_path=found, args=flags)
        yield opened
        opened.close()
