"""What a transform is: uniform numbers (n, k) → parameters, one row per image → images.

Parameters are drawn separately from being applied, so that two views can be given the same parameters: sharing a group
of transforms between the views of some images is one ``torch.where`` on plain tensors.

Legend: n images, c channels, h×w pixels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from unweave.describe import Described
from unweave.errors import UnweaveError
from unweave.gpu import triton_works

Params = dict[str, Tensor]
Size = tuple[int, int]


class Transform(Described):
    """Base of all transforms.

    A subclass says how many uniform numbers one image needs (``draws``), turns them into parameters (``_draw``) and
    applies parameters to images (``apply``). ``p`` is the probability that an image is transformed at all; the outcome
    is the parameter ``"on"``.

    Examples:
        >>> import torch, unweave.augment as A
        >>> class Invert(A.Transform):
        ...     def apply(self, images, params):
        ...         return torch.where(params["on"].view(-1, 1, 1, 1), 1 - images, images)
        >>> Invert(p=1.0)(torch.zeros(1, 3, 2, 2)).unique()
        tensor([1.])
    """

    geometric: bool = False
    """Whether it moves pixels, rather than changing their values."""
    draws: int = 0

    def __init__(self, *, p: float = 1.0) -> None:
        if not 0 <= p <= 1:
            raise UnweaveError(f"{type(self).__name__}: `p` is a probability in [0, 1], not {p}")
        self.p = p

    def _draw(self, u: Tensor, size: Size) -> Params:
        """Parameters from uniform numbers ``u`` (n, draws), for images of height and width ``size``."""
        return {}

    def apply(self, images: Tensor, params: Params) -> Tensor:
        """Float images (n, c, h, w) in [0, 1], transformed by ``params``, one row per image."""
        raise NotImplementedError

    def output_size(self, size: Size) -> Size:
        """Height and width of the outcome for images of this size."""
        return size

    def check(self, channels: int, size: Size) -> None:
        """Raises ``UnweaveError`` where images of this kind cannot be transformed."""

    def fixed(self) -> dict[str, object]:
        """The settings that are not drawn at random: two transforms may share parameters only where these agree."""
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
        """Draws parameters and applies them."""
        check_images(images)
        images = as_float(images)
        size = (images.shape[-2], images.shape[-1])
        self.check(images.shape[1], size)
        return self.apply(images, self.sample(len(images), size=size, generator=generator, device=images.device))

    def __repr__(self) -> str:
        settings = ", ".join(f"{k}={v}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"{type(self).__name__}({settings})"


class RowTransform(Transform):
    """A transform that keeps the images' size and changes only the images that are on.

    A subclass computes the changed images (``_change``), and may have a GPU kernel that works in place (``_kernel``).
    """

    def apply(self, images: Tensor, params: Params) -> Tensor:
        """A transformed copy."""
        return self.overwrite(images.clone(memory_format=torch.contiguous_format), params)

    def overwrite(self, images: Tensor, params: Params) -> Tensor:
        """The same in place, for a pipeline that owns its images."""
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
        """The changed images, all of them being on."""
        raise NotImplementedError

    def _kernel(self, images: Tensor, params: Params) -> None:
        """The same in place on a GPU."""
        self._select(images, params)

    def _select(self, images: Tensor, params: Params) -> None:
        """Changes all images and keeps the result for those that are on, without a value being read by the host."""
        images.copy_(torch.where(params["on"].view(-1, 1, 1, 1), self._change(images, params), images))


def as_float(images: Tensor) -> Tensor:
    """float32 images: uint8 divided by 255, floats unchanged."""
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def check_images(images: Tensor) -> None:
    """Raises unless images are (n, c, h, w), uint8 or float in [0, 1]."""
    if not isinstance(images, Tensor) or images.ndim != 4:
        found = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise UnweaveError(f"images must be a tensor of shape (n, channels, height, width), not {found}")
    if 0 in images.shape:
        raise UnweaveError(f"images of shape {tuple(images.shape)} are empty")
    if images.shape[1] > 16 and images.shape[3] in (1, 3, 4):
        raise UnweaveError(
            f"images of the shape {tuple(images.shape)} have their channels last; use .permute(0, 3, 1, 2)"
        )
    if images.dtype == torch.uint8:
        return
    if not images.is_floating_point():
        raise UnweaveError(f"images must be uint8 or float, not {images.dtype}")
    if not images.is_cuda:  # on a GPU the check would wait for the work queued before it
        low, high = (x.item() for x in images.aminmax())
        if not (low >= -1e-3 and high <= 1 + 1e-3):
            raise UnweaveError(
                f"float images must lie in [0, 1], not [{low:.3g}, {high:.3g}]; divide by 255, and normalise in "
                "Views(ungrouped=[Normalize(…)])"
            )


def between(u: Tensor, low: float, high: float) -> Tensor:
    """Uniform numbers in [0, 1) scaled to [low, high)."""
    return low + (high - low) * u


def as_range(
    name: str, value: float | Sequence[float], *, low: float, high: float = float("inf")
) -> tuple[float, float]:
    """``value`` as a (minimum, maximum) pair within [low, high]; raises otherwise."""
    pair = tuple(value) if isinstance(value, Sequence) else None
    if pair is None or len(pair) != 2 or not low <= pair[0] <= pair[1] <= high:
        raise UnweaveError(f"{name} must be a (minimum, maximum) pair within [{low}, {high}], not {value!r}")
    return float(pair[0]), float(pair[1])
