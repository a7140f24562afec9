"""Applies transforms with given parameters; those that can be resampled together are."""

from collections.abc import Sequence

import torch
from torch import Tensor

from unweave.augment._resample import warp
from unweave.augment._transform import Params, RowTransform, Transform, as_float
from unweave.augment.geometry import AffineTransform, RandomHorizontalFlip, RandomResizedCrop

Steps = list[tuple[Transform, Params]]
"""Transforms in their order, with the parameters of each."""


def apply_transforms(images: Tensor, steps: Sequence[tuple[Transform, Params]]) -> Tensor:
    """Applies transforms in order. Adjacent affine transforms, and a crop and a flip, resample once."""
    steps = list(steps)
    given = images  # no step may write to the caller's images
    if not (steps and isinstance(steps[0][0], RandomResizedCrop)):  # a crop reads uint8 itself
        images = as_float(images)
    while steps:
        transform, params = steps.pop(0)
        if isinstance(transform, AffineTransform):
            matrix = transform.matrix_where_on(params)
            while steps and isinstance(steps[0][0], AffineTransform) and steps[0][0].fixed() == transform.fixed():
                following, params = steps.pop(0)
                assert isinstance(following, AffineTransform)
                matrix = matrix @ following.matrix_where_on(params)
            images = warp(images, matrix, transform.interpolation)
        elif isinstance(transform, RandomResizedCrop) and steps and isinstance(steps[0][0], RandomHorizontalFlip):
            images = transform.apply(images, params, flip=steps.pop(0)[1]["on"])
        elif isinstance(transform, RowTransform) and images is not given:
            images = transform.overwrite(images, params)
        else:
            images = transform.apply(images, params)
    return images


def prepare_images(images: Tensor, preparation: Sequence[Transform]) -> Tensor:
    """Images after transforms that have no random parameters."""
    on = {"on": torch.ones_like(images[:, 0, 0, 0], dtype=torch.bool)}  # its length is symbolic in an ONNX export
    return apply_transforms(images, [(transform, on) for transform in preparation])
