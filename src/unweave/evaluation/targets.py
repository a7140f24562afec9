"""What is predicted: classes, several labels for each image, or numbers; and how rows are divided.

Legend: n rows, k outputs or classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from unweave.errors import UnweaveError

Kind = Literal["classes", "multilabel", "regression"]


@dataclass(frozen=True)
class Targets:
    """Labels in the form that probes need.

    Examples:
        >>> as_targets(["cat", "dog", "cat"]).values, as_targets([[1, 0], [1, 1]]).kind, as_targets([0.5, 1.2]).kind
        (tensor([0, 1, 0]), 'multilabel', 'regression')
    """

    kind: Kind
    values: Tensor
    """Classes: (n,) numbers of ``classes``. Several labels: (n, k) of 1, 0, or NaN where a label is left out.
    Regression: (n, k), NaN where a number is unknown."""
    classes: tuple[Any, ...] = ()
    """The labels of the classes, in order."""

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Tensor) -> "Targets":
        """Some of the rows."""
        return Targets(self.kind, self.values[rows], self.classes)

    def to(self, device: torch.device) -> "Targets":
        """On another device."""
        return Targets(self.kind, self.values.to(device), self.classes)


def as_targets(
    labels: Any, kind: Kind | Literal["auto"] = "auto", *, like: Targets | None = None, name: str = "labels"
) -> Targets:
    """Labels as targets.

    Args:
        labels: a vector of numbers or texts, or a matrix.
        kind: "auto": a vector of texts, of whole numbers or of booleans is classes, and one with fractions is a
            regression; a matrix of 1 and 0 has several labels for each image, any other matrix is a regression. In a
            matrix with −1, 1 is present, −1 absent, and 0 is left out.
        like: targets whose kind and classes these have too; a class that is not among them is −1.
        name: the argument that errors name.

    Examples:
        >>> as_targets([3, 5, 3]).classes, as_targets([3.0, 5.5]).kind, as_targets([[1, -1], [0, 1]]).values.tolist()
        ((3, 5), 'regression', [[1.0, 0.0], [nan, 1.0]])
    """
    if isinstance(labels, Targets):
        return labels
    if kind not in ("auto", *get_args(Kind)):
        raise UnweaveError(f"`kind` must be auto, {', '.join(get_args(Kind))}, not {kind!r}")
    values = _as_array(labels, name)
    kind = like.kind if like else _kind(values) if kind == "auto" else kind
    if kind == "classes":
        return _classes(values, like.classes if like else None, name)
    matrix = _matrix(values, kind, name)
    if like is not None and matrix.shape[1] != like.values.shape[1]:
        raise UnweaveError(f"`{name}` has {matrix.shape[1]} columns, those of the fit have {like.values.shape[1]}")
    if kind == "multilabel":
        matrix = _present(matrix, name)
    elif np.isinf(matrix).any():
        raise UnweaveError(f"`{name}` contains infinity in row {int(np.isinf(matrix).any(1).argmax())}")
    return Targets(kind, torch.from_numpy(matrix))


def _as_array(labels: Any, name: str) -> np.ndarray:
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu().numpy()
    try:
        values = np.asarray(labels)
    except ValueError:
        raise UnweaveError(f"`{name}` must be a vector or a matrix: its rows have different lengths") from None
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim not in (1, 2) or not values.size:
        raise UnweaveError(f"`{name}` must be a vector (n,) or a matrix (n, k), not of the shape {values.shape}")
    return values


def _kind(values: np.ndarray) -> Kind:
    if values.ndim == 2:
        return "multilabel" if values.dtype.kind in "iub" or np.isin(values, (-1, 0, 1)).all() else "regression"
    if values.dtype.kind != "f":
        return "classes"
    known = values[~np.isnan(values)]
    return "classes" if (known == np.round(known)).all() else "regression"


def _classes(values: np.ndarray, known: Sequence[Any] | None, name: str) -> Targets:
    if values.ndim != 1:
        raise UnweaveError(f"`{name}` must be a vector of classes, not of the shape {values.shape}")
    if values.dtype.kind == "f":
        if np.isnan(values).any():
            row = int(np.isnan(values).argmax())
            raise UnweaveError(f"`{name}` has no class (NaN) in row {row}: leave such rows out")
        if (fractions := values != np.round(values)).any():
            raise UnweaveError(
                f"`{name}` has fractions such as {values[fractions][0]:g}, not classes: use kind='regression'"
            )
    if values.dtype.kind == "O":
        if any(value is None or value != value for value in values):
            row = next(i for i, value in enumerate(values) if value is None or value != value)
            raise UnweaveError(f"`{name}` has no class in row {row}: leave such rows out")
        values = values.astype(str)
    found, number = np.unique(values, return_inverse=True)
    if known is None:
        if len(found) < 2:
            raise UnweaveError(f"`{name}` has one class, {found[0]!s}: a probe needs at least 2")
        return Targets("classes", torch.from_numpy(number.astype(np.int64)), tuple(found.tolist()))
    place = {label: i for i, label in enumerate(known)}
    order = np.array([place.get(label, -1) for label in found.tolist()], dtype=np.int64)
    return Targets("classes", torch.from_numpy(order[number]), tuple(known))


def _matrix(values: np.ndarray, kind: Kind, name: str) -> np.ndarray:
    if values.dtype.kind not in "fiub":
        raise UnweaveError(f"`{name}` must be numbers for kind={kind!r}, not {values.dtype}")
    matrix = values.astype(np.float64)
    return matrix[:, None] if matrix.ndim == 1 else matrix


def _present(matrix: np.ndarray, name: str) -> np.ndarray:
    """1 and 0, NaN where a label is left out."""
    known = matrix[~np.isnan(matrix)]
    if not np.isin(known, (-1, 0, 1)).all():
        wrong = known[~np.isin(known, (-1, 0, 1))][0]
        raise UnweaveError(f"`{name}` with several labels must be 1 and 0, or 1, −1 and 0 (left out), not {wrong:g}")
    if (known < 0).any():
        matrix = np.where(matrix == 0, np.nan, np.where(matrix < 0, 0.0, matrix))
    if not (matrix == 1).any():
        raise UnweaveError(f"`{name}` has no label that is present")
    return matrix


def assign_folds(targets: Targets, folds: int, seed: int) -> Tensor:
    """The fold of each row (n,), at random; the images of each class are divided evenly among the folds."""
    n = len(targets)
    if not 2 <= folds <= n:
        raise UnweaveError(f"`folds` must be from 2 to the number of images, {n}, not {folds}")
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    if targets.kind == "classes":
        order = order[targets.values.cpu()[order].argsort(stable=True)]
    fold = torch.empty(n, dtype=torch.long)
    fold[order] = torch.arange(n) % folds
    return fold


def split_rows(targets: Targets, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to fit and rows to test, at random; each class is divided in the same proportion."""
    n = len(targets)
    if not (0 < fraction < 1 and 1 <= round(n * fraction) < n):
        raise UnweaveError(f"`test_fraction` {fraction} of {n} images leaves none to fit or none to test")
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    if targets.kind == "classes":
        order = order[targets.values.cpu()[order].argsort(stable=True)]
    # Every row whose place, counted in units of 1 / fraction, passes a whole number is tested.
    place = (torch.arange(1, n + 1, dtype=torch.float64) * fraction + 0.5).floor()
    tested = torch.diff(place, prepend=torch.zeros(1, dtype=torch.float64)) > 0
    return order[~tested].sort().values, order[tested].sort().values
