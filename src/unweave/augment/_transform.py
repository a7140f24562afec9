"""What a transform is: n×k uniform numbers → parameters, one row an image → images.

Drawing is apart from applying, so that two views can be given the same parameters: sharing a group of transforms
between the views of some images is then one ``torch.where`` on plain tensors.

Legend: n images, c channels, h×w pixels.
"""

import warnings
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from unweave.errors import UnweaveError

Params = dict[str, Tensor]
Size = tuple[int, int]


class Transform:
    """Base of all transforms.

    A subclass says how many uniform numbers one image needs (``draws``), turns them into parameters (``_draw``) and
    applies parameters to images (``apply``). ``p`` is the probability with which an image is transformed at all; the
    outcome is the parameter ``"on"``.
    """

    draws: int = 0

    def __init__(self, *, p: float = 1.0) -> None:
        if not 0 <= p <= 1:
            raise UnweaveError(f"{type(self).__name__}: p is a probability in [0, 1], not {p}")
        self.p = p

    def _draw(self, u: Tensor, size: Size) -> Params:
        """Parameters from uniform numbers ``u`` (n, draws); ``size`` is the height and width of the images."""
        return {}

    def apply(self, images: Tensor, params: Params) -> Tensor:
        """Float images (n, c, h, w) in [0, 1], transformed by ``params``, one row an image."""
        raise NotImplementedError

    def output_size(self, size: Size) -> Size:
        """Height and width of what ``apply`` gives for images of this size."""
        return size

    def check(self, channels: int, size: Size) -> None:
        """Raises where images of this kind cannot be transformed."""

    def fixed(self) -> dict[str, object]:
        """What is not drawn: two transforms may exchange parameters only where this agrees."""
        return {}

    def parameters(self, u: Tensor, size: Size) -> Params:
        """Parameters from uniform numbers ``u`` (n, 1 + draws), the first of which decides on ``p``."""
        return {"on": u[:, 0] < self.p, **self._draw(u[:, 1:], size)}

    def sample(
        self,
        n: int,
        *,
        size: Size,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> Params:
        """Parameters for n images of height and width ``size``."""
        return self.parameters(torch.rand(n, 1 + self.draws, generator=generator, device=device), size)

    def __call__(self, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draws and applies: for a quick look, or for a pipeline that shares nothing."""
        check_images(images)
        images = as_float(images)
        size = (images.shape[-2], images.shape[-1])
        self.check(images.shape[1], size)
        return self.apply(images, self.sample(len(images), size=size, generator=generator, device=images.device))

    def __repr__(self) -> str:
        settings = ", ".join(f"{k}={v}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"{type(self).__name__}({settings})"


class RowTransform(Transform):
    """A transform that leaves the images' size alone and touches only those that are on.

    A subclass says what becomes of the images that are on (``_change``), and may bring a GPU kernel that does so in
    place (``_kernel``).
    """

    def apply(self, images: Tensor, params: Params) -> Tensor:
        """A changed copy."""
        return self.overwrite(images.clone(memory_format=torch.contiguous_format), params)

    def overwrite(self, images: Tensor, params: Params) -> Tensor:
        """The same, in place: for a pipeline that owns its images."""
        if images.is_cuda:
            (self._kernel if triton_works() and images.is_contiguous() else self._select)(images, params)
            return images
        rows = params["on"].nonzero().squeeze(1)
        if len(rows) == len(images):
            return images.copy_(self._change(images, params))
        if len(rows):
            images[rows] = self._change(images[rows], {name: value[rows] for name, value in params.items()})
        return images

    def _change(self, images: Tensor, params: Params) -> Tensor:
        """What becomes of images that are all on."""
        raise NotImplementedError

    def _kernel(self, images: Tensor, params: Params) -> None:
        """The same in place on a GPU, for the images that are on."""
        self._select(images, params)

    def _select(self, images: Tensor, params: Params) -> None:
        """Changes all and keeps those that are on: no number has to travel to the host."""
        images.copy_(torch.where(params["on"].view(-1, 1, 1, 1), self._change(images, params), images))


@cache
def triton_works() -> bool:
    """Whether the GPU kernels can be had: Triton compiles them here, which wants a C compiler and Python's headers."""
    if find_spec("triton") is None:
        return False
    try:
        from unweave.augment import _kernels

        on = torch.ones(1, dtype=torch.bool, device="cuda")
        _kernels.solarize_(torch.zeros(1, 3, 8, 8, device="cuda"), on, 0.5)
    except Exception as error:  # the compiler's, the linker's, Triton's own: they have no common base
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        warnings.warn(
            f"GPU kernels cannot be compiled on this machine, views are made by slower ones: {reason[:200]} (a C "
            "compiler and Python's headers are needed: on Debian, apt install gcc python3-dev)",
            stacklevel=2,
        )
        return False
    return True


def as_float(images: Tensor) -> Tensor:
    """float32: uint8 to [0, 1], floats as they are."""
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def check_images(images: Tensor) -> None:
    """Raises unless images are (n, c, h, w), uint8 or float in [0, 1]."""
    if not isinstance(images, Tensor) or images.ndim != 4:
        found = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise UnweaveError(f"images must be a tensor of shape (n, channels, height, width), not {found}")
    if 0 in images.shape:
        raise UnweaveError(f"images of shape {tuple(images.shape)} are empty")
    if images.shape[1] not in (1, 3):
        raise UnweaveError(
            f"images must have 1 or 3 channels in the second place, not {images.shape[1]}: their shape is "
            f"{tuple(images.shape)}; channels-last images need .permute(0, 3, 1, 2)"
        )
    if images.dtype == torch.uint8:
        return
    if not images.is_floating_point():
        raise UnweaveError(f"images must be uint8 or float, not {images.dtype}")
    if not images.is_cuda:  # on a GPU the look would wait for everything before it
        low, high = (x.item() for x in images.aminmax())
        if not (low >= -1e-3 and high <= 1 + 1e-3):
            raise UnweaveError(
                f"float images must lie in [0, 1], not [{low:.3g}, {high:.3g}]; divide by 255, and leave normalisation "
                "to Views(always=[Normalize(…)])"
            )


def between(u: Tensor, low: float, high: float) -> Tensor:
    """Uniform numbers in [0, 1) stretched to [low, high)."""
    return low + (high - low) * u


def as_range(
    name: str, value: float | Sequence[float], *, low: float, high: float = float("inf")
) -> tuple[float, float]:
    """A (minimum, maximum) pair that lies in [low, high], or the reason why not."""
    pair = tuple(value) if isinstance(value, Sequence) else None
    if pair is None or len(pair) != 2 or not low <= pair[0] <= pair[1] <= high:
        raise UnweaveError(f"{name} must be a (minimum, maximum) pair within [{low}, {high}], not {value!r}")
    return float(pair[0]), float(pair[1])
