"""Given the same parameters, each transform is torchvision's functional one, image by image."""

import hypothesis.strategies as st
import pytest
import torch
import torchvision.transforms.v2.functional as TF
from hypothesis import given, settings
from torchvision.transforms import InterpolationMode

import unweave.augment as A
from unweave.augment._apply import apply_transforms
from unweave.augment._transform import as_float

MODES = {
    "bilinear": InterpolationMode.BILINEAR,
    "bicubic": InterpolationMode.BICUBIC,
    "nearest": InterpolationMode.NEAREST,
}


def drawn(transform, images):
    params = transform.sample(len(images), size=tuple(images.shape[-2:]), generator=torch.Generator().manual_seed(3))
    return params, transform.apply(as_float(images), params)


def assert_close(ours, theirs, levels=1.0):
    theirs = torch.stack([as_float(image) for image in theirs])
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= levels / 255


@pytest.mark.parametrize(("mode", "levels"), [("bilinear", 1), ("bicubic", 2)])
@pytest.mark.parametrize("size", [(64, 64), (40, 150), (200, 180)])
def test_resized_crop(photos, mode, levels, size):
    params, ours = drawn(A.RandomResizedCrop(size, interpolation=mode), photos)
    boxes = torch.stack([params[k] for k in ("top", "left", "height", "width")], 1).int().tolist()
    # torchvision rounds a uint8 image between its two passes, where bicubic overshoots: compare floats for that one.
    source = photos if mode == "bilinear" else as_float(photos)
    theirs = [TF.resized_crop(x, *box, size, MODES[mode], antialias=True) for x, box in zip(source, boxes, strict=True)]
    # A uint8 result is rounded once more than ours.
    assert_close(ours, [x if mode == "bilinear" else x.clamp(0, 1) for x in theirs], levels + 0.01)


@pytest.mark.parametrize("size", [32, 160])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_crops_of_other_floats_are_those_of_float32(photos, size, dtype):
    crop = A.RandomResizedCrop(size, interpolation="bicubic")
    expected, found = (
        crop(x, generator=torch.Generator().manual_seed(1)) for x in (as_float(photos), (photos / 255).to(dtype))
    )
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)


@settings(max_examples=30, deadline=None)
@given(st.integers(8, 70), st.integers(8, 70), st.integers(1, 90), st.sampled_from(["bilinear", "bicubic"]), st.data())
def test_resized_crop_of_any_window(height, width, size, mode, data):
    h, w = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    top, left = data.draw(st.integers(0, height - h)), data.draw(st.integers(0, width - w))
    image = torch.rand(1, 3, height, width, generator=torch.Generator().manual_seed(0))
    params = {
        k: torch.tensor([float(v)]) for k, v in zip(("top", "left", "height", "width"), (top, left, h, w), strict=True)
    }
    ours = A.RandomResizedCrop(size, interpolation=mode).apply(image, {**params, "on": torch.tensor([True])})
    theirs = TF.resized_crop(image, top, left, h, w, [size, size], MODES[mode], antialias=True).clamp(0, 1)
    assert (ours - theirs).abs().max() <= 1e-4


def test_crop_reads_uint8_as_it_reads_floats(photos):
    crop = A.RandomResizedCrop(32)
    params, ours = drawn(crop, photos)
    torch.testing.assert_close(crop.apply(photos, params), ours, atol=1e-6, rtol=0)


def test_a_flip_after_a_crop_is_part_of_it(photos):
    crop, flip = A.RandomResizedCrop(48), A.RandomHorizontalFlip()
    crop_params, cropped = drawn(crop, photos)
    flip_params, flipped = drawn(flip, cropped)
    assert 0 < flip_params["on"].sum() < len(photos)
    together = apply_transforms(as_float(photos), [(crop, crop_params), (flip, flip_params)])
    torch.testing.assert_close(together, flipped, atol=1e-6, rtol=0)
    theirs = [TF.hflip(x) if on else x for x, on in zip(cropped, flip_params["on"], strict=True)]
    assert_close(together, theirs, 0.01)


def test_rotation(photos):
    params, ours = drawn(A.RandomRotation(180), photos)
    theirs = [
        TF.rotate(as_float(x), a, MODES["bilinear"]) for x, a in zip(photos, params["angle"].tolist(), strict=True)
    ]
    assert_close(ours, theirs)


def test_rotation_nearest(photos):
    params, ours = drawn(A.RandomRotation(180, "nearest"), photos)
    theirs = torch.stack(
        [TF.rotate(as_float(x), a, MODES["nearest"]) for x, a in zip(photos, params["angle"].tolist(), strict=True)]
    )
    assert (ours == theirs).float().mean() > 0.999  # pixels half-way between two may fall either way


def test_translation(photos):
    params, ours = drawn(A.RandomTranslation((0.3, 0.2)), photos)
    theirs = [
        TF.affine(as_float(x), 0.0, [dx, dy], 1.0, [0.0, 0.0], MODES["bilinear"])
        for x, dx, dy in zip(photos, params["x"].tolist(), params["y"].tolist(), strict=True)
    ]
    assert_close(ours, theirs)


def test_zoom(photos):
    params, ours = drawn(A.RandomZoom((0.5, 2.0)), photos)
    theirs = [
        TF.affine(as_float(x), 0.0, [0, 0], s, [0.0, 0.0], MODES["bilinear"])
        for x, s in zip(photos, params["scale"].tolist(), strict=True)
    ]
    assert_close(ours, theirs)


def test_affine_neighbours_are_one_resampling(photos):
    steps = [A.RandomZoom((0.5, 2.0)), A.RandomRotation(180), A.RandomTranslation((0.3, 0.2))]
    params = [drawn(t, photos)[0] for t in steps]
    ours = apply_transforms(photos, list(zip(steps, params, strict=True)))
    theirs = [
        TF.affine(
            as_float(x),
            -params[1]["angle"][i].item(),  # affine counts angles clockwise, rotate the other way
            [params[2]["x"][i].item(), params[2]["y"][i].item()],
            params[0]["scale"][i].item(),
            [0.0, 0.0],
            MODES["bilinear"],
        )
        for i, x in enumerate(photos)
    ]
    assert_close(ours, theirs)


def test_color_jitter_in_each_images_own_order(photos):
    params, ours = drawn(A.ColorJitter(0.4, 0.4, 0.4, 0.3, p=0.8), photos)
    functions = [TF.adjust_brightness, TF.adjust_contrast, TF.adjust_saturation, TF.adjust_hue]
    names = A.ColorJitter.names
    assert len({tuple(o) for o in params["order"].tolist()}) > 2
    theirs = []
    for i, image in enumerate(as_float(photos)):
        for k in params["order"][i].tolist() if params["on"][i] else []:
            image = functions[k](image, params[names[k]][i].item())
        theirs.append(image)
    assert_close(ours, theirs, 0.1)


def test_grayscale_and_solarize(photos):
    params, ours = drawn(A.RandomGrayscale(p=0.5), photos)
    assert 0 < params["on"].sum() < len(photos)
    assert_close(ours, [TF.rgb_to_grayscale(x, 3) if on else x for x, on in zip(photos, params["on"], strict=True)])
    params, ours = drawn(A.RandomSolarize(128 / 255, p=0.5), photos)
    assert_close(ours, [TF.solarize(x, 128) if on else x for x, on in zip(photos, params["on"], strict=True)])


@pytest.mark.parametrize("kernel", [23, (9, 5)])
def test_gaussian_blur(photos, kernel):
    params, ours = drawn(A.GaussianBlur(kernel, (0.1, 2.0), p=0.6), photos)
    theirs = [
        TF.gaussian_blur(as_float(x), kernel, [s, s]) if on else as_float(x)
        for x, s, on in zip(photos, params["sigma"].tolist(), params["on"], strict=True)
    ]
    assert_close(ours, theirs)


def test_normalize(photos):
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    _, ours = drawn(A.Normalize(mean, std), photos)
    torch.testing.assert_close(ours, TF.normalize(as_float(photos), mean, std))


def test_an_image_that_is_not_on_is_left_alone(photos):
    for transform in (
        A.RandomHorizontalFlip(p=0.0),
        A.RandomRotation(90, p=0.0),
        A.RandomZoom((0.5, 0.6), p=0.0),
        A.RandomTranslation((0.5, 0.5), p=0.0),
        A.ColorJitter(1, 1, 1, 0.5, p=0.0),
        A.RandomGrayscale(p=0.0),
        A.RandomSolarize(p=0.0),
        A.GaussianBlur(5, p=0.0),
    ):
        torch.testing.assert_close(transform(photos), as_float(photos), atol=1e-5, rtol=0)
    resized = torch.stack([TF.resize(as_float(x), [48, 48], antialias=True) for x in photos])
    torch.testing.assert_close(A.RandomResizedCrop(48, p=0.0)(photos), resized, atol=1e-5, rtol=0)
