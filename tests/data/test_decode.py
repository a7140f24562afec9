"""Whatever a folder of photographs may hold comes out as RGB of the working resolution, or as a reason why not."""

import contextlib
import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from unweave.data.decode import decode
from unweave.data.unreadable import UnreadableImageError


def encode(image: Image.Image, kind: str, **settings) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **settings)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def photo(photos) -> Image.Image:
    """Upper half darker than the lower, left and right different: 96 high, 128 wide."""
    return Image.fromarray(photos[0].permute(1, 2, 0).numpy())


@pytest.fixture(scope="module")
def large(photo) -> Image.Image:
    return photo.resize((1024, 768), Image.Resampling.BICUBIC)


def close(a: np.ndarray, b: np.ndarray, levels: float) -> bool:
    return float(np.abs(a.astype(float) - b.astype(float)).mean()) < levels


def test_a_square_of_the_asked_size_is_left_to_the_bit(photo):
    square = photo.crop((0, 0, 96, 96))
    assert np.array_equal(decode(encode(square, "PNG"), 96), np.asarray(square))


@pytest.mark.parametrize(("size", "within"), [(64, 0.1), (33, 0.1), (150, 0.1), (16, 2.0)])
def test_resizing_is_pillows_on_the_central_square(photo, size, within):
    expected = photo.crop(((photo.width - 96) // 2, 0, (photo.width + 96) // 2, 96)).resize((size, size), 3)
    assert close(decode(encode(photo, "PNG"), size), np.asarray(expected), within)


def test_scaled_jpeg_decoding_shows_what_full_decoding_shows_and_unpacks_less(large, monkeypatch):
    data = encode(large, "JPEG", quality=95)
    scaled = decode(data, 96, reduced=True)
    sizes = []
    full = Image.Image.convert
    monkeypatch.setattr(Image.Image, "convert", lambda self, *a, **k: sizes.append(self.size) or full(self, *a, **k))
    decode(data, 96, reduced=True)
    assert sizes[0] == (128, 96)
    monkeypatch.setattr(Image.Image, "draft", lambda *_: None)
    monkeypatch.setattr("PIL.JpegImagePlugin.JpegImageFile.draft", lambda *_: None)
    assert close(scaled, decode(data, 96), 2.0)


def test_jpeg_decoding_is_torchvisions(photo):
    from torchvision.io import decode_jpeg

    data = encode(photo.crop((0, 0, 96, 96)), "JPEG", quality=90)
    theirs = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8)).permute(1, 2, 0).numpy()
    assert close(decode(data, 96), theirs, 0.5)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_undone(photo, orientation):
    square = photo.crop((0, 0, 96, 96))
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }  # fmt: skip
    stored = square.transpose(undo[orientation]) if orientation in undo else square
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert np.array_equal(decode(encode(stored, "PNG", exif=exif), 96), np.asarray(square))


def test_sixteen_bits_are_scaled_not_cut(photo):
    gray = np.asarray(photo.convert("L").crop((0, 0, 96, 96)))
    deep = Image.fromarray(gray.astype(np.uint16) * 257)
    for kind in ("PNG", "TIFF"):
        assert np.array_equal(decode(encode(deep, kind), 96)[..., 0], gray)


def test_float_tiff_in_the_unit_interval(photo):
    gray = np.asarray(photo.convert("L").crop((0, 0, 96, 96)))
    assert np.array_equal(decode(encode(Image.fromarray(gray.astype(np.float32) / 255), "TIFF"), 96)[..., 1], gray)


def test_cmyk_palette_and_gray_show_the_same_picture(photo):
    expected = decode(photo, 48)
    assert close(decode(encode(photo.convert("CMYK"), "JPEG", quality=95), 48), expected, 4)
    assert close(decode(encode(photo.convert("P", palette=Image.Palette.ADAPTIVE), "PNG"), 48), expected, 4)
    gray = decode(encode(photo.convert("L"), "PNG"), 48)
    assert (gray[..., 0] == gray[..., 2]).all()
    assert decode(encode(photo.convert("1"), "PNG"), 48).std() > 0


def test_what_is_transparent_lies_on_white(photo):
    hidden = photo.convert("RGBA")
    hidden.putalpha(0)
    assert (decode(encode(hidden, "PNG"), 32) == 255).all()
    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([0, 0, 0] * 256)
    assert (decode(encode(palette, "GIF", transparency=0), 8) == 255).all()


def test_an_animation_is_its_first_frame():
    frames = [Image.new("RGB", (16, 16), color) for color in ("red", "blue")]
    for kind in ("GIF", "WEBP", "PNG"):
        data = encode(frames[0], kind, save_all=True, append_images=frames[1:])
        assert decode(data, 16)[8, 8, 0] > 200


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (20_000, 3), (12_000, 12_000)])
def test_from_one_pixel_to_many_millions(shape):
    assert (decode(encode(Image.new("L", shape, 128), "JPEG"), 32, reduced=True) == 128).all()


def test_images_above_the_limit_are_refused_before_they_are_decompressed(monkeypatch):
    data = encode(Image.new("1", (20_000, 9_000)), "PNG")
    with pytest.raises(UnreadableImageError, match="pixels"):
        decode(data, 16)
    monkeypatch.setattr(Image.Image, "load", None)  # not even begun
    for source in (data, Image.new("L", (300, 300))):
        with pytest.raises(UnreadableImageError, match="`max_pixels`"):
            decode(source, 16, max_pixels=80_000)


def test_an_image_and_its_file_are_decoded_to_the_same_pixels_and_the_image_is_left_alone(photo, tmp_path):
    large = photo.resize((400, 300))
    large.save(tmp_path / "x.jpg", quality=95)
    opened = Image.open(tmp_path / "x.jpg")
    from_file, from_image = decode(tmp_path / "x.jpg", 48), decode(opened, 48)
    assert np.array_equal(from_file, from_image)
    assert np.array_equal(from_file, decode((tmp_path / "x.jpg").read_bytes(), 48))
    assert opened.size == (400, 300)
    again = Image.open(tmp_path / "x.jpg")
    decode(again, 48, reduced=True)
    assert again.size == (400, 300)


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (4, "RGBA")])
def test_other_numbers_of_channels(photo, channels, mode):
    found = decode(encode(photo, "PNG"), 32, channels=channels)
    assert found.shape == (32, 32, channels)
    expected = photo.convert(mode)
    side = min(expected.size)
    left, top = (expected.width - side) // 2, (expected.height - side) // 2
    expected = expected.crop((left, top, left + side, top + side)).resize((32, 32), Image.Resampling.BICUBIC)
    assert close(found.squeeze(), np.asarray(expected), 1.0)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.float32])
def test_arrays_have_any_number_of_channels(tmp_path, kind):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 5)).astype(np.uint8)
    stored = {np.uint8: pixels, np.uint16: pixels.astype(np.uint16) * 257, np.float32: pixels.astype(np.float32) / 255}[
        kind
    ]
    np.save(tmp_path / "x.npy", stored)
    assert np.array_equal(decode(tmp_path / "x.npy", 20, channels=5), pixels[:, 5:25])
    assert decode(tmp_path / "x.npy", 8, channels=5).shape == (8, 8, 5)
    for options, words in (({}, "5 channels, not 3"), ({"channels": 5, "max_pixels": 100}, "20")):
        with pytest.raises(UnreadableImageError, match=words):
            decode(tmp_path / "x.npy", 8, **options)


def test_arrays_that_are_not_images_and_pickles_are_unreadable(photo, tmp_path):
    for i, array in enumerate((np.zeros(3), np.zeros((2, 2, 3), dtype=np.int64), np.array([[{}]], dtype=object))):
        np.save(tmp_path / f"{i}.npy", array, allow_pickle=True)
        with pytest.raises(UnreadableImageError):
            decode(tmp_path / f"{i}.npy", 8)
    with pytest.raises(UnreadableImageError, match="numpy arrays"):
        decode(encode(photo, "PNG"), 8, channels=5)


def test_unreadable_ones_say_why(photo, tmp_path):
    jpeg = encode(photo, "JPEG")
    cases = {b"": "empty", b"hello, I am text": "not an image", jpeg[: len(jpeg) // 2]: "truncated"}
    for data, words in cases.items():
        with pytest.raises(UnreadableImageError, match=words) as error:
            decode(data, 32)
        assert "\n" not in str(error.value)
    with pytest.raises(UnreadableImageError, match="no such file"):
        decode(tmp_path / "gone.jpg", 32)


@given(place=st.integers(0, 2000), byte=st.integers(0, 255), kind=st.sampled_from(["PNG", "JPEG", "WEBP", "GIF"]))
def test_a_damaged_byte_gives_an_image_or_a_reason_never_another_error(place, byte, kind):
    ramp = Image.fromarray(np.arange(32 * 32 * 3, dtype=np.uint8).reshape(32, 32, 3))
    data = bytearray(encode(ramp, kind))
    data[place % len(data)] = byte
    with contextlib.suppress(UnreadableImageError):
        assert decode(bytes(data), 24).shape == (24, 24, 3)
