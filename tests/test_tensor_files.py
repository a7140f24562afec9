"""Checksums of files of tensors."""

import numpy as np
import pytest
import torch

from unweave.errors import UnweaveError
from unweave.tensor_files import open_tensors, save_tensors

TENSORS = {"a": torch.arange(300.0), "b": torch.ones(2, 3, dtype=torch.bfloat16), "empty": torch.zeros(0, 4)}


def read(path):
    with open_tensors(path) as file:
        return {name: file.get(name) for name in file.names}, file.metadata


def test_tensors_and_texts_are_read_as_written(tmp_path):
    save_tensors(tmp_path / "x", TENSORS, {"about": "ünicode"})
    tensors, metadata = read(tmp_path / "x")
    assert metadata == {"about": "ünicode"}
    assert all(torch.equal(tensors[name], value) for name, value in TENSORS.items())


def test_no_flipped_bit_goes_unnoticed(tmp_path):
    path = tmp_path / "x"
    save_tensors(path, TENSORS, {"about": "a text"})
    whole = path.read_bytes()
    places = np.random.default_rng(0).choice(8 * len(whole), 400, replace=False)
    for place in places:
        changed = bytearray(whole)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            tensors, metadata = read(path)
        except UnweaveError as error:
            assert "\n" not in str(error)  # noqa: PT017
            continue
        # A change that has no effect, such as another kind of white space in the header.
        assert metadata == {"about": "a text"}
        assert all(torch.equal(tensors[name], value) for name, value in TENSORS.items())


def test_a_shorter_file_is_damaged(tmp_path):
    save_tensors(tmp_path / "x", TENSORS, {})
    whole = (tmp_path / "x").read_bytes()
    for length in (0, 3, 20, len(whole) // 2, len(whole) - 1):
        (tmp_path / "x").write_bytes(whole[:length])
        with pytest.raises(UnweaveError, match="is damaged"):
            read(tmp_path / "x")
