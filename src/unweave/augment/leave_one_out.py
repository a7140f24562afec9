"""Leave-one-out views (Xiao et al. 2021): one query of each image, and a key for every kind of pair.

    query   parameters of its own
    key 0   parameters of its own                                       the query and the key share content
    key m   group m's parameters are the query's, the others its own    they share content and style m

Legend: n images, K uniform numbers per view, M groups.
"""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from unweave.augment._apply import Steps, apply_transforms
from unweave.augment._transform import Params, Size
from unweave.augment.views import Pair, Views, _where, draw_uniform, pair_kinds
from unweave.describe import Described
from unweave.distributed import rank, world_size
from unweave.errors import UnweaveError
from unweave.gpu import triton_works


class LeaveOneOut(Described):
    """Makes one query and M + 1 keys of each image, with the transforms and groups of ``views``.

    Of the pair it returns, ``a`` are the n queries and ``b`` the n·(M + 1) keys, image by image; ``shared`` is the
    group that each key shares with its query.

    Where a group is ``Asymmetric``, the query and every key draw it from the first distribution or the second with
    probability ½; outside groups the query draws from the first and the keys from the second.

    Examples:
        >>> import torch, unweave as uw, unweave.augment as A
        >>> views = uw.Views({"color": [A.ColorJitter(hue=0.5)], "spatial": [A.RandomRotation(180)]})
        >>> made = A.LeaveOneOut(views)(torch.rand(4, 3, 16, 16))
        >>> len(made.a), len(made.b), made.shared.tolist()
        (4, 12, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2])
    """

    def __init__(self, views: Views) -> None:
        if views.redraw is not None:
            raise UnweaveError("queries and keys cannot be redrawn: construct `views` without `redraw`")
        self.views = views

    @property
    def spaces(self) -> tuple[str, ...]:
        """Content, and one space for each group."""
        return self.views.spaces

    def __call__(
        self,
        images: Tensor,
        *,
        generator: torch.Generator | None = None,
        start: int | None = None,
        total: int | None = None,
    ) -> Pair:
        """The query and the keys of each image (n, c, h, w); the arguments are those of ``Views``."""
        n, kinds = len(images), len(self.spaces)
        start = rank() * n if start is None else start
        total = max(world_size() * n, start + n) if total is None else total
        self.views._check(images, max(total, kinds))
        u = self.draw(n, generator=generator, device=images.device, start=start, total=total)
        size = (images.shape[-2], images.shape[-1])
        of_queries, of_keys = self._fast_parameters(u, size)
        steps = self.views._steps
        first: Steps = [(step.a, params) for step, params in zip(steps, of_queries, strict=True)]
        second: Steps = [(step.b, params) for step, params in zip(steps, of_keys, strict=True)]
        queries = apply_transforms(images, first)
        keys = apply_transforms(images.repeat_interleave(kinds, 0), second)
        return Pair(queries, keys, pair_kinds(n * kinds, kinds - 1), (first, second), size)

    def draw(
        self,
        n: int,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        start: int = 0,
        total: int | None = None,
    ) -> Tensor:
        """All that is random about a batch: uniform numbers (n, M + 2, K + M) of the query and the keys."""
        total = start + n if total is None else total
        shape = (len(self.spaces) + 1, self.views._columns + len(self.views.groups))
        return draw_uniform(total, shape, generator, device, slice(start, start + n))

    def parameters(self, u: Tensor, size: Size) -> tuple[list[Params], list[Params]]:
        """The parameters of every transform for the n queries and the n·(M + 1) keys, from ``draw``'s numbers."""
        of_queries, of_keys = [], []
        views, rows = u.shape[:2], u.flatten(0, 1)
        for step in self.views._steps:
            params = step.a.parameters(rows[:, step.columns], size)
            if step.a is not step.b:
                from_b = self._from_b(u, step.group).flatten()
                params = _where(from_b, step.b.parameters(rows[:, step.columns], size), params)
            by_view = {name: value.unflatten(0, views) for name, value in params.items()}
            queries = {name: value[:, 0].contiguous() for name, value in by_view.items()}
            keys = {name: value[:, 1:].clone() for name, value in by_view.items()}
            if step.group is not None:
                for name, value in keys.items():
                    value[:, step.group + 1] = queries[name]
            of_queries.append(queries)
            of_keys.append({name: value.flatten(0, 1) for name, value in keys.items()})
            size = step.a.output_size(size)
        return of_queries, of_keys

    def _from_b(self, u: Tensor, group: int | None) -> Tensor:
        """Which views draw from the second distribution: (n, M + 2)."""
        if group is not None:
            return u[:, :, self.views._columns + group] < 0.5
        return (torch.arange(u.shape[1], device=u.device) > 0).expand(u.shape[:2])

    def _fast_parameters(self, u: Tensor, size: Size) -> tuple[list[Params], list[Params]]:
        """``parameters``, compiled on a GPU, as those of ``Views``."""
        return (self._compiled_parameters if u.is_cuda and triton_works() else self.parameters)(u, size)

    @cached_property
    def _compiled_parameters(self) -> Callable[..., tuple[list[Params], list[Params]]]:
        return torch.compile(self.parameters, dynamic=False)
