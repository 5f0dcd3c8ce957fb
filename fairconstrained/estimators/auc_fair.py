"""Ranking under AUC-based fairness constraints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata
from sklearn.utils.validation import _num_samples

from fairconstrained.arrays import check_all_samples
from fairconstrained.constraints.auc import AUCS, AUCParity
from fairconstrained.constraints.notions import as_notions
from fairconstrained.estimators.base import (
    PrivateFairClassifier,
    data_by_position,
    unchanged_on_error,
)
from fairconstrained.estimators.stream import Stream, extended_stream, stepped
from fairconstrained.fit.columns import generator
from fairconstrained.fit.ranking import as_private_ranking, as_ranking
from fairconstrained.fit.result import store
from fairconstrained.fit.rows import FitInputs, with_groups
from fairconstrained.fit.task import Task
from fairconstrained.inputs.samples import check_samples
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.privacy.accounting import Budget
from fairconstrained.solvers.level_set import LevelSet


@dataclass(kw_only=True, eq=False, repr=False)
class AUCFairClassifier(PrivateFairClassifier):
    r"""Linear model or network whose scores rank equally well for all groups.

    .. math::

        \max_w \; \mathrm{AUC}_w(+, -)
        \quad \text{s.t.} \quad
        | \mathrm{AUC}_w(G_1, G_1') - \mathrm{AUC}_w(G_2, G_2') | \le \mathrm{slack}

    for the pairs of sets of samples that `constraint` names. Training uses smooth surrogates whose
    targets follow the true AUCs: with ``slack=0.05`` the metric of the criterion, such as
    :func:`fairconstrained.metrics.inter_group_auc_gap`, is at most 0.05 on the training data, for
    every pair of groups. There must be two classes.

    Parameters
    ----------
    constraint : str or AUCParity object, default="group_auc"
        - ``"group_auc"``: the scores of one group against another group's, compared with AUC 1/2;
        - ``"inter_group"``: positives of g against negatives of h, and the other way round;
        - ``"intra_group"``: positives against negatives within g, and within h;
        - ``"positive_equality_gap"``, ``"negative_equality_gap"``: positives (negatives) of a group
          against all positives (negatives), compared with AUC 1/2;
        - ``"bpsn_bnsp"``: all positives against negatives of a group, and positives of the group
          against all negatives.

        An object, such as ``AUCParity("inter_group", surrogate="binormal")``, chooses the surrogate
        of true AUCs in the constraint and in the objective: see
        :class:`~fairconstrained.constraints.AUCParity`. The default is ``"soft_bins"``, and
        ``"binormal"`` with `epsilon`. With ``"binormal"`` or ``"quadratic"``, ``objective="auc"``
        and a linear model, the data are read once, a step costs d x d for any number of samples,
        and the objective is the quadratic one.
    slack : float, default=0.05
        Largest allowed difference of AUCs.
    margin : float, default=0.0
        As in :class:`RateConstrainedClassifier`.
    objective : {"auc", "log"}, default="auc"
        Minimise 1 - AUC, by the surrogate, or the log loss. With few samples per column the log
        loss ranks new samples better.
    stream_memory : int, default=100_000
        Largest number of samples that :meth:`partial_fit` keeps.
    epsilon : float or Budget, optional
        Train a linear model with (epsilon, delta)-differential privacy of the record, from noisy
        group moments that are released once: see Notes. Against any other record with
        ``Budget(epsilon, delta, "record_replacement")`` of ``fairconstrained.privacy``.
    delta : float, default=1e-5
        Should be well below 1 / n.
    feature_range : (low, high), optional
        Publicly known range of the columns, with `epsilon`; default: (0, 1). It sets their units.
        Samples outside the range count less, and the guarantee still holds.
    model, solver, alpha, max_iter, tol, missing_sensitive, min_group_size
        As in :class:`RateConstrainedClassifier`, with networks of one output. ``QCQP()`` solves the
        surrogate problem of the paper exactly, and ``LevelSet()`` is the stochastic method of the
        paper. Both need ``surrogate="quadratic"``, and bound the gap of the surrogate instead of
        the true gap. AUCs do not depend on an intercept.
    callbacks, random_state, verbose, device, warm_start
        As in :class:`RateConstrainedClassifier`.

    Attributes
    ----------
    violation_ : float
        The gap of true AUCs; nan if nothing is constrained.
    pos_label_ : label
        The label on top of the ranking, ``classes_[1]``: of words the last in the alphabet.
    all others
        As in :class:`RateConstrainedClassifier`; the error in ``history_`` is 1 - AUC.

    Notes
    -----
    ``decision_function`` returns log odds. With ``objective="auc"`` training determines only the
    order of the scores. Platt scaling, a logistic regression on the score of the training data,
    then sets their scale and offset, which changes no AUC. With ``objective="log"`` the scores come
    from a logistic model, as well calibrated as the constraints allow. In both cases they are
    calibrated over all samples, not within each group.

    With `epsilon` the number of samples, the classes and the names of the groups are public.
    Everything else that leaves ``fit`` follows from four noisy releases
    (``problems.private.moments``). ``violation_`` and ``history_`` are computed for normal scores
    with the released moments, and corrected by a noisy table of scores. Scores become log odds as
    if they were normal with equal variances. `alpha` is in the units of the clipped samples, and
    the noise on the moments adds to it. Weights, warm starts and streams are refused. The noise
    does not depend on the size of a group: the gap of a small one may exceed the slack by far.

    References
    ----------
    Yao, Lin and Yang (2023), Stochastic Methods for AUC Optimization subject to AUC-based Fairness
    Constraints.

    Examples
    --------
    >>> from fairconstrained import AUCFairClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.metrics import group_auc_gap
    >>> data = make_biased_classification(2000, random_state=0)
    >>> clf = AUCFairClassifier("group_auc", slack=0.02)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    AUCFairClassifier(slack=0.02)
    >>> gap = group_auc_gap(
    ...     data.target, clf.decision_function(data.data),
    ...     sensitive_features=data.sensitive_features)
    >>> bool(gap <= 0.021)
    True
    """

    constraint: Any = field(default="group_auc", kw_only=False)
    slack: float = 0.05
    margin: float = 0.0
    objective: str = "auc"
    stream_memory: int = 100_000
    epsilon: float | Budget | None = None
    delta: float = 1e-5
    feature_range: Any = None

    _multi_class = False
    __metadata_request__partial_fit = {"sensitive_features": True, "sample_weight": True}  # noqa: RUF012

    @data_by_position("X", "y", "classes")
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        *,
        sensitive_features: Any = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train on all samples that this method has seen so far.

        The model is the one that :meth:`fit` finds on these samples, up to rounding, or on a
        uniform sample of `stream_memory` of them. Every call runs the solver from the start, or
        with ``warm_start=True`` from the last solution, which may end at another one, since AUCs
        are not convex.

        With ``solver=LevelSet()`` (and ``surrogate="quadratic"``) a call updates the state of the
        solver. Each sample is used once, in a mini-batch of the solver's `batch_size`, which is
        used when it is full, so the model does not depend on the chunks. The solver begins once it
        has a full mini-batch, five samples for each column (which determine the coordinates), and
        samples of both labels in at least two groups; at `stream_memory` samples it begins anyway
        and leaves out empty sets. Until then new groups may appear; `alpha` and `slack` are read
        when it begins. The samples that are kept serve only to measure the model.

        Parameters
        ----------
        X, y, sensitive_features, sample_weight
            As in :meth:`fit`. New groups may appear at any time, but see above for ``LevelSet``. A
            later chunk without rows changes nothing.
        classes : array-like of shape (2,), optional
            Both labels. They are needed in the first call unless its samples have both.

        Returns
        -------
        self
            It predicts once it has seen both classes, with ``LevelSet`` once the solver has begun.
            A call to :meth:`fit` ends the stream.

        Raises
        ------
        ValueError
            If a label is not in `classes`, if the number of columns changes, if only some chunks
            have sensitive features, or, with ``LevelSet``, if a group is new after the solver has
            begun; also within :func:`~fairconstrained.distributed.sharded_rows`. The estimator is
            then left unchanged.
        """
        with unchanged_on_error(self) as ledger:
            task = self._task()
            name = f"{task.name}.partial_fit"
            check_all_samples(
                name, "a stream is kept by one process. fit takes the rows of all workers."
            )
            if task.is_private:
                raise ValueError(
                    f"{name} needs epsilon=None: every call would spend the whole budget."
                )
            if isinstance(task.specification, Posteriors):
                raise ValueError(
                    f"{name} needs a linear model or a network: {self.model!r} would have to be "
                    "fitted to the whole stream again."
                )
            inputs = FitInputs(X, y, sensitive_features, sample_weight)
            known = getattr(self, "_stream_", None)  # removed by `fit`, as all fitted attributes
            check_samples(X=X)
            if known is not None and not _num_samples(X):
                return self  # an empty chunk
            stream, chunk = extended_stream(task, self, known, inputs, classes)
            rows = with_groups(task, stream.training_rows())
            if isinstance(task.solver, LevelSet):
                with generator(task, stream.seed) as rng:
                    stream, result = stepped(task, stream, chunk, rng)
                    if result is not None:
                        store(self, *result)
            elif len(np.unique(stream.rows.y)) == 2:
                self._train(task, rows, ledger)
            self._stream_: Stream = stream
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_")

    def _notions(self) -> list[Any]:
        surrogate = "soft_bins" if self.epsilon is None else "binormal"
        notions: Mapping[str, Any] = AUCS
        names = {name: partial(notion, surrogate=surrogate) for name, notion in notions.items()}
        return as_notions(self, [self.constraint], names, AUCParity)

    def _with_steps(self, task: Task) -> Task:
        task = replace(task, bounds=(self.slack,))
        return as_private_ranking(task) if task.is_private else as_ranking(task)

    @staticmethod
    def _count_right(model: Any, X: Any, y: Any) -> float:
        """Return the number of positives ranked above negatives per row: a row adds at most 1."""
        scores = np.nan_to_num(model.decision_function(X))  # a row of huge entries may have nan
        rank, positive = rankdata(scores), y == model.classes_[1]
        n_positive = int(positive.sum())
        return float(rank[positive].sum() - n_positive * (n_positive + 1) / 2) / len(y)
