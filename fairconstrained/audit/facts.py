"""Audits: facts about decisions and groups, computed; pages only render them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from tqdm.auto import tqdm

from fairconstrained._version import __version__
from fairconstrained.arrays import is_number
from fairconstrained.audit import measures, wording
from fairconstrained.audit.arguments import PRESET_NYC_144
from fairconstrained.audit.counts import Counted
from fairconstrained.audit.guarantees import certified, rows_needed
from fairconstrained.audit.measures import Facts
from fairconstrained.audit.pages import Audit
from fairconstrained.audit.predictions import decisions_and_scores, is_model
from fairconstrained.audit.presets import RULES, above_median, preset_question
from fairconstrained.audit.sample import MIN_CELL, Sample, read_sample
from fairconstrained.audit.wording import Question
from fairconstrained.comparison import Compared
from fairconstrained.engines.columns import accepts_tables
from fairconstrained.exceptions import InputWarning, ignoring
from fairconstrained.inputs.labels import order_of
from fairconstrained.inputs.samples import check_samples
from fairconstrained.inputs.values import in_words
from fairconstrained.metrics.populations import Weights


@accepts_tables(
    *("y_true", "y_pred", "sensitive_features", "y_score", "before", "sample_weight"),
    "control_features",
    models=("y_pred", "before"),
)
def report(
    y_true: ArrayLike | None = None,
    y_pred: Any = None,
    *,
    sensitive_features: Any,
    y_score: ArrayLike | None = None,
    before: Any = None,
    sample_weight: Any = None,
    control_features: Any = None,
    constraint: Any = None,
    slack: float | None = None,
    pos_label: Any = None,
    X: Any = None,
    threshold: float | None = None,
    confidence: float = 0.95,
    min_cell: int = MIN_CELL,
    reference: Any = None,
    preset: str | None = None,
) -> Audit:
    r"""Audit decisions, or any fitted model: rates, ratios, errors, changes and certificates.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,), optional
        Labels: the outcomes that turned out to be right. Missing values are rows whose label is not
        known.
    y_pred : array-like of shape (n_samples,), or a fitted model
        Decisions; rows where they are missing are left out. Or a model of any library: with
        ``predict`` (scikit-learn, LightGBM, XGBoost, also their boosters), a ``torch.nn.Module``,
        or a function of `X`.
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        Groups by one attribute or more; missing values are groups that are not known.
    y_score : array-like of shape (n_samples,), optional
        Scores that grow with the chance of the favourable label, for calibration and AUCs. By
        default, probabilities of a model that has them.
    before : array-like of shape (n_samples,), or a fitted model, optional
        Earlier decisions on the same rows.
    sample_weight : array-like of shape (n_samples,), or Weights, optional
        Non-negative weights for all rates. Certificates need a bound on them:
        ``Weights(values, most=5)`` of :mod:`fairconstrained.metrics`.
    control_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
        Strata, such as kinds of job: groups are compared within each.
    constraint : str or constraint object, optional
        The criterion of the question: parity of rates; by default "demographic_parity". Of
        ``DemographicParity(ratio=0.8)`` the smallest ratio of rates counts; with
        ``attributes="parallel"`` each attribute is compared by itself only.
    slack : float, optional
        How large the difference may be; by default the bound of a constraint object. Without one
        the page says how large it is.
    pos_label : label or list of labels, optional
        The favourable outcome; if labels, or earlier decisions, have other values than decisions,
        one of each. It may be left out for booleans, 0 and 1, and ordered categories. All others
        count as one; of three labels :func:`~fairconstrained.metrics.certify` compares more rates.
    X : array-like of shape (n_samples, n_features), optional
        The features that models predict from. Or a table of Dask, Ray or Spark: the other arguments
        are then names of its columns.
    threshold : float, optional
        For models whose output is a score: scores above it are favourable decisions.
    confidence : float, default=0.95
        Of each interval and each certificate.
    min_cell : int, default=10
        Rates that rest on fewer rows are counted and hidden, since they can identify people.
    reference : str, or list of str with one group for each attribute, optional
        Groups that others are compared with; by default the one with the highest rate.
    preset : {"four_fifths", "nyc_144"}, optional
        A question by name, in place of `constraint` and `slack`: the four-fifths rule of US
        agencies, or the impact ratios of New York City's Local Law 144. Without `y_pred` the latter
        counts scores above the median.

    Returns
    -------
    Audit

    Raises
    ------
    ValueError
        If the favourable outcome is not known, lengths differ, a criterion lacks labels, a model
        lacks `X`, scores lack a `threshold`, or :func:`fairconstrained.metrics.certify` raises it.

    Notes
    -----
    Rates have Wilson's intervals, differences and ratios have intervals of
    :func:`fairconstrained.metrics.confidence_interval`, and certificates come from
    :func:`fairconstrained.metrics.certify`, each with the given confidence by itself. Groups, also
    within a label, that ``fit`` would leave out (at a slack of 0.05 if none is given) are listed
    but not compared: the answer names them. It also names groups and labels without rows that
    categories declare or the model knows (``groups_``, ``classes_``).

    Examples
    --------
    >>> import fairconstrained
    >>> from fairconstrained.datasets import make_loan_applications
    >>> loans = make_loan_applications(2000, random_state=0)
    >>> audit = fairconstrained.report(y_pred=loans.target, pos_label="granted", slack=0.05,
    ...                                sensitive_features=loans.sensitive_features["sex"])
    >>> print(audit.answer)
    No (gap 24.0 points). ...
    """
    inputs = {"y_pred": y_pred, "y_true": y_true, "before": before, "y_score": y_score}
    inputs |= {"sensitive_features": sensitive_features, "control_features": control_features}
    if not is_number(min_cell, Integral) or min_cell < 1:
        raise ValueError(f"min_cell must be an integer >= 1; got {min_cell!r}.")
    weight = sample_weight.values if isinstance(sample_weight, Weights) else sample_weight
    handed_in = {name: None if is_model(values) else values for name, values in inputs.items()}
    check_samples(**handed_in, sample_weight=weight, X=X)
    orders = order_of(y_true), order_of(before)
    arguments = {"threshold": threshold, "pos_label": pos_label, "orders": orders}
    model = y_pred if is_model(y_pred) else None
    if model is not None:
        y_pred, scores = decisions_and_scores(model, X, sensitive_features, **arguments)
        inputs["y_score"] = scores if y_score is None else y_score
    if is_model(before):
        inputs["before"], _ = decisions_and_scores(before, X, sensitive_features, **arguments)
    if y_pred is None and preset == PRESET_NYC_144 and y_score is not None:
        y_pred = above_median(y_score)
    if y_pred is None:
        raise ValueError("y_pred must hold decisions, or be a model; got None.")
    inputs |= {"y_pred": y_pred, "sample_weight": sample_weight}
    shown = {"min_cell": min_cell, "reference": reference}
    sample = read_sample(inputs, pos_label, model=model, **shown)
    if preset is not None:
        return audited(sample, preset_question(preset, constraint, slack, confidence))
    return audited(sample, Question.of(constraint or "demographic_parity", slack, confidence))


@ignoring(InputWarning)  # notes say how values are spelled
def audited(sample: Sample, question: Question) -> Audit:
    """Return the audit of a sample for a question."""
    if question.criterion != "demographic_parity" and sample.label is None:
        raise ValueError(
            f"y_true must hold labels for constraint={question.criterion!r}; got none."
        )
    groupings, compared = sample.groupings, sample.compared(question.attributes)
    single = len(sample.people.columns)
    alone = [sample.everybody, *groupings[:single]]
    more = [*groupings[single:], *(compared if sample.strata is not None else [])]
    facts: dict[str, Any] = {
        "outcomes": _outcomes(sample),
        "groups": _joined(measures.rates(sample, by, question.confidence) for by in alone),
        "intersections": _joined(measures.rates(sample, by, question.confidence) for by in more),
        "differences": [],
        "ratios": [],
        "calibration": _joined(measures.calibration(sample, by) for by in groupings[:single]),
        "changes": _joined(measures.changes(sample, by) for by in [sample.everybody, *groupings]),
        "certificates": [],
        "left_out": [*sample.left_out, *sample.absent_labels, *sample.hidden_strata],
    }
    criteria = list(measures.COMPARED)[: None if sample.label is not None else 1]
    counted = [Counted(sample, by) for by in compared]
    tables = {
        name: measures.compared(counted, name, question.slack, sample.min_cell) for name in criteria
    }
    labels = () if question.criterion == "demographic_parity" else sample.absent_labels
    not_compared = [*labels, *sample.hidden_strata]
    for i, groups in enumerate(tqdm(counted, desc="comparing groups", delay=2, leave=False)):
        comparable = {name: table[i] for name, table in tables.items()}
        not_compared += _compare(groups, comparable, facts, question)
    if sample.weight is not None and sample.most is None:
        facts["left_out"].append(" ".join(wording.WEIGHTED.split()))
    with_families = facts | {"families": {by.attribute: by.family for by in compared}}
    return Audit(
        question=wording.question_text(facts, sample, question),
        verdict=wording.verdict(with_families, question),
        headline=wording.headline(with_families, question),
        answer=f"{wording.answer(with_families, question)}{wording.not_compared(not_compared)}",
        findings=[
            *wording.findings(facts, question),
            *measures.contradictions(facts["groups"][0]),
            *sample.notes,
        ],
        assumptions=wording.assumptions(facts),
        limits=[
            *(RULES[question.preset].limits if question.preset else ()),
            *wording.limits(sample),
        ],
        provenance={
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "version": __version__,
            "rows": len(sample.decision),
            **question._asdict(),
            "min_cell": sample.min_cell,
            "file": None,
            "sha256": None,
            "command": "fairconstrained.report(...)",
        },
        **facts,
    )


def _compare(
    counted: Counted, comparable: Mapping[str, Compared], facts: dict[str, Any], question: Question
) -> list[str]:
    """Add a comparison of groups by one attribute to `facts`; return the groups left out."""
    sample, by = counted.sample, counted.by
    left_out = {name: measures.left_out(sample, by, comparable, name) for name in comparable}
    facts["left_out"] += dict.fromkeys(name for names in left_out.values() for name in names)
    gaps, ratios = measures.comparisons(counted, comparable, question.confidence)
    compared = {by.groups[g] for g in np.flatnonzero(comparable["demographic_parity"].kept)}
    if compared:
        rows = facts["groups"] + facts["intersections"]
        groups = [row for row in rows if row["attribute"] == by.attribute]
        ratios[0] |= measures.impact_ratios(groups, compared, sample.reference_of(by))
    facts["differences"] += gaps
    facts["ratios"] += ratios
    in_question = comparable[question.criterion]
    not_compared = left_out.get(question.criterion, [])
    if question.ratio is not None:
        not_compared += measures.without_ratio(counted, in_question, question.criterion)
    if in_question.kept.any() and (sample.weight is None or sample.most is not None):
        cells = measures.members(question.criterion, in_question.kept)
        rows = counted.members(question.criterion, cells)
        (gap,) = question.measured({"differences": gaps, "ratios": ratios}) or [{}]
        certificate = replace(certified(sample, by, rows, question), standing=gap.get("standing"))
        proved: dict[str, Any] = {
            "slack": question.slack,
            "kept": certificate.kept if question.slack is not None else None,
            "rates": [rate for rate in certificate.rates if rate["rows"] >= sample.min_cell],
            "left_out": not_compared,
        }
        times = None if question.slack is None else rows_needed(certificate, question)
        needed = None if times is None else math.ceil(times * rows.sum())
        entry = {"attribute": by.attribute, "rows": int(rows.sum()), "rows_needed": needed}
        facts["certificates"].append({**entry, **certificate.to_dict(), **proved})
    return not_compared


def _outcomes(sample: Sample) -> dict[str, Any]:
    return {
        {"y_pred": "decision", "y_true": "label", "before": "before"}[name]: {
            "column": outcome.column,
            "favourable": outcome.name,
            "values": [
                {"value": in_words(value), "rows": rows, "favourable": value in outcome.good}
                for value, rows in outcome.rows.items()
                if rows
            ],
        }
        for name, outcome in sample.outcomes.items()
    }


def _joined(parts: Any) -> Facts:
    return [fact for part in parts for fact in part]
