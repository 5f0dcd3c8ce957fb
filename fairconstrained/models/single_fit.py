r"""A classifier itself as the model: fitted to the costs of its predictions under a constraint.

Agarwal et al. (2018) reduce constraints on prediction rates to cost-sensitive classification: at
the right multipliers of the constraints, the classifier of least cost is the most accurate one that
keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing
from torch import Generator

from fairconstrained.arrays import Floats, Ints
from fairconstrained.distributed import one_openmp_thread
from fairconstrained.models.cross_fitting import evidence_of, seeded_where_unset, weights_for
from fairconstrained.models.posteriors import FittedPosteriors, Posteriors, group_tasks

TINY = 1e-300  # its logarithm is finite, and beyond that of any probability of a classifier
_ROUNDING = 1e-9
Folds = list[tuple[Ints, Ints]]


class SingleFit(Posteriors):
    r"""A classifier itself, fitted once to labels and weights under which it keeps the constraint.

    Nothing but the fitted classifier, ``clf.model_.estimator_``, predicts: no model of the groups
    and no combination of models. With multipliers :math:`\lambda \ge 0` of the constraints, to
    predict class k for row i costs

    .. math::

        c_{ik} = \frac{\omega_i}{\sum_j \omega_j} 1[y_i \ne k]
        + \lambda \cdot \frac{\partial g}{\partial \hat y_{ik}} ,

    the error plus the price of what it adds to the constraints g, which depends on the label and
    the group of the row. The classifier is fitted to each row with the class of least cost as its
    label, and the difference of costs as its weight (of more than two classes: to each class, with
    the weight by which it costs less than the dearest one).

    The multipliers maximise the dual function of the least error under the constraint, for
    out-of-fold posteriors of label and group as in :class:`Posteriors`. They are then moved by how
    far the rates of the fitted classifier are from the rates that the posteriors predict, until
    its labels keep the slack. These labels are **out of fold**: that of each row comes from a clone
    that was fitted to the costs of the other folds. So ``feasible_``, ``violation_`` and
    ``history_`` speak of out-of-fold labels of the training rows, and ``estimator_`` is fitted to
    the costs of all rows at the end.

    Parameters
    ----------
    estimator : classifier
        With ``sample_weight`` in ``fit``, and ``predict_proba`` or ``decision_function``. In a
        pipeline the last step takes the weights; with metadata routing any estimator that requests
        ``sample_weight``. It receives X unchanged.
    group_model, cv, memory
        As in :class:`Posteriors`. Models of the groups serve to find the multipliers and are
        thrown away. All of these folds are used again for the labels out of fold.

    Attributes
    ----------
    estimator_ : classifier
        The fitted clone of `estimator`, in ``clf.model_``.

    Notes
    -----
    Only for :class:`~fairconstrained.RateConstrainedClassifier` without ``epsilon``, with criteria
    on predicted labels. ``max_iter`` is the largest number of refits on all folds, 6 by default.
    If none of them keeps the slack, the one of least violation remains, ``feasible_`` is False and
    a warning says by how much; under equalized odds that happens with linear classifiers, for which
    ``model="linear"`` is the better choice, and with small groups. Probabilities are those of the
    classifier under the changed weights: they order rows, and are not calibrated.

    References
    ----------
    Agarwal, Beygelzimer, Dudik, Langford and Wallach, "A reductions approach to fair
    classification", 2018, equations 5 and 6. Here: one classifier at fixed multipliers in place of
    a random mixture over those of all rounds, because one is to be used in production. Rates of a
    single classifier jump as multipliers move, so the slack may be kept with a little to spare.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.models import SingleFit
    >>> data = make_biased_classification(2000, random_state=0)
    >>> model = SingleFit(DecisionTreeClassifier(max_depth=4))
    >>> clf = RateConstrainedClassifier(slack=0.05, model=model, random_state=0)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features).feasible_
    True
    >>> plain = clf.model_.estimator_  # a DecisionTreeClassifier, for production
    >>> bool((plain.predict(data.data) == clf.predict(data.data)).all())
    True
    """

    def check(self) -> None:
        super().check()
        if isinstance(self.estimator, FrozenEstimator):
            raise ValueError(
                "SingleFit.estimator is fitted to the costs of the constraint, so it cannot be "
                f"frozen; got {self.estimator!r}. Posteriors takes a frozen classifier."
            )
        if not weights_for(self.estimator, np.ones(1)):
            raise ValueError(
                "SingleFit.estimator must take sample_weight in fit (in a pipeline its last step; "
                "a search only with metadata routing, where its estimator requests it); got "
                f"{self.estimator!r}. Posteriors takes any classifier."
            )

    @property
    def learns_from(self) -> frozenset[str]:
        return frozenset({"y", "group"})

    def fit_transform(self, rows: Any, part_of_cell: Callable[[], Any], rng: Generator) -> Floats:
        """Return out-of-fold posteriors of the labels, and of the parts: (n, K + n_parts)."""
        table = super().fit_transform(rows, part_of_cell, rng)
        del self.fitted_
        parts = part_of_cell()[:, : len(rows.space.groups)]
        return np.hstack(posteriors_of_parts(table, parts))

    def _assembled(self, fitted: FittedPosteriors, posteriors: list[Floats]) -> Floats:
        """Put posteriors of the label, and of the parts given the labels of each task, together."""
        of_groups = zip(fitted.group_models, posteriors[1:], strict=True)
        own = [table[:, np.isin(m.model.kinds, m.task.parts)] for m, table in of_groups]
        return np.hstack([posteriors[0], *own])

    def folds(self, rows: Any, seed: int) -> Folds:
        """Return the training and test rows of each fold."""
        cell = rows.y * rows.space.shape[1] + rows.group
        return self._folds(rows.X, cell, np.random.RandomState(seed))

    def out_of_fold(self, rows: Any, costs: Floats, folds: Folds, seed: int) -> Floats:
        """Return scores of all rows, by clones that are fitted to the costs of the other folds."""
        scores = np.empty((len(costs), 1 if costs.shape[1] == 2 else costs.shape[1]))
        with one_openmp_thread(rows.X):
            for train, test in folds:
                model = self.fitted_to(rows, costs, train, seed)
                own = _safe_indexing(rows.X, test)
                scores[test] = scores_of(model, own, rows.classes)
        return scores

    def fitted_to(self, rows: Any, costs: Floats, used: Ints, seed: int) -> Any:
        """Return a clone that is fitted to costs (n, K) of predictions, on the rows `used`."""
        model = seeded_where_unset(clone(self.estimator), np.random.RandomState(seed))
        gain = costs[used].max(axis=1, keepdims=True) - costs[used]
        row, label = np.nonzero(gain)
        if len(np.unique(label)) < 2:  # which many classifiers refuse
            model = DummyClassifier()
        weight = gain[row, label] * rows.weight.sum()  # of a row that costs its error: its own
        ones = np.abs(weight - 1.0).max() <= _ROUNDING  # as if no weights had been given
        options = {} if ones else weights_for(model, weight)
        X = _safe_indexing(rows.X, used[row])
        return model.fit(X, rows.classes[label], **options)

    def fit_single(self, rows: Any, costs: Floats, seed: int) -> None:
        """Fit the classifier to the costs of all rows."""
        with one_openmp_thread(rows.X):
            self.estimator_ = self.fitted_to(rows, costs, np.arange(len(costs)), seed)
        self.classes_ = rows.classes

    def transform(self, X: Any) -> Floats:
        """Return the scores of the classifier, (n, 1) for two classes, else (n, K)."""
        return scores_of(self.estimator_, X, self.classes_)


def scores_of(model: Any, X: Any, classes: NDArray[Any]) -> Floats:
    """Return log odds, or decisions, of two classes, (n, 1), or those of each class, (n, K)."""
    evidence = evidence_of(model, X, classes, TINY)
    return np.diff(evidence, axis=1) if len(classes) == 2 else evidence


def posteriors_of_parts(table: Floats, part_of_cell: Any) -> tuple[Floats, Floats]:
    r"""Return posteriors of the labels, (n, K), and of the parts of a constraint, (n, n_parts).

    The table has the former, and for each task of :func:`group_tasks` the posteriors of its parts
    among the rows of its labels. A part belongs to one set of labels, so its posterior is
    :math:`P(y \in L \mid x)\, P(\text{part} \mid x, y \in L)`.
    """
    cells = np.asarray(part_of_cell, dtype=np.int64)
    label, start = table[:, : len(cells)], len(cells)
    parts = np.zeros((len(table), cells.max(initial=-1) + 1))
    for task in group_tasks(cells):
        stop = start + len(task.parts)
        within = label[:, task.labels].sum(axis=1, keepdims=True)
        parts[:, task.parts] = within * table[:, start:stop]
        start = stop
    for of_label, own in zip(cells, label.T, strict=True):
        if of_label[0] >= 0 and np.ptp(of_label) == 0:  # it is the only part of these labels
            parts[:, of_label[0]] += own
    return label, parts
