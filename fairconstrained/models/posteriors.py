r"""Any classifier as a model: its posteriors, out of fold, are the columns of a linear model.

Of all classifiers that do not see the group, the most accurate one under linear constraints on
prediction rates thresholds a linear combination of posteriors: of the labels, and of the parts of
the data whose rates are compared (Menon and Williamson 2018; Xian and Zhao 2024).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_memory
from torch import Generator

from fairconstrained.arrays import Floats, Ints, is_number, made_up_like
from fairconstrained.distributed import one_openmp_thread
from fairconstrained.models.boosters import family_of
from fairconstrained.models.boosters.words import read_once
from fairconstrained.models.cross_fitting import (
    LEAST_PROBABILITY,
    Calibrator,
    Ensemble,
    InKinds,
    assign_folds,
    calibrated,
    cross_fit,
    is_scoring_classifier,
    takes_weights,
    uncalibrated,
)
from fairconstrained.models.specification import Head, OfClassifier

# A posterior that a finite sample cannot tell from zero: its logarithm would otherwise be a column
# with one huge entry.
LEAST = 1e-6
# Made-up rows that are also predicted one by one: a model that mixes rows differs on nearly each.
_TRIED = 8
# Divides the rounds of boosters that predict groups, for which fewer rounds suffice: errors at
# equal gap change by .0001 and -.0004 (decisions: a classifier is asked for label and group).
_FEWER = 4
# Parameters that may name labels one by one, which do not apply to groups, and their defaults.
_OF_LABELS = {
    **dict.fromkeys(("class_weight", "class_weights", "priors", "class_prior")),
    "sampling_strategy": "auto",
}
# Differences of log odds that count as rounding in single precision.
_SAME = 1e-3


class GroupTask(NamedTuple):
    """The task of predicting which part of a constraint a row is in, among rows of some labels."""

    labels: NDArray[np.bool_]  # (n_classes,): whether these rows have the label
    outcome: Ints  # (n_kinds,), of groups: the part, after a 0 for no part if some are in none
    parts: Ints  # (n_parts,), the outcomes to be told apart, ascending

    @property
    def has_outcome(self) -> Floats:
        """Return zeros and ones, (n_kinds, n_outcomes): the outcome of each kind."""
        return np.eye(int(self.outcome.max()) + 1)[self.outcome]

    def evidence(self, label_evidence: Floats, group_evidence: Floats) -> list[Floats]:
        """Return evidence on the outcomes and, if the task is within labels, on the labels too."""
        has_outcome = self.has_outcome
        if has_outcome.shape[0] == has_outcome.shape[1]:  # each kind is a part
            on_outcomes = group_evidence[:, has_outcome.argmax(axis=0)]
        else:
            sums = softmax(group_evidence, axis=1) @ has_outcome
            on_outcomes = np.log(np.maximum(sums, LEAST_PROBABILITY))
        return [on_outcomes] if self.labels.all() else [on_outcomes, label_evidence]


def kinds_of_groups(part_of_cell: Any) -> tuple[Ints, Ints]:
    """Return the kind of each group, and the part of each label and kind, (n_classes, n_kinds).

    Groups of one kind are in the same part at every label. Kinds are numbered in the order of their
    first groups, so that criteria have them in common.

    >>> kinds, cells = kinds_of_groups([[2, 1, 1], [5, 4, 4]])
    >>> kinds.tolist(), cells.tolist()
    ([0, 1, 1], [[2, 1], [5, 4]])
    """
    cells = np.asarray(part_of_cell, dtype=np.int64)
    _, first, kind = np.unique(cells, axis=1, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[kind.reshape(-1)], cells[:, np.sort(first)]


def group_tasks(part_of_cell: Any) -> list[GroupTask]:
    """Return the tasks of predicting parts, from the part (or -1) of each label and kind of group.

    Labels whose rows fall into the same parts share a task.

    >>> [task.labels.tolist() for task in group_tasks([[-1, -1], [0, 1]])]  # equal opportunity
    [[False, True]]
    """
    cells = np.asarray(part_of_cell, dtype=np.int64)
    patterns, pattern_of_label = np.unique(cells, axis=0, return_inverse=True)
    tasks = []
    for i, pattern in enumerate(patterns):
        outcomes, outcome = np.unique(pattern, return_inverse=True)
        if len(outcomes) > 1:
            parts = np.flatnonzero(outcomes >= 0)
            tasks.append(GroupTask(pattern_of_label.reshape(-1) == i, outcome.reshape(-1), parts))
    return tasks


def for_groups(model: Any) -> Any:
    """Reset the weights, priors and sampling rates that a model has for single labels.

    >>> from sklearn.linear_model import LogisticRegression
    >>> for_groups(LogisticRegression(class_weight={"no": 1, "yes": 9}))
    LogisticRegression()
    """
    single = Mapping, list, tuple, np.ndarray, float  # a float is about the rarer of two labels
    reset = {
        name: _OF_LABELS[name.rpartition("__")[2]]
        for name, value in model.get_params().items()
        if name.rpartition("__")[2] in _OF_LABELS and isinstance(value, single)
    }
    return model.set_params(**reset)


def gives_pairs(cv: Any) -> bool:
    """Return whether `cv` is a splitter or a collection of pairs, which every fit can read again.

    >>> gives_pairs([([0, 1], [2]), ([2], [0, 1])]), gives_pairs(iter([])), gives_pairs("ab")
    (True, False, False)
    """
    if isinstance(cv, Collection):
        return all(isinstance(pair, Collection) and len(pair) == 2 for pair in cv)
    return hasattr(cv, "split")


class Posteriors(OfClassifier):
    r"""Posteriors of any classifier under a constrained linear model.

    The columns of a row x are

    .. math::

        \log P(y = k \mid x), \quad P(y = k \mid x), \quad
        \frac{P(\text{part } q \mid x)}{P(\text{part } q)}
        = \frac{P(y \in L_q \mid x)\, P(g \in G_q \mid x, y \in L_q)}{P(\text{part } q)} ,

    for two classes the log odds in place of the logarithms, and the products of the last with the
    others: a sum of columns can only move a threshold where the group is known for sure, and
    equalized odds for small groups may need more. The parts q, here the rows of labels :math:`L_q`
    and groups :math:`G_q`, are those whose rates the constraint compares. The first posterior is
    by `estimator`. The second is by `group_model`, which tells all groups apart whatever the
    criterion, so that criteria share it. Both are fitted once for each fold, on the rows of the
    other folds. A training row gets the columns by the models that have not seen it
    (cross-fitting), a new row the mean of the columns by all models. Classifiers that take no
    ``sample_weight`` mostly keep their rows and are slow to predict: nearest neighbours, Gaussian
    processes, in-context models. For new rows there is one that is fitted to all rows, in one pass.

    Logistic regressions on logarithms of posteriors, out of fold, calibrate them: they turn
    decisions into probabilities, and shrink posteriors of the group that say little. Within labels
    :math:`L_q` they see the posteriors of both models, which turns :math:`P(g \mid x)` into
    :math:`P(g \mid x, y \in L_q)`.

    Parameters
    ----------
    estimator : classifier
        With ``predict_proba`` or ``decision_function``. It receives X unchanged. Boosters with
        ``early_stopping="auto"`` stop early from 2,000 rows on, in place of 10,000. A
        :class:`sklearn.frozen.FrozenEstimator` is not refitted: give rows that it has not seen.
    group_model : classifier, optional
        Tells the groups apart; default: a clone of `estimator`, or of the frozen one, without a
        tuned threshold and weights of single labels, and with a quarter of the rounds if it is a
        booster. It is not fitted if the constraint compares no groups. A frozen one knows the
        groups by the names in ``groups_``. With `epsilon` there is no default, and without it no
        columns for the groups.
    cv : int, splitter or list of (train, test), default=3
        Number of folds, stratified by label and group, or a splitter, which must give each row to
        exactly one test part. More folds fit, and ask, more models, each on more rows.
    max_rows : int, optional
        Most rows that each classifier learns from; more are drawn at random. For classifiers whose
        time or memory grows quickly with their rows.
    memory : str or joblib.Memory, optional
        Folder, or cache, for fits on the same rows with the same `random_state` of the
        constrained classifier, in several processes or sessions. In one process clones share them
        without it, as in a search.

    Notes
    -----
    With `epsilon` whatever is secret trains none of the models. Where records are protected both
    must be frozen, and be *public*: fitted to rows that nobody protects, and chosen without a look
    at those that are. They must treat each row by itself, which is tried on made-up rows. Nothing
    calibrates them: the columns are public functions of X, with logarithms of probabilities of at
    least 0.001 and without :math:`P(\text{part } q)`, and their ranges replace `feature_range`. One
    part of each task is left out, since the others imply it. Copies of the models answer, so that
    none keeps a row. Only the head is private. Where the groups alone are secret, `estimator` may
    be fitted to features and labels.

    Clones of one constrained classifier, such as the candidates of a search, fit the models once
    for the same rows, folds and seed, and are asked about the same rows once. With
    ``random_state=None`` they have one seed in common. What they share belongs to the cloned
    object, at most half a gigabyte, and ends with it; pickles, copies and other processes begin
    without it. Private fits share nothing.

    The generator of a fit seeds every ``random_state`` that is None. If a classifier draws from
    the global generator of numpy or torch instead, seed that yourself.

    References
    ----------
    Menon and Williamson, "The cost of fairness in binary classification", 2018. Xian and Zhao, "A
    unified post-processing framework for group fairness in classification", 2024
    (arXiv:2405.04025), Theorem 3.1: the rule is linear in the posteriors. Here: its coefficients
    come from training under the constraint on predicted labels, because a linear program in
    posteriors keeps the constraint only as far as these are exact.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from fairconstrained.models.posteriors import Posteriors
    >>> rng = np.random.default_rng(0)
    >>> X, y, group = rng.normal(size=(200, 3)), rng.integers(2, size=200), np.repeat([0, 1], 100)
    >>> model = Posteriors(DecisionTreeClassifier(max_depth=3))
    >>> model.columns(X, y, group, [[0, 1], [0, 1]])[0].shape  # log odds, P(y), groups, products
    (200, 8)
    """

    log_odds = 0
    one_may_answer = True  # whether a classifier fitted to all rows may replace those of folds

    def __init__(
        self,
        estimator: Any,
        group_model: Any = None,
        *,
        cv: Any = 3,
        max_rows: int | None = None,
        memory: Any = None,
    ):
        self.estimator = estimator
        self.group_model = group_model
        self.cv = cv
        self.max_rows = max_rows
        self.memory = memory

    def check(self) -> None:
        for name in ("estimator", "group_model"):
            model, none = getattr(self, name), name == "group_model"  # there is a default
            if not (none and model is None) and not is_scoring_classifier(model):
                raise ValueError(
                    f"{type(self).__name__}.{name} must be a classifier with fit, and "
                    f"predict_proba or decision_function; got {model!r}."
                )
            if isinstance(model, FrozenEstimator) and not hasattr(model, "classes_"):
                raise ValueError(
                    f"{type(self).__name__}.{name} is frozen, but not fitted; got {model!r}."
                )
        if not (self.cv >= 2 if is_number(self.cv, Integral) else gives_pairs(self.cv)):
            raise ValueError(
                f"{type(self).__name__}.cv must be an integer >= 2, a splitter, or a list of "
                f"(train, test); got {self.cv!r}."
            )
        most = self.max_rows
        if most is not None and not (isinstance(most, (int, np.integer)) and most >= 2):
            raise ValueError(
                f"{type(self).__name__}.max_rows must be None or an integer >= 2; got {most!r}."
            )
        check_memory(self.memory)

    @property
    def learns_from(self) -> frozenset[str]:
        models = {"y": self.estimator, "group": self.group_model}
        fitted = {name for name, one in models.items() if not isinstance(one, FrozenEstimator)}
        return frozenset(fitted if self.group_model is not None else fitted - {"group"})

    @property
    def is_frozen(self) -> bool:
        """Whether all models are frozen, so that training rows have the columns of new rows."""
        models = self.estimator, self.group_model
        return all(isinstance(model, FrozenEstimator) for model in models)

    def fit_transform(self, rows: Any, part_of_cell: Callable[[], Any], rng: Generator) -> Floats:
        """Return the columns out of fold, or for secret rows by frozen models as they are."""
        if rows.y is None:
            return self._as_given(rows, part_of_cell())
        seed = rng.initial_seed() % (1 << 32)
        self.fitted_: FittedPosteriors
        table: Floats
        with one_openmp_thread(rows.X):
            table, self.fitted_ = self.columns(
                rows.X,
                rows.classes[rows.y],
                None if rows.group is None else rows.groups_or_draws(seed),
                part_of_cell(),
                groups=rows.groups,
                sample_weight=rows.weight if np.ptp(rows.weight) > 0 else None,
                random_state=np.random.RandomState(seed),
            )
        return table

    def transform(self, X: Any, head: Head | None = None) -> Floats:
        """Return the columns of new rows; fits of clones ask each model about a table once."""
        # Fits that share columns need all of them.
        if head is not None and len(head[0]) == 1 and not self.handle.shares:
            with one_openmp_thread(X):
                return self.fitted_.columns(X, head=head)
        digest = self.handle.digest(X)

        def ask(ensemble: Ensemble, X: Any) -> list[Floats]:
            # A result holds its models, so that no others have this identity.
            answers: list[Floats]
            key = digest and (id(ensemble.models), digest)
            _, answers = self.handle.recall(key, lambda: (ensemble, ensemble.evidence(X)))
            return answers

        fitted = self.fitted_
        table: Floats
        with one_openmp_thread(X):
            key = digest and (id(fitted), digest)
            _, table = self.handle.recall(key, lambda: (fitted, fitted.columns(X, ask)))
        return table

    def columns(
        self,
        X: Any,
        y: Any,
        group: Ints | None,
        part_of_cell: Any,
        *,
        groups: NDArray[Any] | None = None,
        sample_weight: Floats | None = None,
        random_state: np.random.RandomState | None = None,
    ) -> tuple[Floats, FittedPosteriors]:
        """Fit all models; return the out-of-fold columns, and an object for columns of new rows.

        Parameters
        ----------
        X : sized and indexable
            Whatever the classifiers take.
        y, group : ndarray of shape (n_samples,)
            Labels, and indices of groups; -1 for rows of unknown group, of which the models of
            the groups learn nothing. None: no group is known, and a frozen `group_model` is taken
            at its word.
        part_of_cell : array-like of shape (n_classes, n_groups)
            The part of the rows of each label and group; -1 where they take no part.
        groups : ndarray of shape (n_groups,), optional
            Names of the groups, as a frozen `group_model` has them.
        sample_weight : ndarray of shape (n_samples,), optional
        random_state : RandomState, optional
            Shuffles the rows into folds, and seeds the classifiers that have no seed of their own.
        """
        rng = np.random.RandomState(0) if random_state is None else random_state
        classes, label = np.unique(y, return_inverse=True)
        label = label.reshape(-1)
        known = np.full(len(y), -1) if group is None else group
        folds = self._folds(X, label * (int(np.max(known)) + 2) + known, rng)
        rows = X, folds, rng, sample_weight
        digest = self.handle.digest(rows)
        fit = partial(self._cross_fitted, rows, digest)
        weight = np.ones(len(y)) if sample_weight is None else sample_weight
        everyone = np.ones(len(y), dtype=bool)
        kind, cells = kinds_of_groups(part_of_cell)
        tasks = group_tasks(cells)

        def assemble() -> tuple[Floats, FittedPosteriors]:
            labels, label_evidence = fit(self.estimator, classes, label, everyone)
            calibrator = calibrated([label_evidence], label, weight, everyone)
            ensemble, group_evidence, parts = None, None, list[PartModel]()
            if group is None:
                ensemble, parts = self._groups_as_given(tasks, kind, groups, len(classes))
                group_evidence = None if ensemble is None else ensemble.evidence(X)[0]
            elif tasks:
                model, kinds = self._for_groups(kind, groups), np.arange(cells.shape[1])
                try:
                    ensemble, group_evidence = fit(model, kinds, kind[known], known >= 0)
                except ValueError as error:
                    raise ValueError(
                        f"{model!r} cannot be fitted to tell the {len(kinds)} groups apart: "
                        f"{error} Give Posteriors.group_model a classifier that can."
                    ) from error
                evidence = label_evidence, group_evidence
                parts = [part_model(task, evidence, (label, known, kind), weight) for task in tasks]
            fitted = FittedPosteriors(classes, labels, calibrator, ensemble, parts)
            return fitted.assembled(label_evidence, group_evidence), fitted

        names = y, group, groups, part_of_cell
        key = digest and self.handle.digest(digest, self.get_params(deep=False), names)
        learnt: tuple[Floats, FittedPosteriors] = self.handle.recall(key, assemble)
        return learnt

    def _cross_fitted(
        self, rows: Any, digest: bytes | None, model: Any, *target: Any
    ) -> tuple[Ensemble, Floats]:
        """Cross-fit a model to a target, or recall a fit with the same rows and target."""
        X, folds, rng, weight = rows
        # Each target has a copy: models do not depend on those fitted before.
        options = {"X": X, "folds": folds, "rng": copy.deepcopy(rng), "sample_weight": weight}
        # Models that take no weights mostly keep their rows and are slow to predict.
        alone = self.one_may_answer and not takes_weights(model)
        how = {"alone": alone, "max_rows": self.max_rows}
        cached = check_memory(self.memory).cache(cross_fit)
        fit = partial(cached, model, *target, **options, **how)
        key = digest and self.handle.digest(digest, model, target, how)
        fitted: tuple[Ensemble, Floats] = self.handle.recall(key, fit)
        return fitted

    def _as_given(self, rows: Any, part_of_cell: Any) -> Floats:
        """Return the columns of frozen models, uncalibrated so that they lie in a public range."""
        classes = rows.classes
        kind, cells = kinds_of_groups(part_of_cell)
        labels = InKinds(self.estimator, classes, classes)
        self.fitted_ = FittedPosteriors(
            classes,
            Ensemble([labels], labels.classes_),
            uncalibrated(len(labels.classes_)),
            *self._groups_as_given(group_tasks(cells), kind, rows.groups, len(classes)),
        )
        self.column_range = self.fitted_.range()
        said = self._try_rows_alone(rows.X)
        try:
            return self.transform(rows.X)
        except Exception as error:
            name = type(error).__name__
        raise ValueError(
            f"{type(self).__name__}: a frozen classifier refuses rows of X ({name}). Its message "
            f"is left out, since it may quote rows. Try it on public rows.{said}"
        )

    def _try_rows_alone(self, X: Any) -> str:
        """Raise ValueError if a frozen model predicts rows differently in a batch than alone.

        Protected rows are not tried: rounding may differ by as much, and one of them would decide.
        A model may refuse made-up rows, such as unknown categories; its message is returned.
        """
        try:
            rows = made_up_like(X, _TRIED)
            together = self.transform(rows)
        except Exception as error:
            # Categories that nobody declared come from protected rows.
            if any(hasattr(dtype, "categories") for dtype in getattr(X, "dtypes", ())):
                return ""
            return f" Of made-up rows it says: {error}"
        try:
            alone = [self.transform(_safe_indexing(rows, [i])) for i in range(_TRIED)]
            says = "predicts a made-up row differently among others"
        except Exception as error:  # one row has no statistics of a batch, say
            alone, says = [], f"refuses a made-up row by itself ({type(error).__name__})"
        if not alone or not np.allclose(np.concatenate(alone), together, rtol=0.0, atol=_SAME):
            raise ValueError(
                f"{type(self).__name__}: a frozen classifier must treat each row by itself with "
                f"epsilon; {self!r} {says}."
            )
        return ""

    def _groups_as_given(
        self, tasks: Sequence[GroupTask], kind: Ints, groups: Any, n_classes: int
    ) -> tuple[Ensemble | None, list[PartModel]]:
        """Return the frozen model of groups, and the tasks, less one part implied by the others."""
        if self.group_model is None or not tasks:
            return None, []
        model = InKinds(self.group_model, groups, kind)
        parts = []
        for task in tasks:
            n_beside = 0 if task.labels.all() else 1 if n_classes == 2 else n_classes
            calibrator = uncalibrated(task.has_outcome.shape[1], n_beside)
            task = task._replace(parts=task.parts[:-1])
            parts.append(PartModel(task, np.ones(len(task.parts)), calibrator))
        return Ensemble([model], model.classes_), parts

    def _for_groups(self, kind: Ints, groups: Any) -> Any:
        """Return the classifier to be fitted to the kinds of groups."""
        if isinstance(self.group_model, FrozenEstimator):
            return FrozenEstimator(InKinds(self.group_model, groups, kind))
        if self.group_model is not None:
            return self.group_model
        frozen = isinstance(self.estimator, FrozenEstimator)
        model = self.estimator.estimator if frozen else self.estimator
        # A threshold leaves posteriors as they are, and allows two groups only.
        while isinstance(model, (FixedThresholdClassifier, TunedThresholdClassifierCV)):
            model = model.estimator
        try:
            model = for_groups(clone(model))
        except TypeError as error:
            raise ValueError(
                f"Posteriors.group_model is None, and {type(model).__name__} cannot be cloned to "
                "tell the groups apart: give a classifier that is to be fitted for the groups, "
                "such as HistGradientBoostingClassifier()."
            ) from error
        last = model.steps[-1][1] if hasattr(model, "steps") else model
        if (family := family_of(last)) is not None:
            family.set_rounds(last, -(-family.n_rounds(last) // _FEWER))
        return model

    def _folds(self, X: Any, strata: Ints, rng: np.random.RandomState) -> list[tuple[Ints, Ints]]:
        rows = np.arange(len(strata))
        if isinstance(self.cv, (int, np.integer)):
            fold = assign_folds(strata, int(self.cv), rng)
            return [(rows[fold != k], rows[fold == k]) for k in np.unique(fold)]
        split = self.cv.split(X, strata) if hasattr(self.cv, "split") else self.cv
        folds = [(np.asarray(train), np.asarray(test)) for train, test in split]
        tested = np.sort(np.concatenate([test for _, test in folds])) if folds else rows[:0]
        if not np.array_equal(tested, rows):
            raise ValueError(
                f"{type(self).__name__}.cv must give each of the {len(rows)} samples to exactly "
                f"one test part; got {self.cv!r}."
            )
        return folds


class PartModel(NamedTuple):
    """A task with the overall fractions of its parts, and the calibrator of their posteriors."""

    task: GroupTask
    prior: Floats  # (n_parts,), at least LEAST, since posteriors are divided by it
    calibrator: Calibrator  # of the outcomes

    def posteriors(self, label_evidence: Floats, group_evidence: Floats) -> Floats:
        """Return posteriors of the parts among rows of the task's labels, (n, n_parts)."""
        evidence = self.task.evidence(label_evidence, group_evidence)
        return self.calibrator.posteriors(*evidence)[:, self.task.parts]


def part_model(
    task: GroupTask, evidence: tuple[Floats, Floats], rows: tuple[Ints, Ints, Ints], weight: Floats
) -> PartModel:
    """Compute a task's fractions, and calibrate it on out-of-fold evidence of labels and groups.

    `rows` has their labels, their groups, -1 where unknown, and the kind of each group.
    """
    label, group, kind = rows
    outcome, has_label = task.outcome[kind[group]], task.labels[label]
    used = has_label & (group >= 0)
    prior = weight[used] @ (outcome[used, None] == task.parts) / weight.sum()
    prior *= weight[has_label].sum() / weight[used].sum()  # the known stand for all
    calibrator = calibrated(task.evidence(*evidence), outcome, weight, used)
    return PartModel(task, np.maximum(prior, LEAST), calibrator)


class FittedPosteriors(NamedTuple):
    """The fitted models of :class:`Posteriors`, which compute the columns of new rows."""

    classes: NDArray[Any]
    labels: Ensemble
    calibrator: Calibrator  # of the labels
    groups: Ensemble | None
    parts: Sequence[PartModel]

    def columns(
        self,
        X: Any,
        ask: Callable[[Ensemble, Any], list[Floats]] = Ensemble.evidence,
        head: Head | None = None,
    ) -> Floats:
        """Return the columns of rows, (n, n_columns), as the mean over folds.

        The head is linear, so its scores are the mean of those for single classifiers, on whose
        columns it was trained; columns of mean posteriors would be distributed otherwise. With a
        `head` its scores have the right sign only: no model of the groups is asked about rows whose
        sign does not depend on the group.
        """
        rows = read_once(X)
        answers = [ask(self.labels, rows)]
        n_rows, n_folds = len(answers[0][0]), len(self.labels.models)
        if self.groups is not None:
            n_folds = max(n_folds, len(self.groups.models))
            depends = np.ones(n_rows, dtype=bool)
            if head is not None:
                low, high = self._range_of_scores(np.vstack(answers[0]), head[0][0])
                low, high = (end.reshape(-1, n_rows).mean(axis=0) + head[1] for end in (low, high))
                rounding = 1e-9 * (1.0 + np.abs(low) + np.abs(high))
                depends = ~((low > rounding) | (high < -rounding))  # beyond rounding
            if depends.all():
                answers.append(ask(self.groups, rows))
            else:
                evidence = [np.zeros((n_rows, len(self.groups.kinds))) for _ in self.groups.models]
                some = np.flatnonzero(depends)
                tables = ask(self.groups, _safe_indexing(X, some)) if len(some) else []
                for whole, table in zip(evidence, tables, strict=False):
                    whole[some] = table
                answers.append(evidence)
        # One calibrator serves all folds, whose rows are therefore stacked.
        each = self.assembled(*(np.vstack(one * (n_folds // len(one))) for one in answers))
        return np.asarray(each.reshape(n_folds, n_rows, -1).mean(axis=0))

    def _range_of_scores(self, label_evidence: Floats, coef: Floats) -> tuple[Floats, Floats]:
        """Return bounds of scores without the intercept, over all posteriors of the groups."""
        # Scores are linear in the posteriors of the parts, whose extremes are at one part, or none.
        label, columns = self._of_labels(label_evidence)
        factors, start = np.hstack((np.ones((len(label), 1)), columns)), columns.shape[1]
        low = high = columns @ coef[:start]
        for model in self.parts:
            stop = start + factors.shape[1] * len(model.task.parts)
            by_part = factors @ coef[start:stop].reshape(factors.shape[1], -1) / model.prior
            if model.calibrator.n_kinds > len(model.task.parts):
                by_part = np.hstack((by_part, np.zeros((len(label), 1))))
            within = label[:, model.task.labels].sum(axis=1)
            low, high = low + within * by_part.min(axis=1), high + within * by_part.max(axis=1)
            start = stop
        return low, high

    def only_fold(self, k: int) -> FittedPosteriors:
        """Return the models of fold k only, which have not seen its test rows."""
        groups = None if self.groups is None else self.groups.only_fold(k)
        return self._replace(labels=self.labels.only_fold(k), groups=groups)

    def range(self) -> tuple[Floats, Floats]:
        """Return the least and largest values of columns of uncalibrated models, (n_columns,)."""
        far, n_classes = -np.log(LEAST_PROBABILITY), len(self.classes)
        logs = [(-far, far)] if n_classes == 2 else [(-far, 0.0)] * n_classes
        label_ends = logs + [(0.0, 1.0)] * (n_classes - 1)
        ends = list(label_ends)
        for model in self.parts:
            n_parts = len(model.task.parts)
            ends += [(0.0, 1.0)] * n_parts + [pair for pair in label_ends for _ in range(n_parts)]
        low, high = np.array(ends).T
        return low, high

    def assembled(self, label_evidence: Floats, group_evidence: Any = None) -> Floats:
        """Assemble the columns from evidence on labels and groups."""
        label, label_columns = self._of_labels(label_evidence)
        table = [label_columns]
        for model in self.parts:
            within = label[:, model.task.labels].sum(axis=1, keepdims=True)
            joint = within * model.posteriors(label_evidence, group_evidence)
            density = joint / model.prior
            products = label_columns[:, :, None] * density[:, None, :]
            table += [density, products.reshape(len(label), -1)]
        return np.hstack(table)

    def _of_labels(self, evidence: Floats) -> tuple[Floats, Floats]:
        """Return posteriors of the labels, and the columns that depend on these alone."""
        label = self.calibrator.posteriors(evidence)
        logs = np.log(np.maximum(label, LEAST))
        logs = np.diff(logs, axis=1) if label.shape[1] == 2 else logs
        return label, np.hstack((logs, label[:, 1:]))
