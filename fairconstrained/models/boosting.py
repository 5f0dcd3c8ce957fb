"""A booster as the model: each boosting round is a step on the constrained problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from fairconstrained.arrays import Floats, is_number
from fairconstrained.distributed import one_openmp_thread
from fairconstrained.models.boosters import FAMILIES, Family, Finish, Step, Task, family_of
from fairconstrained.models.cross_fitting import seeded_where_unset
from fairconstrained.models.features import Features, Penalty, Pullback
from fairconstrained.models.linear import LinearModel
from fairconstrained.models.specification import PlainClassifier


class Boosting(PlainClassifier):
    r"""A booster whose rounds are steps on the constrained problem.

    Nothing but the fitted booster, ``clf.model_.estimator_``, predicts: an object of the class that
    was given, with its own loss. A booster takes in each round a step of functional gradient
    descent on its loss. Here the loss is the Lagrangian: the gradient of row i, with raw score
    :math:`F_i`, weight :math:`\omega_i` and log loss :math:`\ell_i`, is

    .. math::

        \omega_i \frac{\partial \ell_i}{\partial F_i}
        + W \sum_j \mu_j \frac{\partial g_j}{\partial F_i}, \qquad W = \sum_i \omega_i ,

    with the soft values :math:`g_j` of the constraints, and its Hessian grows by the size of the
    second term. One row in five of each label and group is held out: no tree sees it. The
    multipliers follow the *hard* values :math:`h_j` of these rows, by predicted labels and less
    0.9 of the slack. With the booster's learning rate :math:`\eta` and Hessians :math:`H_i` they,
    and the second term, change every :math:`t = 0.3 / \eta` rounds (or every round):

    .. math::

        d_j = h_j \text{ where } h_j > 0 \text{ or } \lambda_j > 0, \quad
        a = \frac{2 |d|^2}{\sum_i (\sum_j d_j W \partial g_j / \partial F_i)^2 / (W H_i)}, \quad
        \lambda \leftarrow [\lambda + t \eta a d]_+, \quad \mu = [\lambda + a d]_+ .

    a / 2 is the step of steepest ascent of the dual function, so that neither the units of the
    values nor the sizes of groups matter; t and :math:`\eta` are the clock of the booster.

    Among the rounds that keep the slack on the rows held out, the one of least loss there is taken.
    If there are none, or only rounds that have learnt next to nothing, the intercept of the nearest
    round is shifted, if nine tenths of its gain over equal predictions remain. Otherwise that round
    stays, and if it misses the slack ``feasible_`` is False and a warning says by how much.
    ``violation_`` and ``history_`` are about the rows held out.

    Parameters
    ----------
    estimator : booster
        A :class:`~sklearn.ensemble.HistGradientBoostingClassifier`, or an ``LGBMClassifier`` or
        ``XGBClassifier`` where LightGBM or XGBoost is installed. It receives X unchanged. If it
        stops early, with ``early_stopping="auto"`` from 2,000 rows on, it does so once rounds keep
        the slack and neither a better one nor less loss came in as many rounds as it waits; the
        rows held out are its validation rows.

    Attributes
    ----------
    estimator_ : booster
        The fitted clone of `estimator`, in ``clf.model_``.

    Notes
    -----
    Only for :class:`~fairconstrained.RateConstrainedClassifier` without ``epsilon``, with criteria
    on predicted labels. ``solver`` must be None; `alpha` and `tol` have no meaning, since the
    booster has its own penalties and rounds. Some thousand rows are needed: the gap of rows held
    out has about the standard error of five times fewer rows. Where nothing can bind (an infinite
    slack) the booster is fitted to all rows as it is, and measured there.

    Probabilities are those of a model under constraints: they order rows, and are not calibrated.

    References
    ----------
    Cruz et al., "FairGBM: gradient boosting with fairness constraints", 2023. There multipliers
    follow proxies of the rates on the rows that trees learn from, with a step that users choose.
    Here: labels of other rows, as trees know their own too well, and a step from the curvature.

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.models import Boosting
    >>> data = make_biased_classification(4000, random_state=0)
    >>> model = Boosting(HistGradientBoostingClassifier(max_iter=50))
    >>> clf = RateConstrainedClassifier(slack=0.05, model=model, random_state=0)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features).feasible_
    True
    >>> plain = clf.model_.estimator_  # a HistGradientBoostingClassifier, for production
    >>> bool((plain.predict(data.data) == clf.predict(data.data)).all())
    True
    """

    def __init__(self, estimator: Any):
        self.estimator = estimator

    @property
    def family(self) -> Family:
        """The family that the booster belongs to; raises ValueError if there is none."""
        family = family_of(self.estimator)
        if family is None:
            names = ", ".join(name.partition(".")[2] for name in FAMILIES)
            raise ValueError(
                f"Boosting.estimator must be one of {names}; got {self.estimator!r}. Of a pipeline "
                "give the last step, and put the others before this classifier. Posteriors takes "
                "any classifier."
            )
        return family

    def check(self) -> None:
        family, why = self.family, self.family.refusal(self.estimator)
        for name in (family.rounds, "learning_rate"):
            if not is_number(value := getattr(self.estimator, name)) and value is not None:
                raise ValueError(f"Boosting.estimator: {name} must be a number; got {value!r}.")
        rounds, rate = (ask(self.estimator) for ask in (family.n_rounds, family.learning_rate))
        if why is None and not (rounds >= 1 and rate > 0):
            why = f"{family.rounds} must be >= 1 and learning_rate > 0; got {rounds} and {rate}"
        if why is not None:
            raise ValueError(f"Boosting.estimator cannot be constrained: {why}.")

    def build(self, X: Features, weight: Tensor, n_outputs: int, alpha: float) -> LinearModel:
        """Return a linear model of raw scores, whose intercept shifts them."""
        # Repairs then move along intercepts, as they do for every linear model.
        zero = torch.zeros(n_outputs, dtype=weight.dtype, device=weight.device)
        return LinearModel(n_outputs, zero, torch.ones_like(zero), fit_intercept=True)

    def seeded(self, seed: int) -> Any:
        """Return an unfitted clone of the booster, seeded where it has no seed."""
        return seeded_where_unset(clone(self.estimator), np.random.RandomState(seed))

    def fit_plain(self, rows: Any, weight: Floats | None, seed: int) -> None:
        """Fit the booster without constraints."""
        y = rows.classes[rows.y]
        with one_openmp_thread(rows.X):
            self._fitted(self.seeded(seed).fit(rows.X, y, sample_weight=weight), rows)

    def boost(
        self, rows: Any, weight: Floats | None, seed: int, start: Floats, step: Step
    ) -> Finish:
        """Fit the booster on gradients that `step` completes; return a function that cuts it."""
        model, family = self.seeded(seed), self.family
        # Boosters take their loss and callbacks as parameters: restore the user's after the fit.
        before = {name: getattr(model, name) for name in family.replaced}
        task = Task(rows.X, rows.classes[rows.y], weight, start, step)
        with one_openmp_thread(rows.X):
            finish = family.fit(model, task)
        for name, value in before.items():  # set_params of two libraries does more
            setattr(model, name, value)
        self._fitted(model, rows)
        return finish

    def _fitted(self, model: Any, rows: Any) -> None:
        self.estimator_, self.classes_ = model, rows.classes


class RawScores:
    """A model whose parameters are the scores of n rows themselves, (n * K,)."""

    def __init__(self, n_rows: int, n_outputs: int, like: Tensor):
        self.shape = n_rows, n_outputs
        self.n_params = n_rows * n_outputs
        # Scores of rows have no intercepts, along which repairs could move.
        self.offsets = torch.zeros(0, dtype=torch.long)
        self.none = Penalty(like.new_zeros(()), like.new_zeros(1))

    def scores(self, w: Tensor, X: Features) -> Tensor:
        return w.reshape(self.shape)

    def linearize(self, w: Tensor, X: Features) -> tuple[Tensor, Pullback]:
        """Return the scores, and a pullback that only flattens cotangents."""
        return self.scores(w, X), lambda cotangent: cotangent.reshape(-1)

    def penalty(self, w: Tensor) -> Penalty:
        """Return zero: the booster has its own penalties."""
        return self.none
