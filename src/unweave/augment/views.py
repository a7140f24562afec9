"""Structured views (paper, section 3.1): pairs of views that share the parameters of one group of transforms, or none.

    image l of the shuffled global batch ─► a pair of kind m = l mod (M + 1)
    kind 0: the parameters of the two views are independent          the views share content
    kind m: the parameters of group m are drawn once for both        the views share content and style m

Legend: n images, K uniform numbers per image, M groups.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from unweave.augment._apply import Steps, apply_transforms, prepare_images
from unweave.augment._transform import Params, Size, Transform, check_images
from unweave.describe import Described
from unweave.distributed import rank, world_size
from unweave.errors import UnweaveError
from unweave.gpu import triton_works

RESERVED = ("content", "h", "joint")


@dataclass(frozen=True)
class Pair:
    """Two views of each image, and the group whose parameters they share: 0 for none, m for the m-th.

    ``shared`` is on the host: it is known before anything is computed, and reading it from a GPU would wait. Views also
    say how they were made: ``steps`` are the transforms of view a and of view b with their parameters, one row per
    image, and ``size`` is the height and width of the images before the first transform.

    Examples:
        >>> import torch, unweave as uw, unweave.augment as A
        >>> pair = uw.Views({"flip": [A.RandomHorizontalFlip()]})(torch.rand(4, 3, 8, 8))
        >>> pair.a.shape, pair.shared
        (torch.Size([4, 3, 8, 8]), tensor([0, 1, 0, 1]))
        >>> [(flip, parameters)] = pair.steps[0]
        >>> parameters["on"].shape
        torch.Size([4])
    """

    a: Tensor
    b: Tensor
    shared: Tensor
    steps: tuple[Steps, Steps] | None = None
    size: Size | None = None


class Asymmetric(Described):
    """Different distributions for the two views: the same transforms in the same order with other settings.

    Where such a group is shared, its parameters are drawn from the first view's distribution or the second's with
    probability ½, image by image, so that sharing changes neither view's distribution on average.

    Examples:
        >>> import unweave as uw, unweave.augment as A
        >>> blur = A.Asymmetric([A.GaussianBlur(7, p=1.0)], [A.GaussianBlur(7, p=0.1)])
        >>> uw.Views({"blur": blur}).spaces
        ('content', 'blur')
    """

    def __init__(self, first: Sequence[Transform], second: Sequence[Transform]) -> None:
        self.first, self.second = list(first), list(second)

    def __repr__(self) -> str:
        return f"Asymmetric({self.first}, {self.second})"


Group = Transform | Sequence[Transform] | Asymmetric


@dataclass(frozen=True)
class Redraw:
    """Draws the parameters of every view several times and keeps the draw with the highest score.

    ``score(images, steps)`` gets n images and, for every transform, the parameters of all draws of one view, draw by
    draw: (tries·n, …). It returns a number for each, (tries·n,). Scores are of each view's own parameters, before a
    group is shared. Among equal scores the first draw is kept.

    Examples:
        >>> import torch, unweave as uw, unweave.augment as A
        >>> def upright(images, steps):
        ...     [(rotation, parameters)] = steps
        ...     return -parameters["angle"].abs()
        >>> views = uw.Views({}, ungrouped=[A.RandomRotation(90)], redraw=A.Redraw(upright, tries=4))
        >>> views(torch.rand(2, 3, 8, 8)).a.shape
        torch.Size([2, 3, 8, 8])
    """

    score: Callable[[Tensor, Steps], Tensor]
    tries: int = 8


@dataclass(frozen=True)
class _Step:
    group: int | None  # None: in no group
    a: Transform
    b: Transform
    columns: slice  # which of the K uniform numbers it uses


def pair_kinds(n: int, groups: int, *, start: int = 0, device: torch.device | str = "cpu", unshared: int = 1) -> Tensor:
    """The kind l mod (M + 1) of each pair (n,), where ``start`` is the first image's place l in the global batch.

    With ``unshared`` > 1 there are so many pairs of kind 0 for each one of another kind.

    Examples:
        >>> pair_kinds(5, groups=2), pair_kinds(5, groups=2, unshared=2)
        (tensor([0, 1, 2, 0, 1]), tensor([0, 0, 1, 2, 0]))
    """
    place = torch.arange(start, start + n, device=device) % (groups + unshared)
    return (place - (unshared - 1)).clamp(min=0)


class Views(Described):
    """Makes pairs of views from batches of images.

    Args:
        groups: named lists of transforms, applied in their order; ``Asymmetric`` where the two views differ.
        ungrouped: transforms in no group: applied to every view after the groups, never shared.
        before: transforms in no group that are applied before the groups.
        all_pairs: make all M + 1 pairs of every image, instead of pair l mod (M + 1) of image l.
        unshared: pairs that share no group for each pair that shares a given one. With more of them content is learned
            from pairs that differ as those of the base method do, and each style from fewer pairs.
        share: whether a pair of kind m has the parameters of group m in common. Without it kinds are the same and no
            pair shares anything: a control that has the spaces and cannot keep style in them.
        redraw: draw each view several times and keep the best draw.

    Examples:
        >>> import torch, unweave as uw, unweave.augment as A
        >>> views = uw.Views({"color": [A.ColorJitter(hue=0.5)], "spatial": [A.RandomRotation(180)]})
        >>> views.spaces
        ('content', 'color', 'spatial')
        >>> pair = views(torch.zeros(6, 3, 32, 32, dtype=torch.uint8))
        >>> pair.shared.tolist()
        [0, 1, 2, 0, 1, 2]
    """

    def __init__(
        self,
        groups: Mapping[str, Group],
        ungrouped: Group = (),
        *,
        before: Group = (),
        all_pairs: bool = False,
        unshared: int = 1,
        share: bool = True,
        redraw: Redraw | None = None,
    ) -> None:
        self.groups = tuple(groups)
        self.all_pairs, self.unshared, self.share, self.redraw = all_pairs, unshared, share, redraw
        if unshared < 1 or (unshared > 1 and all_pairs):
            raise UnweaveError(f"`unshared` must be at least 1, and 1 with `all_pairs`, not {unshared}")
        for name in self.groups:
            if not isinstance(name, str) or not name or name in RESERVED:
                raise UnweaveError(f"a group cannot be named {name!r}: {', '.join(RESERVED)} have other meanings")
        self._steps: list[_Step] = []
        column = 0
        for a, b in _both_views("before", before):
            self._steps.append(_Step(None, a, b, slice(column, column := column + 1 + a.draws)))
        for group, value in enumerate(groups.values()):
            for a, b in _both_views(self.groups[group], value):
                self._steps.append(_Step(group, a, b, slice(column, column := column + 1 + a.draws)))
        for a, b in _both_views("ungrouped", ungrouped):
            self._steps.append(_Step(None, a, b, slice(column, column := column + 1 + a.draws)))
        self._columns = column

    @property
    def spaces(self) -> tuple[str, ...]:
        """The embedding spaces to learn: content, and one for each group."""
        return ("content", *self.groups)

    def without_groups(self) -> "Views":
        """The same transforms in no group: the parameters of the two views are always independent."""
        first, second = [step.a for step in self._steps], [step.b for step in self._steps]
        return Views({}, ungrouped=Asymmetric(first, second), redraw=self.redraw)

    @property
    def size(self) -> Size | None:
        """Height and width of the views, where a crop sets them."""
        size = (0, 0)
        for step in self._steps:
            size = step.a.output_size(size)
        return size if all(size) else None

    def __call__(
        self,
        images: Tensor,
        *,
        generator: torch.Generator | None = None,
        start: int | None = None,
        total: int | None = None,
    ) -> Pair:
        """A pair of views of each image (n, c, h, w): uint8, or float in [0, 1]; on any device.

        All randomness comes from ``generator``, of any device: the same seed gives the same views. ``start`` is the
        place of the first image in the global batch of ``total`` images; both default to this process's part of the
        batch. A generator with the same seed on every process makes the views that one process would make of the whole
        batch.
        """
        n = len(images)
        start = rank() * n if start is None else start
        total = max(world_size() * n, start + n) if total is None else total
        self._check(images, total)
        draw = partial(self.draw, n, generator=generator, device=images.device, start=start, total=total)
        u = draw() if self.redraw is None else self._best_draw(images, self.redraw, draw)
        return self.pair(images, u, start)

    def pair(self, images: Tensor, u: Tensor, start: int = 0) -> Pair:
        """The views that the uniform numbers ``u``, as ``draw`` gives them, make of the images."""
        shared = self.kinds(len(images), start)
        kinds = shared if images.device.type == "cpu" else self.kinds(len(images), start, images.device)
        if self.all_pairs:
            images = images.repeat_interleave(len(self.spaces), 0)
        size = (images.shape[-2], images.shape[-1])
        params_a, params_b = self._fast_parameters(u, kinds, size)
        steps_a: Steps = [(step.a, params) for step, params in zip(self._steps, params_a, strict=True)]
        steps_b: Steps = [(step.b, params) for step, params in zip(self._steps, params_b, strict=True)]
        a, b = apply_transforms(images, steps_a), apply_transforms(images, steps_b)
        return Pair(a, b, shared, (steps_a, steps_b), size)

    def differing(
        self, images: Tensor, group: str, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Two views of each image that differ in the parameters of one group alone, to measure what they change."""
        if group not in self.groups:
            raise UnweaveError(f"`group` {group!r} is not one of {', '.join(self.groups) or 'no groups'}")
        check_images(images)
        size = (images.shape[-2], images.shape[-1])
        u = draw_uniform(len(images), (2, self._columns), generator, images.device).transpose(0, 1)
        first: Steps = []
        second: Steps = []
        for step in self._steps:
            step.a.check(images.shape[1], size)
            first.append((step.a, step.a.parameters(u[0][:, step.columns], size)))
            differs = step.group is not None and self.groups[step.group] == group
            second.append((step.b, step.b.parameters(u[1][:, step.columns], size)) if differs else first[-1])
            size = step.a.output_size(size)
        return apply_transforms(images, first), apply_transforms(images, second)

    def draw(
        self,
        n: int,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        start: int = 0,
        total: int | None = None,
    ) -> Tensor:
        """All that is random about a batch: uniform numbers (2, n, K + M); with ``all_pairs``, n·(M + 1) rows."""
        repeat = len(self.spaces) if self.all_pairs else 1
        total = start + n if total is None else total
        shape = (2, self._columns + len(self.groups))
        rows = slice(start * repeat, (start + n) * repeat)
        return draw_uniform(total * repeat, shape, generator, device, rows).transpose(0, 1)

    def kinds(self, n: int, start: int = 0, device: torch.device | str = "cpu") -> Tensor:
        """The group that each pair shares, created on ``device``: a copy to a GPU could not be captured in a graph."""
        repeat = len(self.spaces) if self.all_pairs else 1
        return pair_kinds(n * repeat, len(self.groups), start=start * repeat, device=device, unshared=self.unshared)

    def prepare(self, images: Tensor) -> Tensor:
        """Images as the encoder expects them outside training: the ungrouped transforms that are not random, alone."""
        check_images(images)
        return prepare_images(images, self.preparation)

    @property
    def preparation(self) -> list[Transform]:
        """The transforms of ``prepare``."""
        return [step.a for step in self._steps if step.group is None and step.a.draws == 0 and step.a.p == 1]

    def transforms(self, group: str | None = None) -> list[Transform]:
        """The transforms of a group, or all of them, of the first view."""
        if group is None:
            return [step.a for step in self._steps]
        return [step.a for step in self._steps if step.group is not None and self.groups[step.group] == group]

    def parameters(self, u: Tensor, shared: Tensor, size: Size) -> tuple[list[Params], list[Params]]:
        """The parameters of every transform for views a and b; group m's are equal where ``shared`` is m."""
        params_a, params_b = [], []
        for step in self._steps:
            a, b = step.a.parameters(u[0][:, step.columns], size), step.b.parameters(u[1][:, step.columns], size)
            if step.group is not None and self.share:
                same = shared == step.group + 1
                from_b = u[0][:, self._columns + step.group] < 0.5 if step.a is not step.b else None
                source = a if from_b is None else _where(from_b, b, a)
                a, b = (a if from_b is None else _where(same, source, a)), _where(same, source, b)
            params_a.append(a)
            params_b.append(b)
            size = step.a.output_size(size)
        return params_a, params_b

    def _fast_parameters(self, u: Tensor, shared: Tensor, size: Size) -> tuple[list[Params], list[Params]]:
        """``parameters``, compiled on a GPU: its many small operations would take longer to launch than the views."""
        if not (u.is_cuda and triton_works()):
            return self.parameters(u, shared, size)
        return self._compiled_parameters(u, shared, size)

    @cached_property
    def _compiled_parameters(self) -> Callable[..., tuple[list[Params], list[Params]]]:
        """Compiled when it is first needed: torch's compiler takes seconds to import."""
        return torch.compile(self.parameters, dynamic=False)

    def _best_draw(self, images: Tensor, redraw: Redraw, draw: Callable[[], Tensor]) -> Tensor:
        n, size = len(images), (images.shape[-2], images.shape[-1])
        u = torch.stack([draw() for _ in range(redraw.tries)], 1)  # (2, tries, n, K + M)
        first = torch.arange(redraw.tries, device=u.device)[:, None] * 1e-6  # prefers the first of equal scores
        chosen = []
        sides = self._fast_parameters(u.flatten(1, 2), u.new_zeros(()), size)
        transforms = ([step.a for step in self._steps], [step.b for step in self._steps])
        for side, params, of_side in zip(u, sides, transforms, strict=True):
            steps = list(zip(of_side, params, strict=True))
            best = (redraw.score(images, steps).unflatten(0, (redraw.tries, n)) - first).argmax(0)
            chosen.append(side.gather(0, best[None, :, None].expand(1, n, side.shape[2])).squeeze(0))
        return torch.stack(chosen)

    def _check(self, images: Tensor, total: int) -> None:
        check_images(images)
        kinds, least = len(self.spaces), len(self.groups) + self.unshared
        if total < least and self.groups and not self.all_pairs:
            raise UnweaveError(
                f"a batch of {total} images is too small for {kinds} kinds of pairs ({', '.join(self.spaces)}); "
                f"use at least {least} images, or Views(all_pairs=True)"
            )
        size = (images.shape[-2], images.shape[-1])
        for step in self._steps:
            step.a.check(images.shape[1], size)
            size = step.a.output_size(size)

    def __repr__(self) -> str:
        lines = [
            f"  {'ungrouped' if group is None else self.groups[group]}: "
            f"{[step.a if step.a is step.b else (step.a, step.b) for step in steps]}"
            for group, steps in itertools.groupby(self._steps, lambda step: step.group)
        ]
        return "Views(\n" + "\n".join(lines) + "\n)"


def draw_uniform(
    total: int,
    shape: tuple[int, ...],
    generator: torch.Generator | None,
    device: torch.device | str,
    rows: slice = slice(None),
) -> Tensor:
    """Uniform numbers for a batch of ``total`` rows of this shape, drawn where the generator is; some rows of them."""
    source = device if generator is None else generator.device
    u = torch.rand(total, *shape, generator=generator, device=source)
    return u[rows].to(device, non_blocking=True)


def _both_views(name: str, value: Group) -> list[tuple[Transform, Transform]]:
    """The transforms of a group for view a and for view b, in pairs."""
    if isinstance(value, Transform):
        value = [value]
    first, second = (value.first, value.second) if isinstance(value, Asymmetric) else (list(value), list(value))
    for transform in (*first, *second):
        if not isinstance(transform, Transform):
            raise UnweaveError(
                f"group {name!r}: {transform!r} is not an unweave transform; wrap one of another library in Replay(…)"
            )
    if [(type(t), t.fixed()) for t in first] != [(type(t), t.fixed()) for t in second]:
        raise UnweaveError(
            f"group {name!r}: both views need the same transforms in the same order, equal in every setting that is "
            "not drawn at random; p=0 switches a transform off"
        )
    return list(zip(first, second, strict=True))


def _where(rows: Tensor, yes: Params, no: Params) -> Params:
    return {name: torch.where(rows.view(-1, *[1] * (value.ndim - 1)), value, no[name]) for name, value in yes.items()}
