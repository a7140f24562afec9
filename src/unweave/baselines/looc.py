"""LooC: leave-one-out contrast (Xiao et al. 2021, "What should not be contrastive in contrastive learning").

    query ─► encoder ─► q in every space                with gradients
    keys  ─► teacher ─► k_0, …, k_M in every space      without

    loss = Σ_m mean −log [exp(q·k_m/τ) / (Σ_{j ∈ J_m} exp(q·k_j/τ) + Σ_{k⁻ in queue m} exp(q·k⁻/τ))]      in space m

Key m shares group m's parameters with the query, key 0 none. In space m > 0 the other keys of the same image are
negatives, J_m = {0, …, M}: they differ from the query in style m. In space 0, which is to be invariant to every group,
they are not, J_0 = {0}. Each space has a queue of earlier keys: key m of other images, in space m.

Legend: n images, d dimensions, M groups, q (n, d), k (n, M + 1, d), queue (size, d); all of them unit vectors.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unweave.augment import LeaveOneOut, Views
from unweave.baselines.teacher import follow_, make_teacher
from unweave.describe import Described
from unweave.distributed import gather
from unweave.errors import UnweaveError
from unweave.objectives import BaseMethod, LossTerms, Objective, SimCLR, effective_rank, variance
from unweave.objectives.base import Embeddings
from unweave.settings import require_number

MEASURED = 1024
"""Images on which a space's variance and effective rank are measured."""


def leave_one_out_loss(query: Tensor, keys: Tensor, queue: Tensor, space: int, temperature: float) -> Tensor:
    """LooC's loss of each image (n,) in one space, from unit vectors; ``space`` is m, 0 for content.

    Examples:
        >>> query, keys = torch.tensor([[1.0, 0.0]]), torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
        >>> queue = torch.tensor([[0.0, 1.0]])
        >>> leave_one_out_loss(query, keys, queue, 0, 1.0)  # −log e/(e + 1)
        tensor([0.3133])
        >>> leave_one_out_loss(query, keys, queue, 1, 1.0)  # −log 1/(e + 1 + 1): key 0 is a negative
        tensor([1.5514])
    """
    own = (query[:, None] * keys).sum(2)
    compared = own if space else own[:, :1]
    scores = torch.cat([compared, query @ queue.T], 1) / temperature
    return scores.logsumexp(1) - own[:, space] / temperature


class LooC(Described, Objective):
    """A contrastive loss with a queue for every space, whose keys a teacher makes from leave-one-out views.

    Published settings: batches of 256, queues of 16,384, τ = 0.2, SGD with a learning rate of 0.03. LooC evaluates h.
    LooC++ evaluates the concatenation of what the spaces do not share: with ``Encoder(branches=True)`` every space has
    its own copy of a ResNet's last stage, and h is their concatenation.

    Args:
        spaces: the names of the spaces in order, as ``views.spaces``; content alone gives MoCo.
        temperature: τ.
        queue_size: the number of keys in each queue. It should be well below the number of images: keys of the query's
            own image would count as negatives.
        momentum: the weight of the teacher's own parameters in each update.

    Notes:
        The first updates have the momentum 1 − 1/t, so that the teacher is the mean of the encoders so far until that
        reaches ``momentum``: a short run does not compare with a teacher that is still close to its random beginning.
        Keys are normalised with the statistics of their own batch, under several GPUs of the global batch, where MoCo
        shuffles images among GPUs: by the statistics of few images, the keys of a batch would differ from those in the
        queue.

    Examples:
        >>> import tempfile, unweave as uw, unweave.augment as A
        >>> views = uw.Views({"color": [A.ColorJitter(hue=0.5)]})
        >>> encoder = uw.Encoder(uw.SmallConvNet(16, layers=((4, 2),), dim=8), views.spaces, dim=4, hidden=8)
        >>> objective = LooC(views.spaces, queue_size=64)
        >>> config = uw.TrainConfig(steps=2, batch_size=8)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     run = uw.train(uw.Sprites(16), views, encoder, objective, config, out, progress=False)
        >>> sorted(name for name in run.metrics[-1] if name.startswith("color/"))
        ['color/effective_rank', 'color/invariance_gap', 'color/loss', 'color/variance']
    """

    encodes_b = False
    updates: Tensor
    teacher: nn.Module

    def __init__(
        self,
        spaces: Sequence[str],
        *,
        temperature: float = 0.2,
        queue_size: int = 16_384,
        momentum: float = 0.999,
    ) -> None:
        super().__init__()
        self.spaces = tuple(spaces)
        if not self.spaces or self.spaces[0] != "content" or len(set(self.spaces)) != len(self.spaces):
            raise UnweaveError(f"`spaces` must be different names, 'content' first, not {self.spaces}")
        require_number("temperature", temperature, "> 0")
        require_number("queue_size", queue_size, ">= 1")
        require_number("momentum", momentum, "in [0, 1]")
        self.temperature, self.queue_size, self.momentum = temperature, queue_size, momentum
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self._updates = 0  # the value of the buffer, known to the host
        self._keys: list[Tensor] = []
        self._encoder: list[nn.Module] = []  # in a list: not a submodule

    @property
    def geometry(self) -> BaseMethod:
        """Unit vectors, as SimCLR's."""
        return SimCLR(temperature=self.temperature)

    @property
    def least_batch(self) -> int:
        """Every image has all kinds of keys; batch norm needs two images."""
        return 2

    def sampler(self, views: Any) -> LeaveOneOut:
        """One query and M + 1 keys of each image."""
        if not isinstance(views, Views):
            raise UnweaveError(
                f"LooC makes queries and keys from `views` of the class Views, not {type(views).__name__}"
            )
        return LeaveOneOut(views)

    def attach(self, encoder: nn.Module) -> None:
        """Makes the teacher and the queues, which begin with random directions; what they held before is dropped."""
        dims = getattr(encoder, "dims", None)
        if not isinstance(dims, Mapping) or set(dims) != set(self.spaces):
            raise UnweaveError(
                f"LooC needs to know the size of each space: the encoder's `dims` must be a number for each of "
                f"{', '.join(self.spaces)}, not {dims}"
            )
        self._encoder, self.teacher = [encoder], make_teacher(encoder)
        self._updates = 0
        self.updates.zero_()
        generator = torch.Generator().manual_seed(0)
        for m, space in enumerate(self.spaces):
            directions = torch.randn(self.queue_size, dims[space], generator=generator)
            self.register_buffer(f"queue_{m}", F.normalize(directions, dim=1))

    def queue(self, m: int) -> Tensor:
        """The queue of space m (size, d), newest keys first."""
        return self.get_buffer(f"queue_{m}")

    def targets(self, pair: Any) -> dict[str, Tensor]:
        """The keys in every space, unit vectors (n, M + 1, d_m)."""
        keys = self.teacher(pair.b)
        return {s: F.normalize(keys[s].float(), dim=1).unflatten(0, (-1, len(self.spaces))) for s in self.spaces}

    def forward(
        self, z_a: Embeddings, z_b: Embeddings, shared: Tensor, targets: Mapping[str, Tensor] | None = None
    ) -> LossTerms:
        """The terms of a batch, from the queries' embeddings and the teacher's keys."""
        assert targets is not None
        measured: dict[str, list[Tensor]] = {"loss": [], "invariance_gap": [], "variance": [], "effective_rank": []}
        losses, newest = [], []
        with torch.autocast(z_a["content"].device.type, enabled=False):  # similarities need more than eight bits
            for m, space in enumerate(self.spaces):
                keys = targets[space]
                query = F.normalize(z_a[space].to(keys.dtype), dim=1)
                # The loss is the mean over all processes: the same number on each, with the gradient of one process.
                loss = gather(leave_one_out_loss(query, keys, self.queue(m), m, self.temperature)).mean()
                losses.append(loss)
                newest.append(gather(keys[:, m]))
                with torch.no_grad():
                    spread = query[:MEASURED] * query.shape[1] ** 0.5
                    measured["loss"].append(loss.detach())
                    measured["invariance_gap"].append(1 - gather((query * keys[:, m]).sum(1)).mean())
                    measured["variance"].append(variance(spread))
                    measured["effective_rank"].append(effective_rank(spread))
        self._keys = newest
        return LossTerms(
            torch.stack(losses).sum(), self.spaces, per_space={name: torch.stack(v) for name, v in measured.items()}
        )

    @torch.no_grad()
    def update(self, terms: LossTerms) -> None:
        """The teacher follows the encoder, and the keys of this batch enter the queues."""
        self._updates += 1
        self.updates.add_(1)
        follow_(self.teacher, self._encoder[0], min(self.momentum, 1 - 1 / self._updates))
        for m, keys in enumerate(self._keys):
            queue = self.queue(m)
            queue.copy_(torch.cat([keys, queue])[: self.queue_size])

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._updates = int(self.updates)
