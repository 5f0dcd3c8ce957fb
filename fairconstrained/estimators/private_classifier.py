"""The base of estimators with a budget of differential privacy."""

from __future__ import annotations

import warnings
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils import get_tags

from fairconstrained.arrays import check_array
from fairconstrained.distributed import ALONE, taken_workers
from fairconstrained.estimators.base import FairClassifier
from fairconstrained.fit.rows import FitInputs
from fairconstrained.fit.task import Fit
from fairconstrained.privacy.accounting import Budget, PrivacyGuarantee, Unit
from fairconstrained.privacy.seeds import HiddenSeed

_LEAST_FIRST = ("sensitive_features", "record", "record_replacement")  # units, by what is covered


class PrivateFairClassifier(HiddenSeed, FairClassifier):
    """A FairClassifier that trains privately if ``epsilon`` is a number."""

    epsilon: float | Budget | None
    delta: float
    feature_range: Any
    protect: Unit = "record"  # the unit of privacy
    _protects: ClassVar[tuple[str, ...]] = ("record", "record_replacement")

    def planned_privacy(self, n_samples: int) -> PrivacyGuarantee:
        """Return the attribute ``privacy_`` of a fit to so many samples, without any data.

        Raises
        ------
        ValueError
            If a parameter is not valid, ``epsilon`` is None, or this is called on one of several
            workers within :func:`~fairconstrained.distributed.sharded_rows`, as by a search.
        """
        task = self._task()
        with taken_workers() as workers:
            if workers.size > 1:
                raise ValueError(
                    "planned_privacy, and so PrivateGridSearch, must be called outside of "
                    "sharded_rows: a worker knows the number of its own rows only."
                )
        if task.plan is None:
            raise ValueError(
                f"{task.name}.epsilon must be a number or a Budget for planned_privacy; got None."
            )
        guarantee: PrivacyGuarantee = task.plan(n_samples)
        return guarantee

    def _budget(self) -> Budget:
        """Return the budget, if it promises no less than a parameter that is not at its default."""
        budget: Any = self.epsilon
        if not isinstance(budget, Budget):
            return Budget(float(budget), float(self.delta), self.protect)
        changed = {f.name for f in fields(self) if getattr(self, f.name) != f.default}
        less = (
            budget.delta > self.delta,
            _LEAST_FIRST.index(budget.unit) < _LEAST_FIRST.index(self.protect),
        )
        for parameter, promises_less in zip(("delta", "protect"), less, strict=True):
            if parameter in changed and promises_less:
                raise ValueError(
                    f"{type(self).__name__}.epsilon is a weaker promise than {type(self).__name__}."
                    f"{parameter}={getattr(self, parameter)!r}; got {budget!r}. Give one only."
                )
        return budget

    def _check_rows(self, X: Any, y: Any, sensitive_features: Any) -> None:
        """Raise any error of a fit to all or some of these rows, or of predictions of them."""
        task = self._task()
        rows = task.read(task, self, FitInputs(X, y, sensitive_features, None), ALONE)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not task.specification.learns_from:
                task.learn(Fit(task, rows, torch.Generator(), []))
            elif not get_tags(self).input_tags.allow_nan:
                check_array(X, dtype=None, accept_sparse=True, input_name="X")

    @staticmethod
    def _count_right(model: Any, X: Any, y: Any) -> float:
        """Count what `model` gets right, to which no row adds more than 1 or less than 0."""
        return float(np.sum(model.predict(X) == y))
