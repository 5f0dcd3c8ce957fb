"""A search for less discriminatory alternatives: the smallest gap at a given quality."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import isnan
from numbers import Real
from typing import Any, NamedTuple, Self

import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone

from fairconstrained.arrays import check_has, check_number
from fairconstrained.exceptions import NoUsefulModelError, ignoring
from fairconstrained.metrics.claims import constraint_bound
from fairconstrained.metrics.inputs import CONSTANT, nearly_constant
from fairconstrained.model_selection._common import DelegatingClassifier
from fairconstrained.sharing import follow


class _Tried(NamedTuple):
    """A fit and its figures on the rows of its ``violation_``."""

    slack: float
    gap: float
    excess: float  # the largest over floors and other bounds
    useful: bool  # whether its predictions are not nearly constant
    model: Any

    @property
    def kept(self) -> bool:
        """Whether the fit keeps all bounds and its predictions are of use."""
        return self.useful and self.excess <= 0.0


@dataclass(eq=False, repr=False)
class SmallestGapClassifier(DelegatingClassifier):
    r"""The model with the smallest gap among those that are good enough.

    .. math::

        \min_w \; \mathrm{gap}(w) \quad \text{s.t.} \quad \text{quality}_j(w) \le \max_j
        \quad \text{for all floors } j .

    This is the search for *less discriminatory alternatives* to a model: how much of the gap goes
    away at a quality that the business can bear?

    It is solved by bisection over the slack of the estimator. Each fit minimises its own objective
    under both constraints, so that the result is a model like any other, with probabilities. Gaps
    and floors are measured by predicted labels on the rows of the estimator's ``violation_``: the
    training rows, predicted out of fold if the model is a scikit-learn classifier. The gap is an
    upper bound on the smallest gap of such models: other models, or more features, may have a
    smaller one.

    Parameters
    ----------
    estimator : RateConstrainedClassifier
        Its criteria without a slack of their own have the gaps that are minimised; others hold in
        every fit. Without `epsilon`.
    floors : Cap or list of Cap
        What models must keep, each with a number as `max`:
        :class:`~fairconstrained.constraints.ExpectedCost` for accuracy, balanced accuracy and
        utilities, or a cap on a rate.
    tol : float, default=0.005
        Bisection ends when it knows the smallest feasible slack up to this.

    Attributes
    ----------
    estimator_ : RateConstrainedClassifier
        The fit with the smallest gap that keeps the floors, among those that do not predict the
        same for 99 % of these rows, or of the training rows. If none does, that without a bound on
        the gap, with a ConstraintNotSatisfiedWarning of its own.
    gap_ : float
        Its gap; nan if there is nothing to compare.
    feasible_ : bool
        Whether it keeps the floors, and criteria with a slack of their own.
    tried_ : DataFrame
        All fits: ``slack``, ``gap``, ``excess`` over what they must keep, ``useful``, ``kept``.
    classes_, n_features_in_, feature_names_in_
        As usual.

    Notes
    -----
    With ``min_group_size="auto"`` fits with a small slack would leave small groups out, and their
    gaps would be those of others. Here none are left out unless `min_group_size` is a number.

    Examples
    --------
    How much of the gap goes away if 2 points of accuracy are given up?

    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.constraints import ExpectedCost
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.model_selection import SmallestGapClassifier
    >>> data = make_biased_classification(2000, random_state=0)
    >>> X, y, groups = data.data, data.target, data.sensitive_features
    >>> free = RateConstrainedClassifier(slack=1.0).fit(X, y, sensitive_features=groups)
    >>> floor = ExpectedCost(1 - free.score(X, y) + 0.02)
    >>> clf = SmallestGapClassifier(RateConstrainedClassifier(), floor)
    >>> clf.fit(X, y, sensitive_features=groups).feasible_
    True
    >>> bool(clf.gap_ < free.violation_ - 0.1), free.score(X, y) - clf.score(X, y) < 0.022
    (True, True)
    """

    __metadata_request__fit = dict.fromkeys(
        ["sensitive_features", "control_features", "sample_weight"], True
    )

    estimator: Any
    floors: Any
    _: KW_ONLY
    tol: float = 0.005

    def fit(
        self, X: Any, y: ArrayLike, *, sensitive_features: Any = None, **fit_params: Any
    ) -> Self:
        """Fit the estimator at several slacks until the smallest gap is known within `tol`.

        Parameters
        ----------
        X, y, sensitive_features
            As in ``fit`` of the estimator.
        **fit_params
            `control_features` and `sample_weight` of the same.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or an input is not valid, before any work.
        NoUsefulModelError
            If the predictions are within 0.01 of a constant even without a bound on the gap.
        """
        floors, notions = self._checked()
        names = [*notions, *floors]
        bounds = list(map(constraint_bound, names))
        least = self.estimator.min_group_size
        first = follow(self.estimator)
        first.set_params(constraint=names, min_group_size=0 if least == "auto" else least)

        def fitted(slack: float) -> _Tried:
            model = clone(first).set_params(slack=slack)
            model.fit(X, y, sensitive_features=sensitive_features, **fit_params)
            values = list(model.violations_.values())
            if any(map(isnan, values)):  # nothing to compare
                return _Tried(slack, float("nan"), float("nan"), True, model)
            pairs = list(zip(values, bounds, strict=True))
            gap = max(value for value, bound in pairs if bound is None)
            excess = max(value - bound for value, bound in pairs if bound is not None)
            # A model may tell apart the rows that it was fitted to, and no others.
            useful = model.label_shares_.max() < 1.0 - CONSTANT
            useful = useful and not nearly_constant(model.predict(X))
            return _Tried(slack, gap, excess, useful, model)

        tried = [fitted(float("inf"))]
        if not tried[0].useful:
            raise NoUsefulModelError(
                "No useful model was found at any slack: even without a bound on the gap, the "
                f"predictions are within {CONSTANT:g} of a constant. Give other floors, a richer "
                "model or more columns."
            )
        best, low = tried[0], 0.0
        with ignoring(Warning):  # of fits that cannot keep both
            while best.kept and best.gap - low > self.tol:
                slack = 0.5 * (low + best.gap)
                tried.append(fitted(slack))
                if tried[-1].kept and tried[-1].gap < best.gap:
                    best = tried[-1]
                if not (tried[-1].kept and tried[-1].gap <= slack):
                    low = slack
        self._predict_by(best.model)
        self.gap_, self.feasible_ = best.gap, best.kept
        columns = [(*one[:4], one.kept) for one in tried]
        self.tried_ = pd.DataFrame(columns, columns=["slack", "gap", "excess", "useful", "kept"])
        return self

    def _checked(self) -> tuple[list[Any], list[Any]]:
        """Check the parameters; return the floors and the criteria of the estimator."""
        floors = self.floors if isinstance(self.floors, (list, tuple)) else [self.floors]
        if not floors or not all(isinstance(getattr(f, "max", None), Real) for f in floors):
            raise ValueError(
                "floors must be caps with a number as max, such as ExpectedCost(max=0.2); got "
                f"{self.floors!r}."
            )
        check_number("tol", self.tol, "a number > 0", lambda tol: tol > 0)
        check_has("estimator", self.estimator, "fit")
        params = self.estimator.get_params(deep=False)
        if "slack" not in params or params.get("epsilon", 0) is not None:
            raise ValueError(
                "estimator must be a RateConstrainedClassifier without epsilon: every fit of the "
                f"search would spend the budget again; got {self.estimator!r}."
            )
        own = self.estimator._notions()
        if all(constraint_bound(notion) is not None for notion in own):
            raise ValueError(
                "estimator must have a criterion without a slack of its own, whose gap is "
                f"minimised; got {self.estimator!r}."
            )
        return list(floors), own
