r"""Parity of predictive values: of precision, and of false omission rates.

Their condition is the prediction, so that both sums of a rate are sums over the table,

.. math:: \rho_r = \frac{\sum_{q,s} A_{rqs} M_{qs}}{\sum_{q,s} B_{rqs} M_{qs}} ,

and the constraint is a smooth, but not a linear, function of the table.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from fairconstrained import rate_definitions as rates
from fairconstrained.constraints.affine import as_tensor, without_zeros
from fairconstrained.constraints.linear import LinearMoments, RateRatios
from fairconstrained.constraints.notions import ParityOfClass, named_positive
from fairconstrained.numerics import NEGLIGIBLE


class PredictiveRates(LinearMoments):
    r"""Differences of rates :math:`P(y \in A \mid \hat y \in B, g)`, minus slack.

    Numerators count the predictions of B, and so do denominators, in all cells of a set of groups.
    A set without such predictions has no rate. In any comparison its rate then counts as 0 and the
    other one as 1, so that no slack below 1 is kept.
    """

    def affine(self, counts: Tensor) -> None:  # type: ignore[override]
        """Return None: the denominators are not fixed."""

    def evaluate(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        defined, values = self._predicted(sums) > NEGLIGIBLE, super().evaluate(sums, counts, aux)
        if bool(defined.all()):
            return values
        rate, factor, defined = self.combinations.rate, self.combinations.factor, defined.cpu()
        first, second = ((rate * side).sum(dim=0) for side in (factor > 0, factor < 0))
        # Of two undefined rates the one of lower index counts as 1, in both orders of the pair.
        is_larger = ~defined[second] & (defined[first] | (first < second))
        up, down = factor.clamp_min(0.0).sum(dim=0), factor.clamp_max(0.0).sum(dim=0)
        worst = torch.where(is_larger, up, down).to(values) - self.slack.to(values)
        return torch.where((defined[first] & defined[second]).to(values.device), values, worst)

    def rates(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Return the rates from the table, (n_rates,); 0 where nobody has the prediction."""
        below = self._predicted(sums)
        defined = below > NEGLIGIBLE
        above = (self._above.to(sums) @ sums.reshape(-1, 1))[:, 0]
        return torch.where(defined, above / torch.where(defined, below, 1.0), 0.0)

    def _predicted(self, sums: Tensor) -> Tensor:
        """Return the weight of the rows with the prediction of each rate, (n_rates,)."""
        return (self._predictions.to(sums) @ sums.reshape(-1, 1))[:, 0]

    @cached_property
    def _predictions(self) -> Tensor:
        """Return weights of the table's entries in denominators, (n_rates, n_parts * n_columns)."""
        sets = self._denominators.toarray()[:, :, None]
        counted = self._numerators.toarray() != 0
        by_column = counted.reshape(*sets.shape[:2], self.statistic.n_columns)
        predicted = by_column.any(axis=1, keepdims=True)
        return as_tensor(without_zeros((sets * predicted).reshape(counted.shape)), self.slack)

    def _moves(self, sums: Tensor, counts: Tensor) -> Tensor:
        above, below = (matrix.to_dense().to(sums) for matrix in (self._above, self._predictions))
        moved = (above - below * self.rates(sums, counts)[:, None]).reshape(-1, *sums.shape)
        total = self._predicted(sums).clamp_min(NEGLIGIBLE)[:, None, None]
        return torch.cat((moved, torch.zeros_like(moved[:, :, :1])), dim=2) / total


class PredictiveRatios(PredictiveRates, RateRatios):
    """Ratios of predictive values of at least c, in the form of :class:`RateRatios`."""


class PredictiveParity(ParityOfClass):
    r"""Equal precision: :math:`P(y = c \mid \hat y = c, g)` differs by at most `slack`.

    Positive predictions mean the same in all groups ("predictive parity", Chouldechova 2017). The
    criterion says nothing about how many of a group are predicted positive, or should have been: a
    model that finds few positives of one group, but surely, passes. Where base rates differ, it
    excludes equal false positive and false negative rates (see the reference).

    A group without positive predictions has no precision. Metrics are then nan, and a fit counts
    the largest possible gap, 1: a model that is ``feasible_`` predicts the class in every group.
    Precision of few predictions jumps with each; a floor under their rate
    (:class:`RejectionRate`) makes it stable.

    The constraint is not linear in the rates. Labels are bounded like those of other criteria. With
    `epsilon`, ``excess_error_`` allows for any rate of predictions, and is large.

    Parameters
    ----------
    slack, ratio, reference, attributes, temperature
        As in :class:`DemographicParity`.
    pos_label : label, optional
        The favourable class c, as in :class:`EqualOpportunity`; default: every one of several.

    References
    ----------
    Chouldechova, "Fair prediction with disparate impact: a study of bias in recidivism prediction
    instruments", Big Data 5 (2017).

    Examples
    --------
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.constraints import PredictiveParity
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.metrics import predictive_parity_difference
    >>> data = make_biased_classification(2000, random_state=0)
    >>> clf = RateConstrainedClassifier(PredictiveParity(slack=0.02))
    >>> predicted = clf.fit(data.data, data.target,
    ...                     sensitive_features=data.sensitive_features).predict(data.data)
    >>> predictive_parity_difference(
    ...     data.target, predicted, sensitive_features=data.sensitive_features) <= 0.021
    True
    """

    name = "predictive_parity"
    rates = staticmethod(rates.precisions)
    _differences = PredictiveRates
    _ratios = PredictiveRatios

    title = named_positive


class FalseOmissionRateParity(PredictiveParity):
    r"""Equal false omission rates: :math:`P(y = c \mid \hat y \neq c, g)`.

    Among samples that are not predicted c, equal fractions of all groups are c: with two classes,
    parity of the negative predictive value. Together with :class:`PredictiveParity` it is
    *sufficiency* of the decisions. Its limits, and the treatment of a group without such
    predictions, are the same.

    Parameters are as in :class:`PredictiveParity`.

    Examples
    --------
    >>> from fairconstrained.constraints import FalseOmissionRateParity, Space
    >>> FalseOmissionRateParity(slack=0.05).bind(Space([0, 1], ["f", "m"])).describe(0)
    'false_omission_rate_parity of 1: group f against group m'
    """

    name = "false_omission_rate_parity"
    rates = staticmethod(rates.false_omission_rates)
