r"""Rate constraints: demographic parity, equalized odds, error rates, caps, costs, and custom ones.

Each criterion lists its events (see :mod:`fairconstrained.constraints.notions`). With more than two
classes there is one event per class. Two classes need only one event, because their rates add up to
1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairconstrained import rate_definitions as rates
from fairconstrained.arrays import Floats, numbers_in
from fairconstrained.constraints import notions
from fairconstrained.constraints.linear import LinearMoments
from fairconstrained.constraints.tables import ClassProbabilities, Space
from fairconstrained.inputs.groups import group_name


class DemographicParity(notions.ParityOfClass):
    r"""Equal prediction rates: :math:`P(\hat y = k \mid g)` differs by at most `slack`.

    Parameters
    ----------
    slack : float or sequence of float, optional
        Largest allowed gap; default: the estimator's ``slack``. Parallel attributes may have one
        for each column.
    ratio : float, optional
        In place of `slack`: the smallest rate is at least this fraction of the largest, as in the
        four-fifths rule (0.8). ``violation_`` is then 1 less the smallest ratio, by predicted
        labels, and a fit that is ``feasible_`` keeps the ratio exactly; ``excess_`` and margins are
        in units of rates. A ratio says nothing about the size of the rates: 0.01 against 0.0125 is
        as good as 0.4 against 0.5. Nor is it the same for both of two outcomes: those who are
        refused may differ by more (`pos_label`).
    reference : {"pairwise", "rest", "overall"}, default="pairwise"
        Compare each pair of groups (largest minus smallest rate), each group with all others
        together (RaCO-DP, Definition 3.1), or each group with the overall rate (fairlearn's form).
    attributes : {"crossed", "parallel"}, default="crossed"
        Of several sensitive columns: compare each combination of values with all others, or the
        values of each column by itself. Parity by sex and by race, in parallel, says nothing about
        their intersections. A row that lacks one of them is still compared by the other, and is of
        unknown group where they are crossed (and in private fits, whose groups are public).
    temperature : float, default=1.0
        Sharpness of the soft rates, which replace predicted labels in training: they are means of
        the class probabilities of `temperature` times the scores. Solvers increase it if predicted
        labels do not follow the soft rates.
    pos_label : label, optional
        The favourable class, whose rates are compared; default: 1 of 0 and 1, True, the last of
        ordered categories, each of several. Gaps between the rates of two classes are the same for
        both, ratios are not: of two words it must be given with `ratio`.

    Examples
    --------
    >>> from fairconstrained.constraints import DemographicParity
    >>> DemographicParity(slack=0.02, reference="overall")
    DemographicParity(reference='overall', slack=0.02)

    The four-fifths rule:

    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.metrics import demographic_parity_ratio
    >>> data = make_biased_classification(1000, random_state=0)
    >>> clf = RateConstrainedClassifier(DemographicParity(ratio=0.8))
    >>> predicted = clf.fit(data.data, data.target,
    ...                     sensitive_features=data.sensitive_features).predict(data.data)
    >>> demographic_parity_ratio(
    ...     data.target, predicted, sensitive_features=data.sensitive_features) >= 0.8
    True
    """

    name = "demographic_parity"
    rates = staticmethod(rates.selection_rates)


class EqualizedOdds(notions.ParityOfClass):
    r"""Equal prediction rates within every label: :math:`P(\hat y = k \mid y, g)`.

    Parameters are as in :class:`DemographicParity`.

    Examples
    --------
    >>> from fairconstrained.constraints import EqualizedOdds
    >>> EqualizedOdds(slack=0.05)
    EqualizedOdds(slack=0.05)
    """

    name = "equalized_odds"
    rates = staticmethod(rates.odds)


class EqualOpportunity(notions.ParityOfClass):
    r"""Equal true positive rates: :math:`P(\hat y = c \mid y = c, g)`.

    Parameters
    ----------
    slack, ratio, reference, attributes, temperature
        As in :class:`DemographicParity`.
    pos_label : label, optional
        The favourable class c; default: 1 of 0 and 1, True, the last of ordered categories, each of
        several. Of two words it must be given.

    Examples
    --------
    Of words the favourable one is named:

    >>> from fairconstrained.constraints import EqualOpportunity, Space
    >>> space = Space(["bad", "good"], ["f", "m"])
    >>> EqualOpportunity(slack=0.05, pos_label="good").bind(space).describe(0)
    'equal_opportunity: group f, label good against group m, label good'
    """

    name = "equal_opportunity"
    rates = staticmethod(rates.true_positive_rates)


class FalsePositiveRateParity(notions.ParityOfClass):
    r"""Equal false positive rates: :math:`P(\hat y = c \mid y \neq c, g)`.

    Parameters are as in :class:`EqualOpportunity`.

    Examples
    --------
    >>> from fairconstrained.constraints import FalsePositiveRateParity, Space
    >>> space = Space(["bad", "good"], ["f", "m"])
    >>> FalsePositiveRateParity(slack=0.05, pos_label="bad").bind(space).describe(0)
    'false_positive_rate_parity of bad: group f, label good against group m, label good'
    """

    name = "false_positive_rate_parity"
    rates = staticmethod(rates.false_positive_rates)

    title = notions.named_positive


class ErrorRateParity(notions.Parity):
    r"""Equal error rates: :math:`P(\hat y \neq y \mid g)`.

    Parameters are as in :class:`DemographicParity`.

    Examples
    --------
    >>> from fairconstrained.constraints import ErrorRateParity
    >>> ErrorRateParity(slack=0.05, reference="rest")
    ErrorRateParity(reference='rest', slack=0.05)
    """

    name = "error_rate_parity"
    rates = staticmethod(rates.error_rates)


class FalseNegativeRate(notions.CapOfClass):
    r"""Cap on :math:`P(\hat y \neq c \mid y = c)`.

    Paper (RaCO-DP, equation 17): :math:`P(\hat y = c \mid y \neq c)`, which is a class's false
    positive rate; here: the rate that the paper's words define.

    Parameters
    ----------
    max, per_group, temperature
        As in :class:`Cap`.
    pos_label : label, optional
        The favourable class c, as in :class:`EqualOpportunity`; default: every one of several.

    Examples
    --------
    At most a fifth of the positives of each group may be missed:

    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.constraints import FalseNegativeRate
    >>> from fairconstrained.datasets import make_biased_classification
    >>> data = make_biased_classification(500, random_state=0)
    >>> clf = RateConstrainedClassifier(FalseNegativeRate(max=0.2, per_group=True))
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features).feasible_
    True
    """

    name = "false_negative_rate"
    rates = staticmethod(rates.false_negative_rates)


class FalsePositiveRate(notions.CapOfClass):
    r"""Cap on :math:`P(\hat y = c \mid y \neq c)`.

    Parameters are as in :class:`FalseNegativeRate`.

    Examples
    --------
    >>> from fairconstrained.constraints import FalsePositiveRate
    >>> FalsePositiveRate(max=0.1, per_group=True)
    FalsePositiveRate(max=0.1, per_group=True)
    """

    name = "false_positive_rate"
    rates = staticmethod(rates.false_positive_rates)

    title = notions.named_positive


class RejectionRate(notions.CapOfClass):
    r"""Cap on :math:`P(\hat y \neq c)`: a floor of ``1 - max`` under the rate of the outcome c.

    In each group it makes a parity criterion *level up*: no group gets the favourable outcome less
    often than the floor says, which may be its rate without the parity criterion.

    It bounds rates, not decisions about people: some who were accepted may be refused while others
    are accepted in their place. Nor does it say that people accepted in addition are better off.

    Parameters
    ----------
    max, per_group, temperature
        As in :class:`Cap`.
    pos_label : label, optional
        The favourable outcome c, as in :class:`EqualOpportunity`; default: every one of several.

    Notes
    -----
    Caps that were computed from the training rows are no longer secret in a private fit.

    Examples
    --------
    Parity alone takes the outcome from one group; with a floor it grants more to the other:

    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.constraints import DemographicParity, RejectionRate
    >>> from fairconstrained.datasets import make_biased_classification
    >>> data = make_biased_classification(2000, random_state=0)
    >>> X, y, groups = data.data, data.target, data.sensitive_features
    >>> def rates(constraint):
    ...     clf = RateConstrainedClassifier(constraint)
    ...     accepted = clf.fit(X, y, sensitive_features=groups).predict(X)
    ...     return {g: float(accepted[groups == g].mean()) for g in (0, 1)}
    >>> free, parity = rates(DemographicParity(1.0)), rates(DemographicParity(0.02))
    >>> floors = RejectionRate({g: 1 - free[g] for g in free}, per_group=True)
    >>> up = rates([DemographicParity(0.02), floors])
    >>> min(parity[g] - free[g] for g in free) < -0.05, min(up[g] - free[g] for g in free) >= 0
    (True, True)
    """

    name = "rejection_rate"
    rates = staticmethod(rates.rejection_rates)

    title = notions.named_positive


@dataclass(eq=False, repr=False)
class ExpectedCost(notions.Cap):
    r"""Cap on the mean cost of predictions, :math:`E[c(y, \hat y)]`.

    It keeps a model useful while another criterion makes it fair:
    ``ExpectedCost(0.2)`` is an accuracy of at least 0.8, ``ExpectedCost(0.2, costs="balanced")`` a
    balanced accuracy of at least 0.8. A floor under a mean utility u is a cap on the cost
    :math:`\max u - u`.

    It is a mean over all rows, or with `per_group` over each group, and says nothing about who
    bears the costs. It is your assumption that costs are equal for all people with one outcome.

    Parameters
    ----------
    max, per_group, temperature
        As in :class:`Cap`, of the mean cost.
    costs : array-like of shape (n_classes, n_classes) or "balanced", optional
        Costs of at least 0, true label by predicted label, in the sorted order of the labels.
        Default: 1 for every error, so that the mean is the error rate. "balanced": the mean over
        labels of the error rate within each, which is 1 less the balanced accuracy.

    Examples
    --------
    A missed positive costs five times as much as a false alarm:

    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.constraints import ExpectedCost
    >>> from fairconstrained.datasets import make_biased_classification
    >>> data = make_biased_classification(1000, random_state=0)
    >>> cost = ExpectedCost(0.45, costs=[[0, 1], [5, 0]])
    >>> clf = RateConstrainedClassifier(["demographic_parity", cost], slack=0.1)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features).feasible_
    True
    """

    name = "expected_cost"

    costs: Any = field(default=None, kw_only=True)

    def events(self, classes: Sequence[Any]) -> list[notions.Event]:
        costs = rates.expected_costs(self.costs, len(classes))
        return [notions.Event(rate.possible.max(axis=1), rate.hits) for rate in costs]

    def combined(self, n_events: int) -> Any:
        return np.full((1, n_events), 1.0 / n_events)


@dataclass(eq=False, repr=False)
class RateConstraint(notions.Notion):
    r"""Any linear combination of prediction rates (RaCO-DP, equation 6).

    .. math:: \sum_{r,k} \mathrm{weights}_{jrk}\, P(\hat y = k \mid \text{union } r)
              \le \mathrm{slack}_j .

    Parameters
    ----------
    part : mapping
        Disjoint parts of the samples, by name. The values are mappings with one or both of the keys
        ``"group"`` and ``"label"``, whose values are a group (label) or a list of them.
    unions : list of lists of str
        The names of the parts in each union.
    weights : array-like of shape (m, n_unions, n_classes)
    slack : float or array-like of shape (m,), optional
        Default: the estimator's ``slack``.
    temperature : float, default=1.0
        As in :class:`DemographicParity`.

    Examples
    --------
    Women must be predicted positive at least as often as men, up to 0.01:

    >>> from fairconstrained.constraints import RateConstraint, Space
    >>> one_sided = RateConstraint(
    ...     part={"women": {"group": "Female"}, "men": {"group": "Male"}},
    ...     unions=[["women"], ["men"]],
    ...     weights=[[[0, -1], [0, 1]]],
    ...     slack=0.01,
    ... )
    >>> one_sided.bind(Space(["no", "yes"], ["Female", "Male"])).describe(0)
    'rate_constraint: group Male against group Female'
    """

    name = "rate_constraint"

    part: Any
    unions: Any
    weights: Any
    slack: Any = None
    temperature: float = field(default=1.0, kw_only=True)

    def bind(self, space: Space, slack: float | None = None) -> LinearMoments:
        part, unions, n_classes = self._parts(space), self._unions(), len(space.classes)
        weights = numbers_in(self.weights)
        if not weights.size or weights.shape[1:] != (len(unions), n_classes):
            raise ValueError(
                f"RateConstraint.weights must have shape (m, {len(unions)}, {n_classes}): values, "
                f"unions, classes; got {weights.shape} of {self.weights!r}."
            )
        if not (np.isfinite(weights).all() and weights.any(axis=(1, 2)).all()):
            raise ValueError(
                "RateConstraint.weights must be finite, and some of each value not zero; got "
                f"{self.weights!r}."
            )
        slacks = np.asarray(slack if self.slack is None else self.slack)
        if slacks.shape not in ((), (len(weights),)):
            raise ValueError(
                f"RateConstraint.slack must be a number or of shape ({len(weights)},), one for "
                f"each value; got shape {slacks.shape}."
            )
        for value in slacks.reshape(-1):
            notions.checked_number(self, "slack", value, minimum=-np.inf)
        if space.unknown:  # in the part of their label, where that is the same for all groups
            pooled = np.where((part == part[:, :1]).all(axis=1), part[:, 0], -1)
            part = np.column_stack((part, *[pooled] * space.unknown))
        # Cells in no part have index -1, the padded column, which is in no union.
        cells = np.pad(unions, ((0, 0), (0, 1)))[:, part].reshape(len(unions), -1)
        # The rate of class k in union r sums column k over its cells.
        hits = sp.kron(sp.csr_array(cells), sp.eye_array(n_classes))
        terms = hits, np.repeat(cells, n_classes, axis=0), weights.reshape(len(weights), -1)
        statistic = ClassProbabilities(n_classes, notions.checked_temperature(self))
        allowed = np.full(len(weights), slacks, dtype=float)
        return LinearMoments(space, *terms, allowed, statistic, self.name)

    def _parts(self, space: Space) -> NDArray[np.int64]:
        """Return the number of the part of each label and group, in the order of the names."""
        if not isinstance(self.part, Mapping):
            raise ValueError(
                "RateConstraint.part must be a mapping from names of parts to their rows; got "
                f"{self.part!r}."
            )
        part = np.full((len(space.classes), len(space.groups)), -1)
        names = list(self.part)
        for number, name in enumerate(names):
            rows = self.part[name]
            if not isinstance(rows, Mapping) or not rows or set(rows) - {"label", "group"}:
                raise ValueError(
                    f"RateConstraint.part[{name!r}] must say which rows it has, as in "
                    f"{{'label': 'yes', 'group': ['a', 'b']}} with one key or both; got {rows!r}."
                )
            labels = _positions(rows, "label", name, space.classes)
            cells = np.ix_(labels, _positions(rows, "group", name, space.groups))
            if (part[cells] >= 0).any():
                other = names[part[cells].max()]
                raise ValueError(
                    f"RateConstraint.part must be disjoint; {other!r} and {name!r} have rows in "
                    "common. Name smaller parts, and join them in `unions`."
                )
            part[cells] = number
        return part

    def _unions(self) -> Floats:
        """Return the unions of parts as zeros and ones, (n_unions, n_parts)."""
        names, lists = list(self.part), (list, tuple, set)
        unions = self.unions if isinstance(self.unions, lists) else [self.unions]
        strange = [u for u in unions if not isinstance(u, lists) or any(n not in names for n in u)]
        if strange:
            raise ValueError(
                f"RateConstraint.unions must be lists of names out of {names}; got {strange}."
            )
        return np.array([[float(name in union) for name in names] for union in unions])


def _positions(rows: Mapping[str, Any], key: str, part: str, known: Sequence[Any]) -> list[int]:
    """Return the indices of a part's labels or groups; of all if the part names none."""
    if key not in rows:
        return list(range(len(known)))
    wanted = rows[key] if isinstance(rows[key], (list, set, np.ndarray)) else [rows[key]]
    matches = [[i for i, k in enumerate(known) if w in (k, group_name(k))] for w in wanted]
    if not all(matches):
        missing = [w for w, positions in zip(wanted, matches, strict=True) if not positions]
        raise ValueError(
            f"RateConstraint.part[{part!r}] names {key}s that the data do not have: "
            f"{missing}; they have {[group_name(k) for k in known]}."
        )
    return sorted({i for positions in matches for i in positions})
