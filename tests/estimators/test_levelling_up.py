"""Floors under rates of the favourable outcome, in each group its own."""

import fairlearn.metrics
import numpy as np
import pandas as pd
import pytest

from fairconstrained import RateConstrainedClassifier
from fairconstrained.constraints import DemographicParity, RejectionRate, Space
from fairconstrained.datasets import make_biased_classification
from fairconstrained.metrics import rejection_rate

DATA = make_biased_classification(1000, random_state=0)
X, Y = DATA.data, DATA.target
GROUPS = np.where(DATA.sensitive_features == 0, "a", "b")


def fitted(constraint, groups=GROUPS):
    return RateConstrainedClassifier(constraint).fit(X, Y, sensitive_features=groups)


def accepted(clf, groups=GROUPS):
    return pd.Series(clf.predict(X)).groupby(groups).mean()


def test_no_group_falls_below_its_rate_without_parity():
    free = accepted(fitted(DemographicParity(1.0)))
    assert (accepted(fitted(DemographicParity(0.02))) < free - 0.05).any()
    floors = RejectionRate((1.0 - free).to_dict(), per_group=True)
    clf = fitted([DemographicParity(0.02), floors])
    assert clf.feasible_
    assert (accepted(clf) >= free - 1e-9).all()
    assert clf.violations_["rejection_rate"] == pytest.approx(1.0 - accepted(clf).min())


def test_caps_of_groups_follow_their_labels():
    """Also of crossed columns, and for every class of several."""
    space = Space([0, 1, 2], [("f", 1), ("m", 0)])
    caps = {("m", 0): 0.2, ("f", 1): 0.3}
    assert RejectionRate(caps, per_group=True).bind(space).slack.tolist() == [0.3, 0.2] * 3


def test_the_metric_is_one_minus_the_smallest_selection_rate_of_fairlearn():
    predicted = (X[:, 0] > 0).astype(int)
    frame = fairlearn.metrics.MetricFrame(
        metrics=fairlearn.metrics.selection_rate,
        y_true=Y,
        y_pred=predicted,
        sensitive_features=GROUPS,
    )
    found = rejection_rate(Y, predicted, sensitive_features=GROUPS)
    assert found == pytest.approx(1.0 - frame.group_min())
    assert rejection_rate(Y, predicted) == pytest.approx(1.0 - frame.overall)


@pytest.mark.parametrize(
    ("cap", "message"),
    [
        (RejectionRate({"a": 0.5, "b": 0.5}), r"each of the groups \['a', 'b'\], with per_group"),
        (RejectionRate({"a": 0.5}, per_group=True), r"got \{'a': 0.5\}"),
        (RejectionRate({"a": 0.5, "b": "x"}, per_group=True), "max must be a number >= 0; got 'x'"),
    ],
)
def test_wrong_caps_are_refused(cap, message):
    with pytest.raises(ValueError, match=message):
        fitted(cap)
