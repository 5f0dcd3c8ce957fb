r"""A plain classifier as the model, which learns the decisions of a constrained one.

Bucila, Caruana and Niculescu-Mizil (2006) call it model compression, Hinton, Vinyals and Dean
(2015) distillation: one model learns the joint predictions of others on the training rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing
from torch import Generator

from fairconstrained.arrays import Floats, Ints
from fairconstrained.distributed import one_openmp_thread
from fairconstrained.models.cross_fitting import seeded_where_unset, weights_for
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.models.specification import PlainClassifier, scores_of


class SingleFit(PlainClassifier, Posteriors):
    r"""One plain classifier that learns the decisions of constrained posteriors.

    Nothing but the fitted classifier, ``clf.model_.estimator_``, predicts: no model of the groups
    and no combination of models. It learns from :class:`Posteriors` and their constrained head,
    which are fitted first and discarded. Where the head gives row i, of weight
    :math:`\omega_i`, the probabilities :math:`p_{ik}` of its classes, the classifier is fitted to
    the label and weight

    .. math::

        \hat y_i = \arg\max_k p_{ik}, \qquad
        \omega_i \Bigl( p_{i \hat y_i} - \max_{k \ne \hat y_i} p_{ik} \Bigr) ,

    which is what another decision would cost under the head's probabilities. Rows on which the
    head hardly prefers a class hardly count.

    Whether the classifier keeps the slack is measured **out of fold**. For each fold a clone learns
    on the other folds, from posteriors that were fitted to these alone, and its labels of the fold
    count. So ``feasible_``, ``violation_``, and the last entries of ``history_``, speak of labels
    by classifiers that learnt nothing from a row or its label, except for the few coefficients of
    head and calibration. The head is trained for half a standard error less than the slack. If the
    labels exceed the slack, it is trained again, for rates moved by as much as labels have missed
    those of their heads on average, and a quarter of a standard error less slack, up to three
    times. A head that keeps these slacks is no worse than those before. If no labels keep the
    slack, those of least violation count, ``feasible_`` is False, and a warning says by how much.
    In the end ``estimator_`` learns on all rows, from the mean over the models of all folds.

    Parameters
    ----------
    estimator : classifier
        With ``sample_weight`` in ``fit``, and ``predict_proba`` or ``decision_function``. In a
        pipeline the last step takes the weights; with metadata routing any estimator that requests
        ``sample_weight``. It receives X unchanged.
    group_model, max_rows, memory
        As in :class:`Posteriors`.
    cv : int, splitter or list of (train, test), default=2
        As in :class:`Posteriors`. Folds find the head and measure the slack, but all rows train
        the classifier in the end: with more than two, fits take longer and are no more accurate.

    Attributes
    ----------
    estimator_ : classifier
        The fitted clone of `estimator`, in ``clf.model_``; a
        :class:`~sklearn.dummy.DummyClassifier` where all decisions are one label. It knows the
        labels that some decision has.

    Notes
    -----
    Only for :class:`~fairconstrained.RateConstrainedClassifier` without ``epsilon``, with criteria
    on predicted labels. ``coef_`` and ``multipliers_`` are one and those of the head. Probabilities
    of the classifier order rows, and are not calibrated: it learns decisions.

    References
    ----------
    Bucila, Caruana and Niculescu-Mizil, "Model compression", 2006. Hinton, Vinyals and Dean,
    "Distilling the knowledge in a neural network", 2015. Here: labels and weights in place of
    probabilities, as in cost-sensitive classification, because the rates of decisions are what the
    constraint bounds.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.models import SingleFit
    >>> data = make_biased_classification(2000, random_state=0)
    >>> model = SingleFit(DecisionTreeClassifier(max_depth=6))
    >>> clf = RateConstrainedClassifier(slack=0.05, model=model, random_state=0)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features).feasible_
    True
    >>> plain = clf.model_.estimator_  # a DecisionTreeClassifier, for production
    >>> bool((plain.predict(data.data) == clf.predict(data.data)).all())
    True
    """

    one_may_answer = False  # measures out of fold need the classifiers of the folds

    def __init__(
        self,
        estimator: Any,
        group_model: Any = None,
        *,
        cv: Any = 2,
        max_rows: int | None = None,
        memory: Any = None,
    ):
        super().__init__(estimator, group_model, cv=cv, max_rows=max_rows, memory=memory)

    def check(self) -> None:
        super().check()
        if isinstance(self.estimator, FrozenEstimator):
            raise ValueError(
                "SingleFit.estimator learns the decisions of a constrained head, so it cannot be "
                f"frozen; got {self.estimator!r}. Posteriors takes a frozen classifier."
            )
        if not weights_for(self.estimator, np.ones(1)):
            raise ValueError(
                "SingleFit.estimator must take sample_weight in fit (in a pipeline its last step; "
                "a search only with metadata routing, where its estimator requests it); got "
                f"{self.estimator!r}. Posteriors takes any classifier."
            )
        if any(hasattr(step, "fit_resample") for _, step in getattr(self.estimator, "steps", ())):
            raise ValueError(
                "SingleFit.estimator must learn from the rows of the fit, which are weighted by "
                "the costs of decisions, and a sampler gives it others; got "
                f"{self.estimator!r}. To weigh labels, give costs to the estimator around it."
            )

    def fit_transform(self, rows: Any, part_of_cell: Callable[[], Any], rng: Generator) -> Floats:
        """Return out-of-fold columns of posteriors, and store columns of each fold's training rows.

        So a row has columns by the models of every fold, one of which has not seen it.
        """
        # scikit-learn takes seeds of 32 bits.
        self.seed_ = rng.initial_seed() % (1 << 32)
        cell = rows.y * (1 + len(rows.space.groups)) + rows.groups_or_draws(self.seed_)
        self.folds_ = self._folds(rows.X, cell, np.random.RandomState(self.seed_))
        # The same folds for posteriors and decisions: a row's decision must not know its own label.
        teacher = copy.copy(self).set_params(cv=self.folds_)
        table = Posteriors.fit_transform(teacher, rows, part_of_cell, rng)
        with one_openmp_thread(rows.X):
            self.seen_ = [
                teacher.fitted_.only_fold(k).columns(_safe_indexing(rows.X, train))
                for k, (train, _) in enumerate(self.folds_)
            ]
        return table

    def out_of_fold(self, rows: Any, targets: Sequence[Floats]) -> Floats:
        """Return scores of all rows by clones trained on probabilities of the other folds."""
        n_classes = len(rows.classes)
        scores = np.empty((len(rows.y), 1 if n_classes == 2 else n_classes))
        with one_openmp_thread(rows.X):
            for (train, test), target in zip(self.folds_, targets, strict=True):
                model = self._fitted_to(rows, train, target)
                scores[test] = scores_of(model, _safe_indexing(rows.X, test), rows.classes)
        return scores

    def learn(self, rows: Any, targets: Sequence[Floats], unseen: Floats) -> None:
        """Fit the classifier to the mean over folds of probabilities, of rows seen and unseen."""
        total = np.zeros_like(unseen)
        for (train, test), target in zip(self.folds_, targets, strict=True):
            total[train] += target
            # A row out of a fold was not seen by its model, so that the mean is over all folds for
            # each row.
            total[test] += unseen[test]
        mean = total / total.sum(axis=1, keepdims=True)
        with one_openmp_thread(rows.X):
            self.estimator_ = self._fitted_to(rows, np.arange(len(mean)), mean)
        self.classes_ = rows.classes

    def forget(self) -> None:
        """Drop the attributes that only training needs."""
        del self.seed_, self.folds_, self.seen_

    def _fitted_to(self, rows: Any, used: Ints, targets: Floats) -> Any:
        """Return a clone that is fitted to the decisions for the rows `used`."""
        label, ordered = targets.argmax(axis=1), np.sort(targets, axis=1)
        X = _safe_indexing(rows.X, used)
        if len(np.unique(label)) < 2:  # which many classifiers refuse, as weights of zero
            return DummyClassifier().fit(X, rows.classes[label])
        model = seeded_where_unset(clone(self.estimator), np.random.RandomState(self.seed_))
        # Rows near the threshold matter little to the head, and their decisions are mostly noise.
        weight = rows.weight[used] * (ordered[:, -1] - ordered[:, -2])
        try:
            return model.fit(X, rows.classes[label], **weights_for(model, weight))
        except ValueError as error:
            lacking = np.delete(rows.classes, label).tolist()
            if not lacking:
                raise
            raise ValueError(
                f"SingleFit.estimator: the constrained head gives no row the labels {lacking}, and "
                f"{type(model).__name__} cannot be fitted without: {error} Posteriors can be."
            ) from error
