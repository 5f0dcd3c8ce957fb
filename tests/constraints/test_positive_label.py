"""The positive class of a notion is the one that the user names, and messages name it."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from fairconstrained import (
    DPFermiClassifier,
    LossParityClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
)
from fairconstrained.constraints import (
    EqualOpportunity,
    FalseNegativeRate,
    FalsePositiveRate,
    FalsePositiveRateParity,
    LossParity,
    PartialEqualOpportunity,
    Space,
)
from fairconstrained.metrics import certify, equal_opportunity_difference
from tests.helpers.fits import FORGIVEN, table
from tests.helpers.notions import hard_values, random_rows, soft_values

NOTIONS = [
    EqualOpportunity(),
    FalsePositiveRateParity(),
    FalseNegativeRate(per_group=True),
    FalsePositiveRate(per_group=True),
    LossParity(within="positive"),
]
GROUPS = ["a", "b", "c"]
X, Y, GROUP = table()
LABELS = np.array(["bad", "good"])[Y]
by_name = pytest.mark.parametrize("notion", NOTIONS, ids=lambda notion: notion.name)


def naming(notion, label):
    return clone(notion).set_params(pos_label=label)


def mirrored(rows):
    """The same rows if the labels are sorted the other way round."""
    return rows._replace(scores=-rows.scores, y=1 - rows.y)


@by_name
def test_the_first_label_as_the_positive_one_is_the_second_one_of_mirrored_rows(notion):
    rows = random_rows(0)
    words, codes = Space(["bad", "good"], GROUPS), Space([0, 1], GROUPS)
    given, expected = naming(notion, "bad").bind(words, 0.1), notion.bind(codes, 0.1)
    for values in (soft_values, hard_values):
        torch.testing.assert_close(values(given, rows), values(expected, mirrored(rows)))
    second = naming(notion, "good").bind(words, 0.1)
    assert torch.equal(soft_values(expected, rows), soft_values(second, rows))
    with pytest.raises(
        ValueError, match=r"\.pos_label must say which of the labels \['bad', 'good"
    ):
        notion.bind(words, 0.1)


@by_name
def test_of_several_labels_the_named_one_counts_alone(notion):
    rows = random_rows(0, n_classes=3)
    space = Space(["bad", "fair", "good"], GROUPS)
    every = notion.bind(space, 0.1)
    named = [naming(notion, label).bind(space, 0.1) for label in ("fair", "good")]
    values = torch.cat([soft_values(one, rows) for one in named])
    torch.testing.assert_close(values, soft_values(every, rows)[-len(values) :])


@pytest.mark.parametrize("label", ["bad", "good"])
def test_the_rates_of_the_named_class_are_kept(label):
    clf = RateConstrainedClassifier(EqualOpportunity(), slack=0.03)
    clf.set_params(constraint__pos_label=label).fit(X, LABELS, sensitive_features=GROUP)
    gap = equal_opportunity_difference(
        LABELS, clf.predict(X), sensitive_features=GROUP, pos_label=label
    )
    assert clf.violation_ == pytest.approx(gap)
    assert gap <= 0.03 + FORGIVEN
    assert all(f"label {label}" in words for words in clf.constraints_)


def test_certificates_follow_the_constraint():
    class Fixed:
        classes_ = np.array(["bad", "good"])

        def predict(self, X):
            return np.array(["bad", "good"])[(X[:, 0] > 0).astype(int)]

    for label in ("bad", "good"):
        notion, groups = EqualOpportunity(pos_label=label), {"sensitive_features": GROUP}
        certificate = certify(Fixed(), X, LABELS, constraint=notion, slack=0.5, **groups)
        predicted = Fixed().predict(X)
        expected = equal_opportunity_difference(LABELS, predicted, pos_label=label, **groups)
        assert certificate.estimate == pytest.approx(expected)
        assert label in certificate.binding


@pytest.mark.parametrize(
    ("kind", "notion"),
    [
        (RateConstrainedClassifier, FalsePositiveRateParity()),
        (LossParityClassifier, LossParity()),
        (DPFermiClassifier, EqualOpportunity()),
        (PartialParityClassifier, PartialEqualOpportunity((0.1, 0.4))),
    ],
)
def test_labels_that_do_not_occur_are_refused_before_any_work(kind, notion):
    def works(iterate):
        raise AssertionError("work has begun")

    clf = kind(naming(notion, "ugly"), callbacks=works)
    message = r"\.pos_label must be one of the labels \['bad', 'good'\]; got 'ugly'"
    with pytest.raises(ValueError, match=message) as refused:
        clf.fit(X, LABELS, sensitive_features=GROUP)
    assert "epsilon" not in "".join(refused.value.__notes__)  # nothing was released
