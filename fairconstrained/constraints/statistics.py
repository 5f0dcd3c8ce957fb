"""What is measured on a row: functions of its scores and its label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from fairconstrained.losses import (
    Loss,
    class_probabilities,
    hard_classes,
    through_probabilities,
)

__all__ = ["ByAutograd", "ClassProbabilities", "Columns", "Losses", "Statistic", "side_by_side"]


class Statistic(Protocol):
    """What is measured on a row: a function of its scores and its label.

    ``bound`` is the largest l1 norm a row's statistics can have (infinite if there is none): the
    sensitivity of the table to one row.
    """

    @property
    def n_columns(self) -> int: ...

    @property
    def bound(self) -> float: ...

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        """Differentiable, (n, n_columns)."""

    def pullback(self, scores: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Derivative by the scores, (n, K), of the sum of weights (n, n_columns) times `soft`."""

    def hard(self, scores: Tensor, y: Tensor) -> Tensor:
        """What users measure, on predicted labels, (n, n_columns)."""

    def sharpened(self) -> Statistic:
        """Soft values twice as close to the hard ones, where that can be."""


class ByAutograd:
    """The pullback of a statistic whose `soft` autograd differentiates."""

    soft: Callable[[Tensor, Tensor], Tensor]

    def pullback(self, scores: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Derivative by the scores, (n, K), of the sum of weights (n, n_columns) times `soft`."""
        scores = scores.detach().requires_grad_()
        with torch.enable_grad():
            # Zero times the scores: nothing may be left to differentiate.
            total = (weights * self.soft(scores, y)).sum() + 0.0 * scores.sum()
        (gradient,) = torch.autograd.grad(total, scores)
        return gradient


@dataclass(frozen=True)
class ClassProbabilities:
    """Tempered class probabilities; hard: the one-hot predicted class."""

    n_columns: int
    temperature: float = 1.0
    bound: float = field(default=1.0, init=False)

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        """Class probabilities."""
        return class_probabilities(scores, self.temperature)

    def pullback(self, scores: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """In closed form."""
        return through_probabilities(self.soft(scores, y), weights, self.temperature)

    def hard(self, scores: Tensor, y: Tensor) -> Tensor:
        """One-hot predictions."""
        return F.one_hot(hard_classes(scores), self.n_columns).to(scores.dtype)

    def sharpened(self) -> ClassProbabilities:
        """Twice the temperature."""
        return replace(self, temperature=2.0 * self.temperature)


@dataclass(frozen=True)
class Losses:
    """The row's loss: its own hard version."""

    loss: Loss
    n_columns: int = field(default=1, init=False)
    bound: float = field(default=float("inf"), init=False)

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        """The loss as one column."""
        return self.loss(scores, y)[:, None]

    def pullback(self, scores: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """In closed form."""
        return weights * self.loss.gradient(scores, y)

    hard = soft

    def sharpened(self) -> Losses:
        """Itself: soft and hard values are the same."""
        return self


@dataclass(frozen=True)
class Columns:
    """Several statistics side by side."""

    members: tuple[Statistic, ...]

    @property
    def n_columns(self) -> int:
        """Columns of all members."""
        return sum(member.n_columns for member in self.members)

    @property
    def bound(self) -> float:
        """Sum of the members' bounds."""
        return sum(member.bound for member in self.members)

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        """Members' columns."""
        none = scores.new_zeros((len(scores), 0))
        return torch.cat([none, *(member.soft(scores, y) for member in self.members)], dim=1)

    def pullback(self, scores: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Sum of the members'."""
        pieces = torch.split(weights, [member.n_columns for member in self.members], dim=1)
        gradient = torch.zeros_like(scores)
        for member, piece in zip(self.members, pieces, strict=True):
            gradient = gradient + member.pullback(scores, y, piece)
        return gradient

    def hard(self, scores: Tensor, y: Tensor) -> Tensor:
        """Members' columns."""
        none = scores.new_zeros((len(scores), 0))
        return torch.cat([none, *(member.hard(scores, y) for member in self.members)], dim=1)

    def sharpened(self) -> Columns:
        """All members sharpened."""
        return Columns(tuple(member.sharpened() for member in self.members))


def side_by_side(statistics: tuple[Statistic, ...]) -> Statistic:
    """Several statistics as one; a single one as it is, because copies cost time in every step."""
    return statistics[0] if len(statistics) == 1 else Columns(statistics)
