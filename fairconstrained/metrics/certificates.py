"""Certificates: bounds on a model's constraint, proved with rows that no fit has seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained.arrays import Array, Ints, as_numpy, check_confidence
from fairconstrained.engines.columns import accepts_tables
from fairconstrained.exceptions import SmallGroupWarning, warn_caller
from fairconstrained.inputs.groups import (
    CROSSED,
    Groups,
    UncertainGroups,
    as_described,
    columns_of,
    encode_groups,
    group_name,
    within_strata,
)
from fairconstrained.inputs.labels import Classes, refuse_unknown, top_of_words, two_labels
from fairconstrained.inputs.samples import check_samples
from fairconstrained.inputs.values import declared_values, distinct, listed
from fairconstrained.metrics import bounds
from fairconstrained.metrics.auc import AUCGap, Ranked
from fairconstrained.metrics.bounds import DISTRIBUTIONS, Bound
from fairconstrained.metrics.claims import (
    OVERALL,
    Claim,
    Rows,
    check_rows,
    lacking,
    predict_rows,
    read_claim,
)
from fairconstrained.metrics.inputs import (
    Counts,
    GroupedRows,
    Labels,
    counted,
    grouped_within,
    known_groups,
    read_labels,
)
from fairconstrained.metrics.metric import standing_weights
from fairconstrained.metrics.partial import Scored, read_scored
from fairconstrained.metrics.populations import Population
from fairconstrained.metrics.statements import Certificate
from fairconstrained.rate_definitions import CRITERIA, PARITIES

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
# Share of the probability of error for the event that the rows do not suffice for a sample of the
# declared composition; the rest is left to the bound itself.
_FOR_SAMPLES = 0.02
_MISSING = (
    "the {} of {} of {} rows is missing; within each group (and label, where rates are compared "
    "within labels) those that are left have the predictions of all."
)


@accepts_tables("y", "y_true", "y_pred", "y_score", "sensitive_features", "control_features")
def certify(
    estimator: Any = None,
    X: Any = None,
    y: ArrayLike | None = None,
    *,
    y_true: ArrayLike | None = None,
    y_pred: ArrayLike | None = None,
    y_score: ArrayLike | None = None,
    sensitive_features: Any,
    control_features: Any = None,
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

    The claim is about all labels and groups of the model and of models that it wraps
    (``classes_``, ``groups_``), of `label_names` and of categoricals, also those that the rows
    lack. Where a label is compared in no two groups, or has no rows for a cap, nothing is
    certified. Groups that are left out are named beside the verdict. Where groups are missing the
    bound is of the known rows. In fits and metrics these stand for all rows of their label: if only
    that number exceeds the slack, the verdict is "UNDECIDED, since groups are missing".

    Parameters
    ----------
    estimator : fitted classifier, optional
        Any with ``predict``; rankings need ``decision_function`` or ``predict_proba``. The
        predictions for `X` then stand for `y_pred` or `y_score`.
    X : array-like of shape (n_samples, n_features), optional
        Or a table of Dask, Ray or Spark, whose columns the others are then, by name.
    y, y_true : array-like of shape (n_samples,), optional
        True labels, with `X` or with predictions. Demographic parity, "group_auc" and the partial
        criteria "statistical_parity", "rank_parity" and "demographic_parity" do not need them.
    y_pred : array-like of shape (n_samples,), optional
        Predicted labels, for gaps and caps of rates.
    y_score : array-like of shape (n_samples,), optional
        Scores, for rankings and partial criteria.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        None for a cap on all rows together.
    control_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
        Strata, for parity of rates: groups are compared within each, and the worst counts.
    constraint : str or constraint object
        "demographic_parity", "equalized_odds", "equal_opportunity", "false_positive_rate_parity",
        "error_rate_parity", "predictive_parity", "false_omission_rate_parity"; the caps
        "false_negative_rate", "false_positive_rate" and "rejection_rate", of all rows together, or
        of each group with ``FalseNegativeRate(per_group=True)``; "group_auc",
        "inter_group", "intra_group", "positive_equality_gap", "negative_equality_gap",
        "bpsn_bnsp"; parity by several columns of `sensitive_features` side by side, as in
        ``DemographicParity(attributes="parallel")``; and with `interval` "statistical_parity",
        "rank_parity", "group_auc", "demographic_parity", "equal_opportunity", "equalized_odds".
    slack : float, optional
        The bound to certify; for a cap, the cap; for a ratio, one minus the ratio. By default that
        of the object: ``certify(..., constraint=DemographicParity(ratio=0.8))``.
    confidence : float, default=0.95
    interval : pair of float, list of pairs, or dict, optional
        Ranks of a partial criterion.
    threshold : float, default=0.0
        Scores above it are positive decisions, for partial rates.
    min_group_size : int or "auto", default="auto"
        Groups, or groups within a label, with fewer rows are left out, as in ``fit``; a warning and
        the statement name them. "auto": so few that one row moves the rate by more than the slack,
        and fewer than a quarter of the second largest group. 1 leaves out none that has a row.
    pos_label : label, optional
        The favourable label; by default the ``pos_label`` of the constraint object, 1 of 0 and 1,
        True, or the last of ordered categories. Of other labels it must be given where the
        criterion depends on it. Rankings have the larger of two labels on top.
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
    It assumes that the rows are independent draws from the population, and that neither training
    nor the choice of the model has seen them. If the population changes, certify a later sample.

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
    """
    check_confidence(confidence)
    claim = read_claim(
        *(constraint, slack, pos_label),
        **{"interval": interval, "threshold": threshold, "min_group_size": min_group_size},
        alpha=1.0 - float(confidence),
        label_names=label_names,
        in_strata=control_features is not None,
    )
    rows = Rows(y_true, y_pred, y_score, sensitive_features, control_features)
    weights = {"Weights.values": getattr(population, "values", None)}
    check_samples(X=X, y=y, **rows._asdict(), **weights)
    model = "the given predictions"
    if estimator is not None:
        rows, model = predict_rows(estimator, X, y, rows, claim), " ".join(repr(estimator).split())
    claim, rows = _with_known(claim, estimator, rows, y, y_true, y_pred)
    rows = check_rows(rows, claim, population is not None and population.needs_labels)
    claim = claim.about(rows, y, y_true, y_pred)
    judged = _judge(rows, claim) if population is None else _judge_drawn(population, rows, claim)
    if judged.left_out:
        warn_caller(
            f"The certificate leaves out {listed(judged.left_out, between='; ')} "
            f"(min_group_size={min_group_size}) and says nothing about them.",
            SmallGroupWarning,
        )
    return Certificate(
        constraint=claim.words,
        slack=claim.slack,
        confidence=float(confidence),
        standing=judged.standing,
        n_samples=judged.n_samples,
        groups=judged.groups,
        left_out=judged.left_out,
        estimator=model,
        name=name,
        population=None if population is None else population.to_dict(),
        **{**judged.bound._asdict(), "assumptions": [*judged.assumed, *judged.bound.assumptions]},
    )


def _with_known(claim: Claim, model: Any, rows: Rows, *labels: Any) -> tuple[Claim, Rows]:
    """Add known labels and groups to the claim, and order the group columns as the model does."""
    known = [*getattr(model, "classes_", ()), *(claim.label_names or {})]
    known += [label for column in labels for label in declared_values(column) or ()]
    true, decided = (
        [] if column is None else distinct(np.ravel(as_numpy(column)), name)
        for name, column in zip(("y_true", "y_pred"), rows[:2], strict=True)
    )
    known += true if set(decided) <= set(true) else []  # labels that nobody is predicted
    people = rows.sensitive_features
    if not isinstance(people, UncertainGroups):
        for one in grouped_within(model):
            people = as_described(people, getattr(one, "_description_", None))
    parallel = claim.attributes == "parallel" and people is not None
    places = range(len(columns_of(people))) if parallel else [None]
    groups = [known_groups(model, people, rows.control_features, place) for place in places]
    claim = claim._replace(labels=list(dict.fromkeys(known)), groups=groups)
    return claim, rows._replace(sensitive_features=people)


class _Judged(NamedTuple):
    """A bound, and facts about the rows that prove it."""

    bound: Bound
    groups: dict[str, Any]
    left_out: list[str]
    n_samples: int
    assumed: list[str]
    standing: float | None  # as in Certificate


def _judge(rows: Rows, claim: Claim) -> _Judged:
    """Bound the claim, on predicted labels or on scores, from these rows."""
    return (_judge_scores if rows.y_pred is None else _judge_labels)(rows, claim)


def _judge_drawn(population: Population, rows: Rows, claim: Claim) -> _Judged:
    """Draw samples of the declared population from the rows, and return the worst bound.

    With intervals of fractions there is a sample for each corner: a certificate is wrong only if it
    is wrong about the worst one, so that their number needs no correction (Berger 1982).
    """
    groups = _encoded(rows.sensitive_features, rows.size)
    if not groups.known.all():
        raise ValueError("sensitive_features has missing values, which population= does not take.")
    positive = None
    if population.needs_labels:
        true, classes = two_labels(rows.y_true, "y_true", claim.pos_label)
        if claim.pos_label is None:
            refuse_unknown(classes.labels)
        positive = true == classes.targets[0]
    drawn = population.samples(groups, positive, claim, claim.alpha * _FOR_SAMPLES)
    if not drawn:
        return _judge(rows, claim)._replace(assumed=[*_DECLARED, _NO_MATTER])
    samples = [rows.take(chosen) for chosen in drawn]
    claim = claim._replace(alpha=claim.alpha * (1.0 - _FOR_SAMPLES))
    results = [_judge(sample, claim) for sample in samples]
    at = max(range(len(results)), key=lambda i: results[i].bound.upper)
    worst, left_out = results[at], dict.fromkeys(text for one in results for text in one.left_out)
    # The data choose the worst corner, whose rates are shown: the intervals of rates therefore hold
    # for all corners at once.
    jointly = claim._replace(alpha=claim.alpha / len(samples))
    rates = _judge(samples[at], jointly).bound.rates
    return worst._replace(
        bound=worst.bound._replace(rates=rates),
        left_out=list(left_out),
        assumed=[*_DECLARED, *worst.assumed[2:], _DRAWN.format(len(drawn[at]), rows.size)],
    )


def _encoded(sensitive_features: Any, n_rows: int) -> Groups:
    """Encode groups; refuse probabilistic groups, whose rates are expectations without bounds."""
    return encode_groups(sensitive_features, n_rows).certain("certify")


def _judge_labels(rows: Rows, claim: Claim) -> _Judged:
    """Bound a constraint on predicted labels: a gap or cap of rates."""
    table = _Table.of(rows, claim)
    counts, notion, how = table.counts, CRITERIA[claim.notion], claim.comparison
    sizes = counts.table.sum(axis=(1, 2)).astype(int).tolist()
    groups = dict(zip(counts.groups, sizes, strict=True))
    if claim.pooled:
        counts = counts._replace(table=counts.table.sum(axis=0, keepdims=True), groups=[OVERALL])
    rates = counts.rates(notion, by_ratio=claim.ratio is not None)
    families = (0,) if claim.pooled else (table.attributes, table.sets)
    comparable = claim.compared(rates.rows, *families)
    if how is None:
        bound = bounds.cap_bound(counts, notion, claim.alpha, comparable.kept)
    else:
        bound = bounds.parity_bound(counts, notion, claim.alpha, comparable.kept, how, table.sets)
    standing = None
    if table.standing is not None:
        weighted = counts._replace(table=table.standing).rates(notion)
        standing = bounds.worst_value(*weighted[:2], comparable.kept, how, table.sets)
    left_out = comparable.left_out(lambda g, e: f"group {counts.groups[g]}{rates.conditions[e]}")
    return _Judged(bound, groups, left_out, table.n_samples, table.assumed, standing)


class _Table(NamedTuple):
    """Counts by group, true and predicted label; groups may be of several attributes and strata."""

    counts: Counts
    attributes: Ints  # number of the attribute that each group is a value of
    sets: Ints  # of each group: those of one stratum, and one attribute, are compared
    n_samples: int
    assumed: list[str]
    standing: Array | None  # the table weighted for missing groups, if there are any

    @classmethod
    def of(cls, rows: Rows, claim: Claim) -> _Table:
        """Count the rows of known group, or all rows for a cap on all groups together."""
        labels = read_labels(rows.y_true, rows.y_pred, claim.pos_label, claim.labels)
        words = [(claim.label_names or {}).get(label, label) for label in labels.classes.labels]
        columns: list[tuple[Array, Array, Array]] = []  # rows, once for each attribute
        names: list[str] = []
        keys, attributes, assumed = [], [], list(_ASSUMPTIONS)
        for place, (name, attribute) in enumerate(rows.attributes(claim).items()):
            crossed, n_control = attribute, 0
            if rows.control_features is not None:
                crossed, n_control = within_strata(attribute, rows.control_features)
            groups = _encoded(crossed, rows.size)
            # A cap on all rows needs no group, so rows of unknown group count too.
            if claim.pooled and not groups.known.all():
                groups = encode_groups([OVERALL] * rows.size)
            if not groups.known.any():
                columns_missing = CROSSED if n_control else "sensitive_features"
                raise ValueError(f"{columns_missing} is missing in every row.")
            if not groups.known.all():
                unknown = "group or stratum" if n_control else "group"
                assumed.append(_MISSING.format(unknown, (~groups.known).sum(), rows.size))
            values, weight = groups.labels.tolist(), np.ones(rows.size)
            if not claim.pooled:
                values += lacking(crossed, values, claim.groups[place])
            if rows.label is not None and not groups.known.all():
                weight = standing_weights(groups.known, rows.label, weight)
            row = np.flatnonzero(groups.known)
            columns.append((row, len(names) + groups.codes[row], weight[row]))
            names += [f"{name}{group_name(label)}" for label in values]
            strata = (label[-n_control:] if isinstance(label, tuple) else label for label in values)
            keys += [(name, stratum if n_control else None) for stratum in strata]
            attributes += [place] * len(values)
        row, group, weight = map(np.concatenate, zip(*columns, strict=True))
        cells = Labels(labels.true[row], labels.predicted[row], labels.classes)
        grouped = GroupedRows(slice(None), 1.0, group, names, np.ones(len(row)))
        counts = counted(grouped, cells)
        counts = counts._replace(classes=labels.classes._replace(labels=words))
        some = rows.label is not None and len(assumed) > len(_ASSUMPTIONS)
        standing = counted(grouped._replace(weight=weight), cells).table if some else None
        number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        numbers, sets = np.array(attributes), np.array([number[key] for key in keys])
        n_samples, assumed = len(np.unique(row)), list(dict.fromkeys(assumed))
        return cls(counts, numbers, sets, n_samples, assumed, standing)


def _judge_scores(rows: Rows, claim: Claim) -> _Judged:
    """Bound a constraint on rankings: AUCs, or fractions inside an interval of ranks."""
    assumed, weight = list(_ASSUMPTIONS), None
    known = _encoded(rows.sensitive_features, rows.size).known
    if not known.any():
        raise ValueError("sensitive_features is missing in every row.")
    if not known.all():
        if rows.label is not None:
            weight = standing_weights(known, rows.label, np.ones(rows.size))[known]
        rows = rows.take(known)
        assumed.append(_MISSING.format("group", (~known).sum(), len(known)))
    whole = (0.0, 1.0) if claim.interval is None else claim.interval
    data = read_scored(rows.y_true, rows.y_score, rows.sensitive_features, interval=whole)
    positive: Array = np.asarray(data.above(claim.threshold) > 0)
    labels = [False, True]
    if rows.y_true is not None:
        codes, classes = two_labels(rows.y_true, "y_true", claim.pos_label)
        (target,) = classes.targets
        positive = np.asarray(codes == target)
        labels = [classes.labels[1 - target], classes.labels[target]]
        assumed += [f"{top}."] if (top := top_of_words(labels)) else []
    groups = data.rows.labels + lacking(rows.sensitive_features, data.rows.labels, claim.groups[0])
    cells = np.bincount(2 * data.rows.group + positive, minlength=2 * len(groups)).reshape(-1, 2)
    comparable = claim.compared(cells @ claim.conditions.T, sets=np.zeros(len(groups), dtype=int))
    cells_kept = comparable.kept[: len(data.rows.labels)]
    # AUCs compare rows of both labels; a rate inside an interval needs only its own condition.
    kept = (np.any if claim.compares_rates_inside else np.all)(cells_kept, axis=1)
    bound, standing = Bound(float("nan"), 1.0, bounds.NOTHING, "none", []), None
    if kept.sum() > 1:
        members = positive[kept[data.rows.group]]
        bound = _score_bound(data.select(kept), members, claim, cells_kept[kept])
        if weight is not None:
            weighted = data._replace(rows=data.rows._replace(weight=weight)).select(kept)
            standing = _score_bound(weighted, members, claim, cells_kept[kept]).estimate
    names = list(map(group_name, groups))
    conditions = [
        "" if used.all() else f" with label {labels[int(used.argmax())]!r}"
        for used in claim.conditions
    ]
    left_out = comparable.left_out(lambda g, e: f"group {names[g]}{conditions[e]}")
    sizes = dict(zip(names, cells.sum(axis=1).tolist(), strict=True))
    return _Judged(bound, sizes, left_out, rows.size, assumed, standing)


def _score_bound(data: Scored, positive: Array, claim: Claim, kept: Array) -> Bound:
    """Bound the criterion on the scores of the groups that are compared."""
    if claim.interval is not None and claim.notion in DISTRIBUTIONS:
        return bounds.distribution_bound(data, claim.notion, claim.alpha)
    if claim.interval is None:
        ranked = Ranked.of(data.scores, positive, data.rows)
        return bounds.auc_bound(AUCGap(ranked, claim.notion), claim.alpha)
    two = Classes([False, True], [1], True)
    decisions = Labels(positive.astype(int), data.above(claim.threshold), two)
    counts, notion = counted(data.rows, decisions), PARITIES[claim.notion]
    return bounds.partial_parity_bound(counts, notion, data.intervals, claim.alpha, kept)
