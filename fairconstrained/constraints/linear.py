"""Linear combinations of rates: what rate constraints, caps and loss parity become."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.constraints.affine import AffineMap
from fairconstrained.constraints.moments import NEVER_BINDS, MomentConstraint
from fairconstrained.constraints.space import Space
from fairconstrained.constraints.sparse import as_matrix
from fairconstrained.constraints.statistics import Statistic

__all__ = ["LinearMoments"]


class LinearMoments(MomentConstraint):
    r"""Linear combinations of rates, minus slack.

    A rate is a ratio of sums over the table, and a value a combination of rates:

    .. math::

        \rho_r = \frac{\sum_{q,s} A_{rqs} M_{qs}}{\sum_q B_{rq} N_q}, \qquad
        g_j = \sum_r C_{jr}\, \rho_r - \mathrm{slack}_j .

    Every rate constraint and every loss parity is such data; a new notion needs no new class.

    Parameters
    ----------
    space : Space
    numerators : array or sparse matrix of shape (n_rates, n_cells * n_columns)
        :math:`A`, given for each (label, group) cell, labels first; equal cells are joined into
        parts.
    denominators : array or sparse matrix of shape (n_rates, n_cells)
        :math:`B`, zeros and ones.
    combinations : array or sparse matrix of shape (m, n_rates)
        :math:`C`.
    slack : array-like of shape (m,)
    statistic : Statistic
    name : str
        The notion, for messages.

    Examples
    --------
    >>> from fairconstrained.constraints import EqualOpportunity, Space
    >>> constraint = EqualOpportunity(slack=0.1).bind(Space([0, 1], ["a", "b"]))
    >>> constraint.part_of_cell  # the rows of label 0 are in no part
    tensor([[-1, -1],
            [ 1,  0]])
    """

    def __init__(
        self,
        space: Space,
        numerators: Any,
        denominators: Any,
        combinations: Any,
        slack: Any,
        statistic: Statistic,
        name: str,
    ):
        self.space = space
        self.cell_numerators, self.cell_denominators, self.combinations = (
            _without_zeros(sp.csr_array(matrix, dtype=float))
            for matrix in (numerators, denominators, combinations)
        )
        part, first_cell = self._joined(statistic.n_columns)
        allowed = torch.as_tensor(np.asarray(slack, dtype=float)).clamp_max(NEVER_BINDS)
        shape = (len(space.classes), len(space.groups))
        super().__init__(torch.as_tensor(part.reshape(shape)), statistic, allowed, name)
        columns = np.arange(statistic.n_columns)
        entries = (first_cell[:, None] * statistic.n_columns + columns).reshape(-1)
        self._numerators = as_matrix(self.cell_numerators[:, entries])
        self._denominators = as_matrix(self.cell_denominators[:, first_cell])
        self._combinations = as_matrix(self.combinations)

    def _joined(self, n_columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The part of each cell, -1 for none, and a cell of each part.

        All that the rates say of a cell is one sparse row; cells with equal rows are one part.
        """
        n_cells = self.space.n_cells
        numerators = self.cell_numerators.tocoo()
        denominators = self.cell_denominators.tocoo()
        cell, column = np.divmod(numerators.col, n_columns)
        stride = n_columns + 1  # the denominator is the last column of a rate
        says = sp.csr_array(
            (
                np.concatenate((numerators.data, denominators.data)),
                (
                    np.concatenate((cell, denominators.col)),
                    np.concatenate(
                        (numerators.row * stride + column, denominators.row * stride + n_columns)
                    ),
                ),
            ),
            shape=(n_cells, self.cell_numerators.shape[0] * stride),
        )
        says.sum_duplicates()
        says.eliminate_zeros()
        first_cell: dict[bytes, int] = {}
        keys = [_key(says.indices[i:j], says.data[i:j]) for i, j in pairwise(says.indptr)]
        for cell, key in enumerate(keys):
            first_cell.setdefault(key, cell)
        first_cell.pop(b"", None)  # cells of which no rate says anything
        order = {key: q for q, key in enumerate(sorted(first_cell))}
        part = np.array([order.get(key, -1) for key in keys], dtype=np.int64)
        return part, np.array([first_cell[key] for key in order], dtype=np.int64)

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values from the table, (m,)."""
        rates = self.rates(sums, counts)
        return (self._combinations.to(sums) @ rates[:, None])[:, 0] - self.slack.to(sums)

    def rates(self, sums: Tensor, counts: Tensor) -> Tensor:
        """The rates from the table, (n_rates,)."""
        above = self._numerators.to(sums) @ sums.reshape(-1, 1)
        return (above / (self._denominators.to(sums) @ counts[:, None]))[:, 0]

    def affine(self, counts: Tensor) -> AffineMap:
        """The same as matrices."""
        total = self._denominators.to(counts) @ counts[:, None]
        rates = self._numerators.to(counts).to_dense() / total
        return AffineMap(
            self._combinations.to(counts),
            rates.reshape(-1, self.n_parts, self.statistic.n_columns),
            -self.slack.to(counts),
        )

    def describe(self, j: int) -> str:
        """Words for value j: which rates it compares."""
        row = self.combinations[[j]]
        sides = [
            " and ".join(
                sorted({self._describe_rate(r) for r in row.indices[sign * row.data > 0].tolist()})
            )
            for sign in (1, -1)
        ]
        return f"{self.name}: " + " against ".join(side for side in sides if side)

    def without_small(
        self, rows: NDArray[np.int64], min_rows: int
    ) -> tuple[LinearMoments, list[str]]:
        """Drop the values with a rate of too few rows: a rate of none is not defined."""
        n = self.cell_denominators @ rows.reshape(-1)
        small = n < max(min_rows, 1)
        if not small.any():
            return self, []
        used = self.combinations.astype(bool).astype(float)
        keep = used @ small.astype(float) == 0
        combinations = self.combinations[keep]
        needed = np.zeros(len(n), dtype=bool)
        needed[combinations.indices] = True
        dropped = sorted(
            {f"{self._describe_rate(r)} ({max(int(n[r]), 0)} rows)" for r in np.flatnonzero(small)}
        )
        constraint = LinearMoments(
            self.space,
            self.cell_numerators[needed],
            self.cell_denominators[needed],
            combinations[:, needed],
            self.slack.numpy()[keep],
            self.statistic,
            self.name,
        )
        return constraint, dropped

    def _describe_rate(self, r: Any) -> str:
        shape = (len(self.space.classes), len(self.space.groups))
        cells = self.cell_denominators[[r]].toarray().reshape(shape)
        return self.space.describe(cells > 0)


def _without_zeros(matrix: Any) -> Any:
    """Without the explicit zeros that Kronecker products leave."""
    matrix.eliminate_zeros()
    return matrix


def _key(index: NDArray[np.int64], values: NDArray[np.float64]) -> bytes:
    """A sparse row of positive values as bytes that sort as the dense rows would."""
    descending = np.iinfo(np.int64).max - index.astype(np.int64)
    return np.stack((descending.astype(">i8"), values.astype(">f8").view(">i8")), axis=1).tobytes()
