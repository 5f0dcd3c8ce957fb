"""What a problem tells a solver of a point: values, and gradients of weighted sums of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Evaluation", "Linearization"]


class Linearization(NamedTuple):
    """Values at a point, and the map from weights on them to the gradient of the weighted sum."""

    value: Tensor  # (m,)
    pullback: Callable[[Tensor], Tensor]  # (m,) -> (n_variables,)
    span: Callable[[], Tensor] | None = None  # () -> (m, r), orthonormal: J's columns lie in it
    together: Callable[[Tensor], Tensor] | None = None  # `pullbacks`, where one pass gives all

    def pullbacks(self, weights: Tensor) -> Tensor:
        """Gradients of several weighted sums, (k, n_variables), from weights (k, m)."""
        if self.together is not None:
            return self.together(weights)
        return torch.stack([self.pullback(row) for row in weights])

    def jacobian(self) -> Tensor:
        """The Jacobian J, (m, n_variables), from r gradients: J = U U'J for its span U."""
        identity = torch.eye(len(self.value), dtype=self.value.dtype, device=self.value.device)
        span = identity if self.span is None else self.span()
        return span @ self.pullbacks(span.T)

    def part(self, which: slice) -> Linearization:
        """Some of the values."""

        def pullback(weights: Tensor) -> Tensor:
            full = torch.zeros_like(self.value)
            full[which] = weights
            return self.pullback(full)

        return Linearization(self.value[which], pullback)


class Evaluation(NamedTuple):
    """(f, c_1, ..., c_m) twice: as optimised, and as users measure them on predicted labels."""

    soft: Tensor  # (1 + m,)
    hard: Tensor  # (1 + m,): error, constraint values
