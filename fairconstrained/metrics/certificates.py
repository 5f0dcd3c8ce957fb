"""Certificates: bounds on a model's constraint, proved with rows that no fit has seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained.arrays import Array, check_samples, rows_of
from fairconstrained.auc import COMPARISONS
from fairconstrained.exceptions import SmallGroupWarning, warn_caller
from fairconstrained.groups import encode_groups, group_name
from fairconstrained.metrics.auc import Ranked
from fairconstrained.metrics.bounds import (
    AGAINST_ALL,
    DIFFERENCE,
    DISTRIBUTIONS,
    NOTHING,
    SHORTFALL,
    Bound,
    auc_bound,
    cap_bound,
    check_confidence,
    distribution_bound,
    parity_bound,
    partial_parity_bound,
)
from fairconstrained.metrics.inputs import (
    Labels,
    check_labels,
    check_scores,
    count_table,
    counted,
    predicted,
    scores_of,
    two_labels,
)
from fairconstrained.metrics.partial import read_scored
from fairconstrained.metrics.populations import Mixture, Population
from fairconstrained.metrics.statements import Certificate
from fairconstrained.rates import CAPS, PARITIES, needs_labels

OVERALL = "all"
# What constraints bound, if they have a bound of their own, in units of the violation.
BOUNDS: Mapping[str, Callable[[float], float]] = {
    "slack": lambda slack: slack,
    "max": lambda cap: cap,
    "ratio": lambda ratio: 1.0 - ratio,
}
_ASSUMPTIONS = (
    "the rows are independent draws from the population this is about;",
    "neither training nor the choice of the model has seen them.",
)
_DECLARED = (
    "the rows are independent draws from a population that differs from the one this is about in "
    "nothing but the declared fractions or weights;",
    _ASSUMPTIONS[1],
)
_NO_MATTER = "what is declared does not matter for this criterion: it uses all rows."
_DRAWN = "the bound is of a sample with the declared composition: {} of the {} rows."
_FOR_SAMPLES = 0.02  # of the probability of error, for samples that the rows do not suffice for
_MISSING = (
    "the group of {} of {} rows is missing; within each group (and label, where rates are compared "
    "within labels) those that are left have the predictions of all."
)


def certify(
    estimator: Any = None,
    X: Any = None,
    y: ArrayLike | None = None,
    *,
    y_true: ArrayLike | None = None,
    y_pred: ArrayLike | None = None,
    y_score: ArrayLike | None = None,
    sensitive_features: Any,
    constraint: Any,
    slack: float | None = None,
    confidence: float = 0.95,
    interval: Any = None,
    threshold: float = 0.0,
    min_group_size: Any = "auto",
    pos_label: Any = None,
    population: Population | None = None,
    name: str = "certification rows",
    label_names: Mapping[Any, str] | None = None,
) -> Certificate:
    r"""Bound a constraint's violation on the population from rows that no fit has seen.

    Give a fitted model with X and y, or predictions alone: a table of decisions is enough. For a
    gap or cap :math:`v` of the predictions on the population, the upper bound U from
    n rows satisfies

    .. math:: P(v \leq U) \geq \text{confidence}

    for every distribution and every n. The constraint is certified if U is at most the slack.

    Parameters
    ----------
    estimator : fitted classifier, optional
        Any with ``predict``; rankings need ``decision_function`` or ``predict_proba``. The
        predictions for `X` then stand for `y_pred` or `y_score`, and `y` for `y_true`.
    X : array-like of shape (n_samples, n_features), optional
    y : array-like of shape (n_samples,), optional
        True labels.
    y_true : array-like of shape (n_samples,), optional
        True labels. Demographic parity, "group_auc" and the partial criteria "statistical_parity",
        "rank_parity" and "demographic_parity" do not need them.
    y_pred : array-like of shape (n_samples,), optional
        Predicted labels, for gaps and caps of rates.
    y_score : array-like of shape (n_samples,), optional
        Scores, for rankings and partial criteria.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        None for a cap on all rows together.
    constraint : str or constraint object
        "demographic_parity", "equalized_odds", "equal_opportunity", "false_positive_rate_parity",
        "error_rate_parity"; the caps "false_negative_rate" and "false_positive_rate", of all rows
        together, or of each group with ``FalseNegativeRate(per_group=True)``; "group_auc",
        "inter_group", "intra_group", "positive_equality_gap", "negative_equality_gap",
        "bpsn_bnsp"; and with `interval` "statistical_parity", "rank_parity", "group_auc",
        "demographic_parity", "equal_opportunity", "equalized_odds".
    slack : float, optional
        The bound to certify; for a cap, the cap; for a ratio, one minus the ratio. By default that
        of the object: ``certify(..., constraint=DemographicParity(ratio=0.8))``.
    confidence : float, default=0.95
    interval : pair of float, list of pairs, or dict, optional
        Ranks of a partial criterion.
    threshold : float, default=0.0
        Scores above it are positive decisions, for partial rates.
    min_group_size : int or "auto", default="auto"
        Groups, or groups within a label, with fewer rows are left out; a warning names them.
        "auto": if one row moves the rate by more than the slack, since no number of other rows
        could certify it. 1 leaves none out.
    pos_label : label, optional
        The positive label; by default the ``pos_label`` of the constraint object, or the larger of
        two labels.
    population : Proportions or Weights, optional
        The population that the certificate is about, if its composition is another than that of the
        rows: fractions of groups or of positive labels, or intervals of them, or weights.
    name : str
        Of the sample, for the statement.
    label_names : dict, optional
        Words for labels, for the statement, such as ``{0: "refused", 1: "granted"}``.

    Returns
    -------
    Certificate

    Raises
    ------
    ValueError
        A parameter that is not valid; the message names it, before any prediction.

    Warns
    -----
    SmallGroupWarning
        Names the groups that are left out.

    Notes
    -----
    The certificate rests on two assumptions: the rows are independent draws from the population
    that the statement is about, and neither the training nor the choice of the model has seen them.
    If the population changes, certify a later sample, and compare.

    AUCs of a group against all groups ("positive_equality_gap", "negative_equality_gap",
    "bpsn_bnsp") need one more, which ``assumptions`` of the certificate names: within each label
    every group has the same fraction in the population as in these rows.

    Gaps of rates are bounded by exact tests of differences of proportions, ratios of rates by the
    same tests of ratios (the violation is one minus the smallest ratio), caps by the bound of
    Clopper and Pearson, AUCs by bounded differences, and distributions of scores by the bands of
    Dvoretzky, Kiefer and Wolfowitz. A largest difference needs no correction for the number of
    groups (Berger 1982): the certificate is wrong only if it is wrong about the worst pair.

    References
    ----------
    Berger, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24 (1982).
    Berger and Boos, "P values maximized over a confidence set for the nuisance parameter", JASA 89
    (1994).

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.metrics import certify
    >>> data = make_biased_classification(4000, random_state=0)
    >>> train, test = slice(0, 2000), slice(2000, None)
    >>> model = LogisticRegression().fit(data.data[train], data.target[train])
    >>> certificate = certify(model, data.data[test], data.target[test], slack=0.5,
    ...                       sensitive_features=data.sensitive_features[test],
    ...                       constraint="demographic_parity")
    >>> certificate.kept
    True

    Of decisions alone:

    >>> certify(y_pred=model.predict(data.data[test]), slack=0.5, constraint="demographic_parity",
    ...         sensitive_features=data.sensitive_features[test]).upper == certificate.upper
    True
    """
    check_confidence(confidence)
    request = _requested(constraint, interval, slack, min_group_size)
    if pos_label is not None:
        request = request._replace(pos_label=pos_label)
    rows, model = _Rows(y_true, y_pred, y_score, sensitive_features), "the given predictions"
    if estimator is not None:
        rows, model = _of_model(estimator, X, y, rows, request), " ".join(repr(estimator).split())
        classes: Any = getattr(estimator, "classes_", ())
        if request.pos_label is None and len(classes) == 2:
            request = request._replace(pos_label=classes[1])
    request = request._replace(
        alpha=1.0 - float(confidence), threshold=threshold, label_names=label_names or {}
    )
    rows = _checked(rows, request, population is not None and population.needs_labels)
    found = _judged(rows, request) if population is None else _of_other(population, rows, request)
    if found.left_out:
        warn_caller(
            f"The certificate leaves out {'; '.join(found.left_out)} "
            f"(min_group_size={min_group_size}) and says nothing about them.",
            SmallGroupWarning,
        )
    return Certificate(
        constraint=request.words,
        slack=request.slack,
        confidence=float(confidence),
        kept=bool(found.bound.upper <= request.slack),
        n_samples=found.n_samples,
        groups=found.groups,
        left_out=found.left_out,
        estimator=model,
        name=name,
        population=None if population is None else population.to_dict(),
        **{**found.bound._asdict(), "assumptions": [*found.assumed, *found.bound.assumptions]},
    )


def own_bound(constraint: Any) -> float | None:
    """Return what an object bounds, in units of the violation; None if it has no bound."""
    given = ((getattr(constraint, name, None), of) for name, of in BOUNDS.items())
    return next((of(bound) for bound, of in given if bound is not None), None)


class _Request(NamedTuple):
    """What is to be certified, and how."""

    notion: str
    slack: float
    interval: Any
    min_group_size: int | str
    per_group: bool  # of the constraint, as the next two
    ratio: float | None
    pos_label: Any  # None for the second label
    alpha: float = 0.05
    threshold: float = 0.0
    label_names: Mapping[Any, str] = {}

    @property
    def words(self) -> str:
        """The criterion in the statement."""
        if self.interval is not None:
            return f"partial {self.notion} in {self.interval}"
        of_ratio = self.ratio is not None
        return f"one minus the smallest ratio of {self.notion}" if of_ratio else self.notion

    @property
    def decides(self) -> bool:
        """Whether it is about predicted labels; others are about scores."""
        return self.interval is None and (self.notion in PARITIES or self.notion in CAPS)

    @property
    def pooled(self) -> bool:
        """Whether it is a cap on all rows together."""
        return self.notion in CAPS and not self.per_group

    @property
    def of_groups(self) -> bool:
        """Whether it depends on the fractions of the groups: others compare rates within them."""
        return self.pooled or (self.interval is None and self.notion in AGAINST_ALL)

    @property
    def of_labels(self) -> bool:
        """Whether it depends on the fractions of the labels within the groups."""
        if self.of_groups or self.notion in DISTRIBUTIONS:
            return True
        rates = {**PARITIES, **CAPS}.get(self.notion)
        return rates is not None and any(rate.possible.all() for rate in rates([0, 1], [1]))

    @property
    def at_corners(self) -> bool:
        """Whether, of intervals of fractions, it is largest at a corner."""
        inside = self.interval is not None and self.notion in ("rank_parity", "group_auc")
        return not inside and self.notion != "bpsn_bnsp"

    @property
    def needs_labels(self) -> bool:
        """Whether it is about true labels."""
        if self.notion in DISTRIBUTIONS:
            return False
        rates = {**PARITIES, **CAPS}.get(self.notion)
        return rates is None or needs_labels(rates)

    def least(self, n_rows: int) -> float:
        """Rows of a group, or of a group within a label, that is not left out."""
        if self.min_group_size == "auto":
            return min(1.0 / max(self.slack, 1e-9), n_rows)
        return float(self.min_group_size)


def _requested(constraint: Any, interval: Any, slack: Any, min_group_size: Any) -> _Request:
    """Check what is asked."""
    slack = own_bound(constraint) if slack is None else slack
    if isinstance(slack, bool) or not isinstance(slack, Real) or not float(slack) >= 0:
        raise ValueError(f"slack must be a number >= 0; got {slack!r}.")
    number = isinstance(min_group_size, Integral) and not isinstance(min_group_size, bool)
    if not number and min_group_size != "auto":
        raise ValueError(f"min_group_size must be an integer or 'auto'; got {min_group_size!r}.")
    notion = constraint if isinstance(constraint, str) else getattr(constraint, "name", constraint)
    known = [*PARITIES, *CAPS, *COMPARISONS]
    if interval is not None:
        known = [*DISTRIBUTIONS, "demographic_parity", "equal_opportunity", "equalized_odds"]
    if not isinstance(notion, str) or notion not in known:
        kind = "without interval" if interval is None else "with interval"
        raise ValueError(f"constraint must be one of {sorted(known)} {kind}; got {constraint!r}.")
    if getattr(constraint, "attributes", "crossed") != "crossed":
        raise ValueError(
            "certify bounds differences between crossed groups (attributes='crossed'): give one "
            f"column of sensitive_features at a time; got {constraint!r}."
        )
    if getattr(constraint, "reference", "pairwise") != "pairwise":
        raise ValueError(
            f"certify bounds the largest difference between groups (reference='pairwise'); got "
            f"{constraint!r}."
        )
    per_group, ratio, pos_label = (
        getattr(constraint, name, default)
        for name, default in (("per_group", False), ("ratio", None), ("pos_label", None))
    )
    return _Request(
        notion, float(slack), interval, min_group_size, bool(per_group), ratio, pos_label
    )


class _Rows(NamedTuple):
    """What a certificate is computed from."""

    y_true: Any
    y_pred: Any
    y_score: Any
    sensitive_features: Any

    @property
    def size(self) -> int:
        return len(self.y_score if self.y_pred is None else self.y_pred)

    def take(self, chosen: Array) -> _Rows:
        """Return some rows, by positions or a mask."""
        return _Rows(*(None if values is None else rows_of(values, chosen) for values in self))


def _of_model(estimator: Any, X: Any, y: Any, given: _Rows, request: _Request) -> _Rows:
    """Predict labels, or scores for criteria of rankings."""
    if any(values is not None for values in given[:3]):
        raise ValueError(
            "certify takes an estimator with X and y, or y_pred or y_score with y_true; got both."
        )
    groups = given.sensitive_features
    check_samples(X=X, y=y, sensitive_features=groups)
    true = None if y is None else check_labels(y, "y")
    if request.decides:
        return given._replace(y_true=true, y_pred=predicted(estimator, X, groups))
    return given._replace(y_true=true, y_score=scores_of(estimator, X, groups))


def _checked(given: _Rows, request: _Request, labelled: bool) -> _Rows:
    """Raise ValueError unless the rows have what is asked, and keep only that."""
    true, labels, scores, groups = given
    notion, labelled = request.notion, labelled or request.needs_labels
    name, kind, values = "y_score", "score", scores
    if request.decides:
        name, kind, values = "y_pred", "label", labels
    if values is None:
        raise ValueError(
            f"{name} must hold one {kind} per row for {notion!r}, or give an estimator with X and "
            "y; got None."
        )
    if true is None and labelled:
        raise ValueError(f"y_true must hold the true labels for {notion!r}; got None.")
    check_samples(y_true=true, **{name: values}, sensitive_features=groups)
    values = check_labels(values, name) if request.decides else check_scores(values)
    true = check_labels(true, "y_true") if labelled else None
    if true is not None and len(true) != len(values):
        raise ValueError(f"{name} has {len(values)} rows, but y_true has {len(true)}.")
    if groups is None and notion in CAPS:
        groups = [OVERALL] * len(values)
    if request.decides:
        return _Rows(values if true is None else true, values, None, groups)
    return _Rows(true, None, values, groups)


def _of_known_groups(rows: _Rows, pooled: bool) -> tuple[_Rows, list[str]]:
    """Leave out rows of unknown group, except for a cap on all rows; say on what that rests."""
    if rows.sensitive_features is None:
        return rows, []
    # Shares say what the rates of groups are in expectation, which bounds none of them.
    known = encode_groups(rows.sensitive_features, rows.size).certain("certify").known
    if known.all():
        return rows, []
    if pooled:
        return rows._replace(sensitive_features=[OVERALL] * rows.size), []
    return rows.take(known), [_MISSING.format((~known).sum(), len(known))]


_Judgement = tuple[Bound, dict[str, Any], list[str]]


class _Judged(NamedTuple):
    """A bound, and the rows that it is about."""

    bound: Bound
    groups: dict[str, Any]
    left_out: list[str]
    n_samples: int
    assumed: list[str]


def _judged(rows: _Rows, request: _Request) -> _Judged:
    """Certify these rows."""
    rows, assumed = _of_known_groups(rows, request.pooled)
    found = (_of_scores if rows.y_pred is None else _of_labels)(rows, request)
    return _Judged(*found, rows.size, [*_ASSUMPTIONS, *assumed])


def _of_other(population: Population, rows: _Rows, request: _Request) -> _Judged:
    """Certify samples of another population that are drawn from the rows; the worst one counts.

    Of intervals of fractions these are the corners. The certificate is wrong only if it is wrong
    about the worst corner: no correction for their number is needed (Berger 1982), other than for
    the rates, which are those of the worst corner of these rows.
    """
    codes, labels = encode_groups(rows.sensitive_features, rows.size)
    if (codes < 0).any():
        raise ValueError("sensitive_features has missing values, which population= does not take.")
    request, positive = _with_positive(rows, request), None
    if population.needs_labels:
        true, _, target = two_labels(rows.y_true, "y_true", request.pos_label)
        positive = true == target
    names = [group_name(label) for label in labels]
    mixture = Mixture(
        *(codes, names, positive, request.of_groups, request.of_labels, request.at_corners)
    )
    drawn = population.samples(mixture, request.alpha * _FOR_SAMPLES)
    if not drawn:
        return _judged(rows, request)._replace(assumed=[*_DECLARED, _NO_MATTER])
    samples = [rows.take(chosen) for chosen in drawn]
    request = request._replace(alpha=request.alpha * (1.0 - _FOR_SAMPLES))
    found = [_judged(sample, request) for sample in samples]
    at = max(range(len(found)), key=lambda i: found[i].bound.upper)
    worst, left_out = found[at], dict.fromkeys(text for one in found for text in one.left_out)
    jointly = request._replace(alpha=request.alpha / len(samples))
    rates = _judged(samples[at], jointly).bound.rates
    return worst._replace(
        bound=worst.bound._replace(rates=rates),
        left_out=list(left_out),
        assumed=[*_DECLARED, _DRAWN.format(worst.n_samples, rows.size)],
    )


def _with_positive(rows: _Rows, request: _Request) -> _Request:
    """Name the positive one of two labels: a part of the rows may have one label only."""
    seen = [] if rows.y_true is None else np.unique(rows.y_true).tolist()
    if request.pos_label is None and len(seen) == 2 and seen[0] != 1:
        return request._replace(pos_label=seen[1])
    return request


def _of_labels(rows: _Rows, request: _Request) -> _Judgement:
    """Certify constraints on predicted labels: gaps and caps of rates."""
    labels = rows.y_true, rows.y_pred
    counts = count_table(*labels, rows.sensitive_features, pos_label=request.pos_label)
    words = [request.label_names.get(label, label) for label in counts.classes]
    counts = counts._replace(classes=words)
    sizes = counts.table.sum(axis=(1, 2)).astype(int).tolist()
    groups = dict(zip(counts.groups, sizes, strict=True))
    if request.pooled:
        counts = counts._replace(table=counts.table.sum(axis=0, keepdims=True), groups=[OVERALL])
    notion = {**PARITIES, **CAPS}[request.notion]
    rates = counts.decided().rates(notion)
    kept = rates.rows >= request.least(rows.size)
    left_out = [
        f"group {counts.groups[g]}{rates.given[e]}: {int(rates.rows[g, e])} rows"
        for g, e in np.argwhere(~kept)
    ]
    if request.notion in CAPS:
        bound = cap_bound(counts, notion, request.alpha, kept)
    else:
        comparison = DIFFERENCE if request.ratio is None else SHORTFALL
        bound = parity_bound(counts, notion, request.alpha, kept, comparison)
    return bound, groups, list(dict.fromkeys(left_out))


def _of_scores(rows: _Rows, request: _Request) -> _Judgement:
    """Certify constraints on rankings: AUCs, or fractions inside an interval of ranks."""
    whole = (0.0, 1.0) if request.interval is None else request.interval
    given = {"sensitive_features": rows.sensitive_features, "interval": whole}
    data = read_scored(rows.y_true, rows.y_score, **given)
    names, sizes = data.rows.names, np.bincount(data.rows.group)
    groups = dict(zip(names, sizes.tolist(), strict=True))
    large = sizes >= request.least(rows.size)
    left_out = [f"group {names[g]}: {sizes[g]} rows" for g in np.flatnonzero(~large)]
    if large.sum() < 2:
        return Bound(float("nan"), 1.0, NOTHING, "none", []), groups, left_out
    members = large[data.rows.group]
    data = data.of_groups(large)
    if request.interval is not None and request.notion in DISTRIBUTIONS:
        return distribution_bound(data, request.notion, request.alpha), groups, left_out
    decided = data.above(request.threshold)
    positive = decided > 0
    if rows.y_true is not None:
        codes, _, target = two_labels(rows.y_true, "y_true", request.pos_label)
        positive = (codes == target)[members]
    if request.interval is None:
        ranked = Ranked.of(data.scores, positive, data.rows)
        return auc_bound(ranked, request.notion, request.alpha), groups, left_out
    decisions = Labels(positive.astype(int), decided, [False, True], [1])
    counts, notion = counted(data.rows, decisions), PARITIES[request.notion]
    return partial_parity_bound(counts, notion, data.intervals, request.alpha), groups, left_out
