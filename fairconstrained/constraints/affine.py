"""Constraints whose values are affine in the table for given counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from fairconstrained.constraints.sparse import Matrix, block_diagonal, largest, sparse_if_large
from fairconstrained.constraints.statistics import look_up, sum_by
from fairconstrained.constraints.steps import Above

_RANK_TOL = 1e-12  # singular values below this fraction of their sum are zero
_DENSE = 2**16  # entries up to which the product of both matrices is formed: 0.5 MB


class AffineMap:
    r"""Values :math:`g(M) = C\, R\, \mathrm{vec}(M) + b` of a table M.

    R gives rates, which are few. C combines them, often pair by pair. The counts
    of a data set never change, so both matrices are built once. Estimates from any number of draws
    then take one sum by parts and one product, and their gradients one product and one look-up.
    This matters because a step on a mini-batch is mostly the overhead of small operations.

    Parameters
    ----------
    combinations : Matrix of shape (m, n_rates)
        C. Its product with R is precomputed if it is small.
    rates : Tensor of shape (n_rates, n_parts, n_columns)
        R.
    offset : Tensor of shape (m,)
        b.
    """

    def __init__(self, combinations: Matrix, rates: Tensor, offset: Tensor):
        self.combinations = combinations
        self.rates = rates
        self.offset = offset
        self.n_parts, self.n_columns = rates.shape[1:]
        # The last part takes the rows in no part, with coefficients zero.
        flat = torch.nn.functional.pad(rates, (0, 0, 0, 1)).flatten(start_dim=1)
        small = len(offset) * flat.shape[1] <= _DENSE
        self._product = combinations @ flat if small else None
        self._rates = sparse_if_large(flat)

    @classmethod
    def stacked(
        cls,
        maps: Sequence[AffineMap],
        parts: Sequence[Tensor],
        columns: Sequence[slice],
        shape: tuple[int, int],
        like: Tensor,
    ) -> AffineMap:
        """Stack several maps on one table of this shape.

        Parameters
        ----------
        maps : sequence of AffineMap
        parts : sequence of LongTensor of shape (n_parts,)
            For each map, the part of its own that each part of the table belongs to; its `n_parts`
            for none.
        columns : sequence of slice
            The columns of the table that each map reads.
        shape : (n_parts, n_columns)
        like : Tensor
            A tensor with the dtype and device of the result.
        """
        blocks = [like.new_zeros(0, *shape)]
        for own, part, where in zip(maps, parts, columns, strict=True):
            padded = torch.nn.functional.pad(own.rates, (0, 0, 0, 1))
            block = like.new_zeros(len(own.rates), *shape)
            block[:, :, where] = padded.index_select(1, part.to(like.device))
            blocks.append(block)
        offset = torch.cat([like.new_zeros(0), *(own.offset for own in maps)])
        combinations = block_diagonal([own.combinations for own in maps], like)
        return cls(combinations, torch.cat(blocks), offset)

    def of_table(self, sums: Tensor) -> Tensor:
        """Values (m,) from the table (n_parts, n_columns), differentiable."""
        return self.of_tables(sums[None])[0]

    def of_tables(self, tables: Tensor) -> Tensor:
        """Values (k, m) of several tables, (k, n_parts, n_columns)."""
        return self._values(torch.nn.functional.pad(tables, (0, 0, 0, 1)).flatten(start_dim=1))

    def largest(self, tables: Tensor) -> Tensor:
        """The largest value (k,) of each of several tables, (k, n_parts, n_columns).

        Of all pairs of many groups it is the largest minus the smallest rate.
        """
        rates = self._rates @ torch.nn.functional.pad(tables, (0, 0, 0, 1)).flatten(start_dim=1).T
        return largest(self.combinations, rates, self.offset)

    def on_table(self, weights: Tensor) -> Tensor:
        """Derivative by the table, (..., n_parts, n_columns), of g weighted by (..., m)."""
        flat = self._backward(weights.reshape(weights.shape[:-1].numel(), len(self.offset)))
        tables = flat.reshape(*weights.shape[:-1], self.n_parts + 1, self.n_columns)
        return tables[..., :-1, :]

    def of_draws(
        self, statistics: Tensor, part: Tensor, weight: Tensor, sizes: Sequence[int]
    ) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Values from each of several draws, and the pullback to the statistics of their rows.

        Parameters
        ----------
        statistics : Tensor of shape (n, n_columns)
            Statistics of the rows, draw by draw.
        part : LongTensor of shape (n,)
            Part of each row; `n_parts` for rows in no part.
        weight : Tensor of shape (n,)
        sizes : sequence of int
            Number of rows of each draw.

        Returns
        -------
        values : Tensor of shape (n_draws * m,)
        pullback : callable
            Maps weights on the values to weights on the statistics, (n, n_columns).
        """
        n_draws, n_parts, column = len(sizes), self.n_parts + 1, weight[:, None]
        if n_draws > 1:
            part = part + _first_parts(tuple(sizes), n_parts).to(part)
        tables = sum_by(statistics * column, part, n_draws * n_parts)
        flat = tables.reshape(n_draws, n_parts * self.n_columns)
        values = self._values(flat)

        def pullback(weights: Tensor) -> Tensor:
            on_tables = self._backward(weights.reshape(n_draws, len(self.offset)))
            return look_up(on_tables.reshape(tables.shape), part, statistics) * column

        return values.reshape(-1), pullback

    def of_steps(
        self, steps: Above, soft: Tensor, part: Tensor, weight: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        """Values from all rows, and the pullback to scores and thresholds of steps.

        Parameters
        ----------
        steps : Above
        soft : Tensor of shape (n, n_columns)
            Values of the steps.
        part : LongTensor of shape (n,)
            Part of each row; `n_parts` for rows in no part.
        weight : Tensor of shape (n,)

        Returns
        -------
        values : Tensor of shape (m,)
        pullback : callable
            Maps several weights on the values, (k, m), to weights on the scores, (n, k), and on the
            thresholds, (k, n_columns).
        """
        # For few parts, products take an eighth of the time of sums by index.
        weights_of_parts = (part == torch.arange(self.n_parts)[:, None].to(part)) * weight

        def pullback(weights: Tensor) -> tuple[Tensor, Tensor]:
            tables, slopes = self.on_table(weights), steps.slopes(soft)
            on_scores = slopes.new_zeros((len(slopes), len(weights)))
            for q, of_part in enumerate(weights_of_parts):
                rows = torch.nonzero(part == q)[:, 0]
                own = slopes.index_select(0, rows) * of_part.index_select(0, rows)[:, None]
                on_scores.index_copy_(0, rows, own @ tables[:, q].T)
            return on_scores, -(tables * (weights_of_parts @ slopes)).sum(dim=1)

        return self.of_table(weights_of_parts @ soft), pullback

    @cached_property
    def span(self) -> Tensor:
        """Orthonormal columns, (m, r), that span the values of all tables, and so all Jacobians.

        The rank r is usually below m: pairs of groups come in both orders, and each of three gaps
        follows from the other two.
        """
        tables = torch.eye((self.n_parts + 1) * self.n_columns).to(self.rates)
        matrix = (self._values(tables) - self.offset).T
        left, values, _ = torch.linalg.svd(matrix, full_matrices=False)
        span: Tensor = left[:, values > _RANK_TOL * values.sum()]
        return span

    def _values(self, tables: Tensor) -> Tensor:
        """Values (k, m) of flat tables (k, .)."""
        if self._product is not None:
            return torch.addmm(self.offset, tables, self._product.T)
        return self.offset + (self.combinations @ (self._rates @ tables.T)).T

    def _backward(self, weights: Tensor) -> Tensor:
        """Derivatives by flat tables, (k, .), of weighted sums of the values, (k, m)."""
        if self._product is not None:
            return weights @ self._product
        return (self._rates.T @ (self.combinations.T @ weights.T)).T


@lru_cache(maxsize=32)
def _first_parts(sizes: tuple[int, ...], n_parts: int) -> Tensor:
    """First part in the joint table of all draws, for each row of draws of these sizes."""
    draw = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return n_parts * draw
