"""A grid search within one budget of differential privacy for everything."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import repeat
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.validation import indexable

from fairconstrained.arrays import check_number, rows_of
from fairconstrained.exceptions import (
    InputWarning,
    MissingSensitiveFeaturesWarning,
    PrivacyWarning,
    ignoring,
    warn_caller,
)
from fairconstrained.groups import GroupsOfAll
from fairconstrained.inputs.groups import categories, refuse_groups_in
from fairconstrained.inputs.labels import plain_labels
from fairconstrained.inputs.samples import check_samples, positions_noted
from fairconstrained.model_selection._common import DelegatingClassifier
from fairconstrained.model_selection.splits import holdout_split
from fairconstrained.privacy.accounting import (
    Budget,
    PrivacyGuarantee,
    Unit,
    check_budget,
)
from fairconstrained.privacy.callers import (
    refuse_steps_with_groups,
    steps_before,
    warn_of_learning_steps,
)
from fairconstrained.privacy.plans import MOST_EPSILON, privacy_guarantee

# The search for the budget of a fit ends when the fits together spend this share of the total.
_TIGHT = 0.98
# Halvings and secant steps reach 2 % of the total long before.
_MOST_PLANS = 12
# Scale of the noise on counts of right predictions, times epsilon. A null record lowers all counts
# or none; another record may raise some and lower others. Labels and features may be public.
_NOISE: dict[Unit, float] = {"record": 1.0, "record_replacement": 2.0, "sensitive_features": 0.0}
_CHOICE = "which candidate is best on held-out rows, by report noisy max, once"


@dataclass(eq=False, repr=False)
class PrivateGridSearch(DelegatingClassifier):
    r"""A search over candidates of a private estimator, with one epsilon for everything.

    Every candidate is trained on the rows that are not held out. Among the candidates whose
    released estimates keep their constraints, up to the error of the estimates, report noisy max
    chooses the one with the most right predictions on the held-out rows, or for
    :class:`AUCFairClassifier` the one with the largest AUC. It is kept as it was trained.

    Parameters
    ----------
    estimator : private estimator, or Pipeline that ends in one
        Its budget is set by the search: its `epsilon` is not used, and a `delta` of its own that is
        smaller than the search's is an error.
    param_grid : dict of str to sequence, or sequence of dict
        As in :class:`sklearn.model_selection.GridSearchCV`, without the budget.
    epsilon, delta : float, default=1.0 and 1e-5
        Budget of the whole search: all candidates, the held-out scores and the choice.
    holdout_size : float, default=0.25
        Fraction of the rows that are held out.
    random_state : int, RandomState or None, default=None
        Seed of the split and of the noise of the choice; with None the noise is the operating
        system's. Candidates have that of `estimator`; `param_grid` must hold none. A fitted search
        does not pickle or show them, unless its attribute ``keeps_seed`` is True.

    Attributes
    ----------
    best_estimator_, best_index_, best_params_
        The winner. It is not trained again: that would spend more.
    candidates_, estimators_ : list of dict and of estimators
        Parameters of the candidates, and the fitted candidates, all of which may be published.
    privacy_ : PrivacyGuarantee
        Privacy of everything above.
    classes_ : ndarray

    Notes
    -----
    *Privacy.* The split depends on the number of rows only. A row is either among those that
    candidates are trained on, or held out. Labels and groups that occur, and whether groups are
    missing, are those of all rows: fits know them, whichever rows they get.

    - A training row enters the releases of all C fits. The accountant composes them all together,
      and the budget of a fit is the largest at which they cost at most `epsilon`. It falls with
      about the square root of C. The choice is post-processing: it reads models and other rows.
    - A held-out row enters the choice alone. Let :math:`u_c` be the number of held-out rows that
      candidate c predicts right, or for rankings the number of pairs of a positive and a negative
      that it orders right (ties count half), divided by the number of held-out rows. With
      independent exponential noise :math:`r_c` of scale b, the largest :math:`u_c + r_c` wins.
      Given the noise of the others, c wins if :math:`r_c` exceeds some threshold t, which has
      probability :math:`e^{-\max(t, 0) / b}`. A null record in place of the row lowers each
      :math:`u_c` by something between 0 and 1, which moves t by at most 1; another record moves it
      by at most 2. With :math:`b = 1 / \epsilon`, or :math:`2 / \epsilon`, no probability changes
      by more than a factor :math:`e^\epsilon`. (This is the permute-and-flip mechanism [1]_ [2]_,
      which errs less than the exponential mechanism.) Where only sensitive features are protected,
      predictions and labels are public and need no noise.

    Both hold at once, with different rows (parallel composition), so the search costs (epsilon,
    delta), the held-out scores included. Private selection from private candidates [3]_ would cost
    about three times the epsilon of a fit, which is more up to some ten candidates.

    References
    ----------
    .. [1] McKenna and Sheldon (2020), "Permute-and-Flip: A new mechanism for differentially private
       selection".
    .. [2] Ding, Kifer, Sayed Saghaian N. E., Steinke, Wang, Xiao and Zhang (2021), "The
       Permute-and-Flip Mechanism is Identical to Report-Noisy-Max with Exponential Noise",
       arXiv:2105.07260.
    .. [3] Liu and Talwar (2019), "Private selection from private candidates", Theorem 3.2.

    Examples
    --------
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.model_selection import PrivateGridSearch
    >>> from fairconstrained.solvers import DPSGDA
    >>> data = make_biased_classification(20_000, random_state=0)
    >>> clf = RateConstrainedClassifier(solver=DPSGDA(n_steps=50), feature_range=(-4, 4))
    >>> search = PrivateGridSearch(clf, {"slack": [0.2, 0.3]}, epsilon=1.0)
    >>> search = search.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    >>> search.privacy_.epsilon, len(search.estimators_)
    (1.0, 2)
    """

    __metadata_request__fit = {"sensitive_features": True}  # noqa: RUF012 (read by scikit-learn)
    _fitted = "best_estimator_"

    estimator: Any
    param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]]
    _: KW_ONLY
    epsilon: float = 1.0
    delta: float = 1e-5
    holdout_size: float = 0.25
    random_state: Any = None

    def fit(self, X: Any, y: ArrayLike, *, sensitive_features: Any = None) -> Self:
        """Train all candidates and choose one.

        Parameters
        ----------
        X : {array-like, sparse matrix, DataFrame} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional

        Raises
        ------
        ValueError
            If a parameter or an input is not valid, in any row, before any release; if a step of
            a pipeline requests `sensitive_features`, or X has a column of their name where they
            alone are secret; for :class:`DPFermiClassifier`, whose penalty the choice would always
            make smallest. An error after a release says what all fits so far may have spent: its
            attribute ``privacy``.

        Warns
        -----
        PrivacyWarning
            If the noise of the candidates or of the choice is seeded, or a pipeline learns from
            protected rows.
        """
        check_number("epsilon", self.epsilon, "a finite number > 0", lambda e: 0 < e < math.inf)
        check_budget(delta=self.delta, unit="record")
        size = self.holdout_size
        check_number("holdout_size", size, "a number between 0 and 1", lambda s: 0 < s < 1)
        check_samples(X=X, y=y, sensitive_features=sensitive_features)
        X, y = indexable(X, y)
        n_rows = len(y)  # type: ignore[arg-type]
        train, held_out = holdout_split(n_rows, self.holdout_size, self.random_state)
        candidates = [dict(params) for params in ParameterGrid(self.param_grid)]
        if not candidates:
            raise ValueError(f"param_grid must have a candidate; got {self.param_grid!r}.")
        part = _private_part(self.estimator)
        unit = part.epsilon.unit if isinstance(part.epsilon, Budget) else part.protect
        planned, models = self._planned(candidates, len(train), unit)
        _check_steps(models, unit)
        choice = (_CHOICE,) if _NOISE[unit] else ()  # where it is no release, it needs no noise
        if choice and self.random_state is not None:
            warn_caller(
                "random_state seeds the noise of the choice: whoever knows it can subtract the "
                "noise. A search to be released needs random_state=None.",
                PrivacyWarning,
            )
        mechanisms = *planned.mechanisms, *choice
        total = replace(planned, epsilon=float(self.epsilon), mechanisms=mechanisms)
        with positions_noted():
            for model in models:
                _check_rows(model, unit, X, y, sensitive_features, train)
        part_of = _in_whole(X, y, sensitive_features)
        try:
            with (
                config_context(enable_metadata_routing=True),
                positions_noted(),
                ignoring(MissingSensitiveFeaturesWarning),  # it was said of all rows
            ):
                for model in models:
                    _fit(model, *part_of(train))
            X_held, y_held, _ = part_of(held_out)
            # Warnings depend on single entries.
            with np.errstate(all="ignore"), ignoring(Warning):
                right = [part._count_right(model, X_held, np.asarray(y_held)) for model in models]
            best = self._choose([_private_part(model) for model in models], right, unit)
            self.privacy_ = total
            self.candidates_, self.estimators_ = candidates, models
            self.best_index_, self.best_params_ = best, candidates[best]
            self.best_estimator_ = models[best]
            self.classes_ = self.best_estimator_.classes_
            return self
        except BaseException as error:
            self._begun = True
            self._tell_the_price(error, models, total)
            raise

    def _without_seed(self) -> dict[str, Any]:
        return {"estimator": self._seedless(), "random_state": None}

    def _seedless(self) -> Any:
        """Return a clone of the estimator without its seed, for which no epsilon is needed."""
        return clone(self.estimator).set_params(**{f"{_key(self.estimator)}random_state": None})

    def _planned(
        self, candidates: list[dict[str, Any]], n_rows: int, unit: Unit
    ) -> tuple[PrivacyGuarantee, list[Any]]:
        """Find the largest budget of a fit that keeps `epsilon` in all; return plan and models."""
        key = _key(self.estimator)
        budgets = {f"{key}{name}" for name in ("epsilon", "delta", "protect")}
        varied = {name for params in candidates for name in params} & budgets
        if varied:
            raise ValueError(
                f"param_grid must not vary the budget, which belongs to the search; got "
                f"{sorted(varied)}."
            )
        bare = self._seedless()
        models = [clone(bare).set_params(**clone(params, safe=False)) for params in candidates]
        for part in map(_private_part, models):
            if "penalty" in part.get_params():
                raise ValueError(
                    f"candidates must have a constraint; {type(part).__name__} has a penalty, and "
                    "the candidate that is right most often is the one of the smallest. Fix the "
                    "penalty, or search over RateConstrainedClassifier."
                )
        if any(_private_part(model).random_state is not None for model in models):
            raise ValueError(
                "param_grid must not hold a random_state, which candidates_ would tell whoever "
                "reads it: give it to the estimator."
            )
        best, least, most, near = None, 0.0, math.inf, _TIGHT
        total = min(self.epsilon, MOST_EPSILON)
        epsilon = total / math.sqrt(len(candidates))  # were all releases Gaussian
        for _ in range(_MOST_PLANS):
            budget = {f"{key}epsilon": Budget(epsilon, self.delta, unit)}
            models = [
                clone(self.estimator).set_params(**clone(params, safe=False), **budget)
                for params in candidates
            ]
            plans = list(map(_planned_batches, models, repeat(n_rows)))
            phases = [phase for plan in plans for phase in plan.phases]
            planned = privacy_guarantee(phases, delta=self.delta, unit=unit)
            if planned.epsilon > total:
                most, near = epsilon, 0.8 if math.isinf(planned.epsilon) else _TIGHT  # a jump
            else:
                best, least = (planned, models), epsilon
            if planned.epsilon == 0 or _TIGHT * total <= planned.epsilon <= total:
                break
            if least > near * most:
                break
            epsilon *= 0.5 * (1.0 + _TIGHT) * total / planned.epsilon
            if not least < epsilon < most:  # also of an infinite plan
                # Fits may spend less than their budget, and a smaller one would change nothing.
                spent = min(most, max(plan.epsilon for plan in plans))
                epsilon = math.sqrt(least * most) if least else spent / 2
        if best is None:
            raise ValueError(
                f"No budget of {len(candidates)} candidates was found that keeps epsilon = "
                f"{self.epsilon:g} in all: search over fewer."
            )
        return best

    def _tell_the_price(
        self, error: BaseException, models: list[Any], total: PrivacyGuarantee
    ) -> None:
        """Attach the privacy spent by all fits so far to an error: `total` if all of them ended."""
        own = getattr(error, "privacy", None)
        fitted = [part for part in map(_private_part, models) if hasattr(part, "privacy_")]
        phases = [phase for part in fitted for phase in part.privacy_.phases]
        phases += [] if own is None else own.phases
        if phases:
            spent = privacy_guarantee(phases, delta=self.delta, unit=total.unit)
            spent = total if len(fitted) == len(models) else spent
            error.privacy = spent  # type: ignore[attr-defined]
            error.add_note(
                f"{len(fitted)} candidates had been trained before. In all up to epsilon = "
                f"{spent.epsilon:.4g} and delta = {spent.delta:.4g} are spent. Another search on "
                "the same rows adds its own."
            )

    def _choose(self, fitted: list[Any], right: list[float], unit: Unit) -> int:
        """Choose by report noisy max among candidates that keep their constraints by estimates.

        Since training aims at the slack, an excess below the error of the estimate says nothing.
        A fit that was stopped has no estimate, whose error is infinite.
        """
        kept = [i for i, m in enumerate(fitted) if m.excess_ <= m.excess_error_ < math.inf]
        if not kept:
            violations = np.nan_to_num([model.violation_ for model in fitted], nan=np.inf)
            kept = np.flatnonzero(violations == violations.min()).tolist()
        seed = None
        if self.random_state is not None:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        # Imported here: the rest of this room works without torch.
        from fairconstrained.privacy.mechanisms import noise_generator, noisy_argmax

        scale = _NOISE[unit] / self.epsilon
        return kept[noisy_argmax([right[i] for i in kept], scale, noise_generator(seed))]


def _private_part(estimator: Any) -> Any:
    """Return a private estimator, or the private last step of a pipeline."""
    part = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    if not hasattr(part, "planned_privacy"):
        raise TypeError(
            "estimator must be a private estimator of fairconstrained, or a Pipeline that ends in "
            f"one; got {estimator!r}."
        )
    return part


def _planned_batches(model: Any, n_rows: int) -> PrivacyGuarantee:
    """Plan a candidate; refuse batches so rare that delta alone covers their release.

    For several candidates delta would not cover the releases that it covers for one.
    """
    plan: PrivacyGuarantee = _private_part(model).planned_privacy(n_rows)
    for phase in plan.phases:
        if phase.sampling_rate * phase.n_steps <= plan.delta:
            raise ValueError(
                f"delta={plan.delta:g} must be below the probability that a row is in any batch "
                f"of a candidate; got {phase.n_steps} of sampling rate {phase.sampling_rate:.3g}. "
                "Choose a smaller delta, a larger sampling rate or more steps."
            )
    return plan


def _key(estimator: Any) -> str:
    """Return the prefix of the private part's parameters in the estimator."""
    return f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else ""


def _check_steps(candidates: list[Any], unit: Unit) -> None:
    """Refuse steps that request the groups; warn of those that learn, and of noise in common."""
    pipelines = [model for model in candidates if isinstance(model, Pipeline)]
    steps = [step for pipeline in pipelines for step in steps_before(pipeline)]
    refuse_steps_with_groups(steps)
    if unit != "sensitive_features":
        warn_of_learning_steps(steps)
    if any(_private_part(model).random_state is not None for model in candidates):
        warn_caller(
            "The fits of this search are seeded (random_state): they are not independent, "
            "differences between them can cancel their noise, and the bound for all of them does "
            "not hold. Use random_state=None.",
            PrivacyWarning,
        )


def _fit(model: Any, X: Any, y: Any, groups: dict[str, Any]) -> None:
    """Fit a candidate; warnings of its steps depend on single entries."""
    if isinstance(model, Pipeline) and len(model.steps) > 1:
        steps = model[:-1]
        with np.errstate(all="ignore"), ignoring(Warning):
            X = steps.fit_transform(X, y)
        model.steps[:-1] = steps.steps
    _private_part(model).fit(X, y, **groups)


def _check_rows(
    model: Any, unit: Unit, X: Any, y: Any, sensitive_features: Any, train: NDArray[np.int64]
) -> None:
    """Check all rows by copies of a candidate's parts, before anything is released."""
    if unit == "sensitive_features":
        refuse_groups_in(X, sensitive_features)
    table, refusal = X, ""
    if isinstance(model, Pipeline) and len(model.steps) > 1:
        steps = clone(model[:-1])
        try:
            with np.errstate(all="ignore"), ignoring(Warning):
                table = steps.fit(rows_of(X, train), rows_of(y, train)).transform(X)
        except Exception as error:
            if unit == "sensitive_features":
                raise
            refusal = type(error).__name__
    if refusal:  # raised here, it has no cause, whose message may quote rows
        raise ValueError(
            f"The steps of the pipeline refuse rows of X ({refusal}). Their message is left out, "
            "since it may quote rows. Try the steps on public rows."
        )
    clone(_private_part(model))._check_rows(table, y, sensitive_features)


def _in_whole(X: Any, y: Any, sensitive_features: Any) -> Callable[[NDArray[np.int64]], Any]:
    """Return a function that selects rows, which know all labels, groups and gaps of the whole."""
    groups, values, classes = sensitive_features, y, None
    if groups is not None and categories(groups, "sensitive_features") is None:
        with ignoring(InputWarning):  # of times in rows without a group, which are protected
            groups = GroupsOfAll(groups)
    if categories(y, "y") is None:
        values = column_or_1d(plain_labels(y))
        classes = np.unique(values)

    def part(rows: NDArray[np.int64]) -> tuple[Any, Any, dict[str, Any]]:
        labels = rows_of(values, rows)
        if classes is not None:
            labels = pd.Categorical(labels, categories=classes)
        given = {} if groups is None else {"sensitive_features": rows_of(groups, rows)}
        return rows_of(X, rows), labels, given

    return part
