"""The labels and groups to which notions are bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.groups import group_name

_MOST_NAMES = 10  # of groups in a description


class Space(NamedTuple):
    """The labels and groups of the training data, in the order of their indices.

    Examples
    --------
    >>> import torch
    >>> from fairconstrained.constraints import Space
    >>> space = Space(["no", "yes"], ["a", "b"])
    >>> space.count_cells(y=torch.tensor([0, 1, 1]), group=torch.tensor([0, 0, 1]))
    tensor([[1, 0],
            [1, 1]])
    """

    classes: Sequence[Any]
    groups: Sequence[Any]

    @property
    def n_cells(self) -> int:
        """Number of (label, group) pairs."""
        return len(self.classes) * len(self.groups)

    def count_cells(self, y: Tensor, group: Tensor) -> Tensor:
        """Number of rows of each label and group, (n_classes, n_groups)."""
        shape = (len(self.classes), len(self.groups))
        cells = torch.bincount(y * shape[1] + group, minlength=self.n_cells)
        return cells.reshape(shape)

    def describe(self, cells: NDArray[np.bool_]) -> str:
        """Describe a set of rows, given by its cells as booleans, (n_classes, n_groups)."""
        groups: list[int] = np.flatnonzero(cells.any(axis=0)).tolist()
        labels: list[int] = np.flatnonzero(cells.any(axis=1)).tolist()
        words = []
        if len(groups) < len(self.groups):
            named = [group_name(self.groups[i]) for i in groups]
            if len(named) > _MOST_NAMES:
                named[_MOST_NAMES - 1 :] = [f"{len(named) - _MOST_NAMES + 1} more"]
            words.append("group " + " or ".join(named))
        if len(labels) < len(self.classes):
            words.append("label " + " or ".join(str(self.classes[i]) for i in labels))
        return ", ".join(words) or "all rows"
