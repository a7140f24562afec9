"""Structured views (paper, section 3.1): pairs of views that share one group's parameters, or none.

    image l of the shuffled global batch ─► pair of kind m = l mod (M + 1)
    kind 0: all parameters of the two views are drawn apart        they share content
    kind m: group m's parameters are drawn once, for both views    they share content and style m

Legend: n images, K uniform numbers an image, M groups.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unweave.augment._resample import warp
from unweave.augment._transform import Params, RowTransform, Size, Transform, as_float, check_images, triton_works
from unweave.augment.geometry import AffineTransform, RandomHorizontalFlip, RandomResizedCrop
from unweave.errors import UnweaveError
from unweave.processes import rank, world_size

Transforms = Sequence[Transform]
Group = Transform | Transforms | tuple[Transforms, Transforms]
RESERVED = ("content", "h", "joint")


@dataclass(frozen=True)
class Pair:
    """Two views of each image, and which group's parameters they share: 0 for none, m for the m-th.

    ``shared`` stays on the host: it is known before anything is computed, and asking a GPU for it would wait.
    """

    a: Tensor
    b: Tensor
    shared: Tensor


@dataclass(frozen=True)
class _Step:
    group: int | None  # None: always applied, never shared
    a: Transform
    b: Transform
    columns: slice  # which of the K uniform numbers are its own


class Views:
    """Makes pairs of views from batches of images.

    Args:
        groups: named lists of transforms, applied in their order. A pair of lists ``([…], […])`` gives the two views
            different distributions; where such a group is shared, its parameters are drawn from the first's or the
            second's with probability ½, image by image.
        always: applied after the groups to every view, shared by none; a pair of lists is one for each view.
        all_pairs: make all M + 1 pairs of every image, instead of pair l mod (M + 1) of image l.

    >>> import torch, unweave.augment as A
    >>> views = A.Views({"color": [A.ColorJitter(hue=0.5)], "spatial": [A.RandomRotation(180)]})
    >>> views.spaces
    ('content', 'color', 'spatial')
    >>> pair = views(torch.zeros(6, 3, 32, 32, dtype=torch.uint8))
    >>> pair.shared.tolist()
    [0, 1, 2, 0, 1, 2]
    """

    def __init__(
        self,
        groups: Mapping[str, Group],
        always: Transforms | tuple[Transforms, Transforms] = (),
        *,
        all_pairs: bool = False,
    ) -> None:
        self.groups = tuple(groups)
        self.all_pairs = all_pairs
        for name in self.groups:
            if not isinstance(name, str) or not name or name in RESERVED:
                raise UnweaveError(f"a group cannot be named {name!r}: {', '.join(RESERVED)} are taken")
        self._steps: list[_Step] = []
        column = 0
        for group, value in enumerate(groups.values()):
            for a, b in _sides(self.groups[group], value):
                self._steps.append(_Step(group, a, b, slice(column, column := column + 1 + a.draws)))
        for a, b in _sides("always", always):
            self._steps.append(_Step(None, a, b, slice(column, column := column + 1 + a.draws)))
        self._columns = column
        # A hundred small operations, launched one by one, would take a GPU longer than the views themselves.
        self._compiled_parameters = torch.compile(self.parameters, dynamic=False)

    @property
    def spaces(self) -> tuple[str, ...]:
        """The embedding spaces these views ask for: content, and one for each group."""
        return ("content", *self.groups)

    def __call__(
        self,
        images: Tensor,
        *,
        generator: torch.Generator | None = None,
        start: int | None = None,
        total: int | None = None,
    ) -> Pair:
        """A pair of views of each image (n, c, h, w): uint8, or float in [0, 1]; on any device.

        All randomness comes from ``generator``, of any device: the same seed, the same views. ``start`` is the place of
        the first image in the global batch of ``total`` images; both are found from ``torch.distributed`` unless given.
        A generator seeded alike on every process then makes the views that one process would make of the whole batch.
        """
        n = len(images)
        start = rank() * n if start is None else start
        total = max(world_size() * n, start + n) if total is None else total
        self._check(images, total)
        u, shared = self.draw_for(images, generator, start, total)
        return self.pair(images, u, shared, start)

    def draw_for(
        self, images: Tensor, generator: torch.Generator | None, start: int, total: int
    ) -> tuple[Tensor, Tensor]:
        """As ``draw``; for views that hang on the image."""
        return self.draw(len(images), generator=generator, device=images.device, start=start, total=total)

    def pair(self, images: Tensor, u: Tensor, shared: Tensor, start: int = 0) -> Pair:
        """The views that ``u`` and ``shared``, as drawn, make of the images."""
        kinds = shared if images.device.type == "cpu" else self.kinds(len(images), start, images.device)
        if self.all_pairs:
            images = images.repeat_interleave(len(self.spaces), 0)
        params_a, params_b = self.fast_parameters(u, kinds, (images.shape[-2], images.shape[-1]))
        a = run(images, [(step.a, params) for step, params in zip(self._steps, params_a, strict=True)])
        b = run(images, [(step.b, params) for step, params in zip(self._steps, params_b, strict=True)])
        return Pair(a, b, shared)

    def draw(
        self,
        n: int,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        start: int = 0,
        total: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """All that is random about a batch: uniform numbers (2, n, K + M), and which group each image shares (n,).

        With ``all_pairs`` both have n·(M + 1) rows.
        """
        repeat = len(self.spaces) if self.all_pairs else 1
        total = start + n if total is None else total
        source = device if generator is None else generator.device
        u = torch.rand(total * repeat, 2, self._columns + len(self.groups), generator=generator, device=source)
        u = u[start * repeat : (start + n) * repeat].transpose(0, 1).to(device, non_blocking=True)
        return u, self.kinds(n, start)

    def kinds(self, n: int, start: int = 0, device: torch.device | str = "cpu") -> Tensor:
        """Which group each image shares; made where it is needed, since a copy to a GPU cannot be recorded."""
        repeat = len(self.spaces) if self.all_pairs else 1
        return torch.arange(start * repeat, (start + n) * repeat, device=device) % len(self.spaces)

    def plain(self, images: Tensor) -> Tensor:
        """Images as they are, but for what is always applied and is not random: how to embed, not to train."""
        check_images(images)
        fixed = [s.a for s in self._steps if s.group is None and s.a.draws == 0 and s.a.p == 1]
        on = {"on": torch.ones(len(images), dtype=torch.bool, device=images.device)}
        return run(images, [(transform, on) for transform in fixed])

    def parameters(self, u: Tensor, shared: Tensor, size: Size) -> tuple[list[Params], list[Params]]:
        """The parameters of every transform for views a and b, group m's the same where ``shared`` is m."""
        params_a, params_b = [], []
        for step in self._steps:
            a, b = step.a.parameters(u[0][:, step.columns], size), step.b.parameters(u[1][:, step.columns], size)
            if step.group is not None:
                same = shared == step.group + 1
                from_b = u[0][:, self._columns + step.group] < 0.5 if step.a is not step.b else None
                source = a if from_b is None else _where(from_b, b, a)
                a, b = (a if from_b is None else _where(same, source, a)), _where(same, source, b)
            params_a.append(a)
            params_b.append(b)
            size = step.a.output_size(size)
        return params_a, params_b

    def fast_parameters(self, u: Tensor, shared: Tensor, size: Size) -> tuple[list[Params], list[Params]]:
        """``parameters``, compiled where that can be."""
        make = self._compiled_parameters if u.is_cuda and triton_works() else self.parameters
        return make(u, shared, size)

    def _check(self, images: Tensor, total: int) -> None:
        check_images(images)
        kinds = len(self.spaces)
        if total < kinds and not self.all_pairs:
            raise UnweaveError(
                f"a batch of {total} images is too small for {kinds} kinds of pairs ({', '.join(self.spaces)}); "
                f"take at least {kinds} images, or all_pairs=True"
            )
        size = (images.shape[-2], images.shape[-1])
        for step in self._steps:
            step.a.check(images.shape[1], size)
            size = step.a.output_size(size)

    def __repr__(self) -> str:
        lines = [
            f"  {'always' if group is None else self.groups[group]}: "
            f"{[step.a if step.a is step.b else (step.a, step.b) for step in steps]}"
            for group, steps in itertools.groupby(self._steps, lambda step: step.group)
        ]
        return "Views(\n" + "\n".join(lines) + "\n)"


def run(images: Tensor, steps: Sequence[tuple[Transform, Params]]) -> Tensor:
    """Applies transforms in order; affine neighbours, and a crop with the flip after it, resample once."""
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


def _sides(name: str, value: Group) -> list[tuple[Transform, Transform]]:
    """The transforms of a group for view a and for view b, side by side."""
    if isinstance(value, Transform):
        value = [value]
    asymmetric = isinstance(value, tuple) and len(value) == 2 and not isinstance(value[0], Transform)
    sides: list[list[Transform]] = [list(side) for side in (value if asymmetric else (value, value))]  # type: ignore
    first, second = sides
    for transform in (*first, *second):
        if not isinstance(transform, Transform):
            raise UnweaveError(
                f"group {name!r}: {transform!r} is no unweave transform; wrap a foreign one in Replay(…)"
            )
    if [(type(t), t.fixed()) for t in first] != [(type(t), t.fixed()) for t in second]:
        raise UnweaveError(
            f"group {name!r}: both views need the same transforms in the same order, alike in all that is not drawn "
            "(p=0 switches one off)"
        )
    return list(zip(first, second, strict=True))


def _where(rows: Tensor, yes: Params, no: Params) -> Params:
    return {name: torch.where(rows.view(-1, *[1] * (value.ndim - 1)), value, no[name]) for name, value in yes.items()}
