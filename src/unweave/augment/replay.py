"""Transforms of other libraries in a group: torchvision's, kornia's, or any callable on an image."""

import random
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from unweave.augment._transform import Params, Size, Transform
from unweave.errors import UnweaveError


class Replay(Transform):
    """Wraps a random transform of another library, so that it can be part of a group. One image at a time: slow.

    Its parameter is a seed. For each image torch's global generator is set to that seed and restored afterwards, so
    equal seeds give equal draws. This requires that all randomness comes from torch's global CPU generator and depends
    on nothing but the image's shape, as in torchvision (v1 and v2) and kornia. The constructor refuses a transform that
    draws from Python's or numpy's generator, keeps state between calls, or whose draws depend on the pixels.

    Examples:
        >>> import torch, torchvision.transforms.v2 as T, unweave.augment as A
        >>> A.Replay(T.RandomPosterize(4))(torch.rand(2, 3, 16, 16).mul(255).byte().float() / 255).shape
        torch.Size([2, 3, 16, 16])
    """

    draws = 2

    def __init__(self, transform: Callable[[Tensor], Tensor], *, uint8: bool | None = None, p: float = 1.0) -> None:
        super().__init__(p=p)
        if not callable(transform):
            raise UnweaveError(f"Replay: `transform` must be callable, not {transform!r}")
        if isinstance(transform, torch.nn.Module):
            transform = transform.eval() if type(transform).__module__.startswith("torchvision") else transform
        self.transform = transform
        self._batched = type(transform).__module__.startswith("kornia")
        self._uint8 = self._wants_uint8() if uint8 is None else uint8
        self._refuse_unless_exact()

    def _draw(self, u: Tensor, size: Size) -> Params:
        return {"seed": (u[:, 0] * 2**24).long() * 2**24 + (u[:, 1] * 2**24).long()}

    def apply(self, images: Tensor, params: Params) -> Tensor:
        """The wrapped transform on each image that is on, with its seed."""
        seeds = params["seed"].tolist()
        ons = params["on"].tolist()
        return torch.stack(
            [self._one(image, seed) if on else image for image, seed, on in zip(images, seeds, ons, strict=True)]
        )

    def _one(self, image: Tensor, seed: int) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            source = (image * 255).round().to(torch.uint8) if self._uint8 else image
            out = self.transform(source[None] if self._batched else source)
            out = out[0] if self._batched else out
        if not isinstance(out, Tensor) or out.shape != image.shape:
            raise UnweaveError(
                f"Replay: {self.transform!r} must give a tensor of the image's own shape {tuple(image.shape)}, "
                f"not {tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__}"
            )
        return (out.to(image.dtype) / 255 if out.dtype == torch.uint8 else out).to(image.device)

    def _wants_uint8(self) -> bool:
        """Some transforms (posterize, JPEG) accept uint8 only."""
        try:
            self.transform(torch.rand(1, 3, 32, 32) if self._batched else torch.rand(3, 32, 32))
        except (TypeError, RuntimeError, ValueError):
            return True
        return False

    def _refuse_unless_exact(self) -> None:
        """Checks that one seed gives one outcome and one sequence of draws, whatever the global states."""
        states = random.getstate(), np.random.get_state()  # noqa: NPY002
        try:
            for seed in range(16):
                image = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(seed))
                first, again = self._one(image, seed), self._one(image, seed)
                random.seed(seed + 1000)
                np.random.seed(seed + 1000)  # noqa: NPY002 - the legacy global state is what such transforms read
                third = self._one(image, seed)
                if not (torch.equal(first, again) and torch.equal(first, third)):
                    raise UnweaveError(
                        f"Replay: {self.transform!r} gives different outcomes for one torch seed (it draws from "
                        "another generator or keeps state), so two views cannot share its parameters; use torch's "
                        "generator in it"
                    )
                if self._draws_used(image, seed) != self._draws_used(image.flip(-1) * 0.5, seed):
                    raise UnweaveError(
                        f"Replay: the draws of {self.transform!r} depend on the pixels, so two views cannot share it"
                    )
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002

    def _draws_used(self, image: Tensor, seed: int) -> bytes:
        """The state of torch's generator afterwards."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            source = (image * 255).round().to(torch.uint8) if self._uint8 else image
            self.transform(source[None] if self._batched else source)
            return torch.get_rng_state().numpy().tobytes()
