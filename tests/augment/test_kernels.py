"""The GPU kernels, run by Triton's interpreter on the CPU, against the plain transforms.

Triton reads TRITON_INTERPRET when its functions are defined, so the comparison is a process of its own.
"""

import os
import subprocess
import sys

import pytest
import torch

from processes import Child

COMPARE = """
import torch
import unweave.augment as A
from unweave.augment import _kernels as K

g = torch.Generator().manual_seed(0)
for c in (3, 1):
    images = torch.randint(0, 256, (5, c, 13, 18), dtype=torch.uint8, generator=g)
    floats = images.float() / 255
    for mode in ("bilinear", "bicubic"):
        for size in ((8, 11), (24, 19)):
            crop = A.RandomResizedCrop(size, interpolation=mode)
            p = crop.sample(5, size=(13, 18), generator=g)
            flip = torch.tensor([True, False, True, False, True])
            window = (p["top"], p["left"], p["height"], p["width"])
            expected = crop.apply(floats, p, flip=flip)
            for source in (images, floats):
                out = K.crop(source, *window, flip, size, mode == "bicubic")
                out = out.clamp(0, 1) if mode == "bicubic" else out
                assert (out - expected).abs().max() < 1e-5, (mode, size, c)
    on = torch.tensor([True, False, True, True, False])
    out = floats.clone()
    K.solarize_(out, on, 0.5)
    assert torch.equal(out, A.RandomSolarize(0.5).apply(floats, {"on": on}))
    sigma = torch.tensor([0.1, 0.5, 1.0, 1.7, 2.0])
    for kernel in ((9, 5), (13, 13)) if c == 1 else ((9, 5),):
        out = floats.clone()
        K.blur_(out, on, sigma, kernel)
        assert (out - A.GaussianBlur(kernel).apply(floats, {"on": on, "sigma": sigma})).abs().max() < 4e-4

images = torch.rand(24, 3, 9, 11, generator=g)
images[:, :, 0] = 0.5  # grey: no chroma
jitter = A.ColorJitter(0.6, 0.6, 0.6, 0.5, p=0.8)
p = jitter.sample(24, size=(9, 11), generator=g)
assert len({tuple(o) for o in p["order"].tolist()}) > 8
out = images.clone()
K.jitter_(out, p["on"], p["order"], *(p[name] for name in jitter.names))
assert (out - jitter.apply(images, p)).abs().max() < 1e-5
out = images.clone()
K.grayscale_(out, p["on"])
assert (out - A.RandomGrayscale().apply(images, p)).abs().max() < 1e-6
print("same")
"""


def test_the_kernels_are_the_transforms_in_torch():
    pytest.importorskip("triton")
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", COMPARE], env=env, capture_output=True, text=True, timeout=300)
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("this Triton's interpreter does not work with this numpy")
    assert done.stdout.strip() == "same", done.stderr[-2000:]


@pytest.mark.gpu
def test_views_on_a_gpu_are_those_of_the_cpu(photos):
    import unweave.augment as A

    views = A.Views(
        {
            "spatial": [A.RandomResizedCrop(64), A.RandomHorizontalFlip(), A.RandomRotation(30)],
            "appearance": [
                A.ColorJitter(0.4, 0.4, 0.2, 0.1, p=0.8),
                A.RandomGrayscale(p=0.2),
                A.GaussianBlur(9, p=0.5),
                A.RandomSolarize(0.9, p=0.0),
            ],
        }
    )
    on_cpu = views(photos, generator=torch.Generator().manual_seed(1))
    on_gpu = views(photos.cuda(), generator=torch.Generator().manual_seed(1))
    again = views(photos.cuda(), generator=torch.Generator().manual_seed(1))
    assert torch.equal(on_gpu.a, again.a)
    for ours, theirs in ((on_gpu.a, on_cpu.a), (on_gpu.b, on_cpu.b)):
        assert (ours.cpu() - theirs).abs().max() < 1 / 255


def warn_once_without_a_compiler():
    """Without a GPU the trial fails as it does without a compiler: by some exception."""
    import warnings

    from unweave.gpu import triton_works

    triton_works.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        works = [triton_works(), triton_works()]
    warned = [w for w in caught if "cannot be compiled" in str(w.message)]
    return int(works != [False, False] or len(warned) != 1)


@pytest.mark.gpu
@pytest.mark.parametrize("channels", [1, 4, 5])
def test_views_of_other_channels_on_a_gpu_are_those_of_the_cpu(channels):
    from unweave.augment.config import ViewsConfig

    config = ViewsConfig(size=24, styles=("spatial", "blur"), mean=(0.5,) * channels, std=(0.25,) * channels)
    views = config.build(channels)
    images = torch.randint(256, (12, channels, 32, 32), dtype=torch.uint8)
    pairs = [
        views(images.to(device), generator=torch.Generator().manual_seed(3), start=0, total=12)
        for device in ("cpu", "cuda")
    ]
    for expected, found in ((pairs[0].a, pairs[1].a), (pairs[0].b, pairs[1].b)):
        assert (expected - found.cpu()).abs().max() < 5e-3


def test_without_a_compiler_slower_code_is_used_with_one_warning(tmp_path):
    done = Child(tmp_path, warn_once_without_a_compiler, env={"CUDA_VISIBLE_DEVICES": ""}).wait()
    assert done.returncode == 0, done.stderr
