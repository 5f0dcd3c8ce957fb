"""Displays of groups' scores: what is drawn is the data's distribution, and the interval's part."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairconstrained import PartialParityClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.display import GroupReportDisplay, GroupScoreDisplay, ParityCurveDisplay


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    group = np.repeat(list("abc"), (100, 60, 40))
    return rng.normal(size=200) + (group == "b"), group, rng.exponential(size=200)


@pytest.mark.parametrize("interval", [(0.1, 0.5), [(0.0, 0.2), (0.6, 0.9)]])
def test_outlines_are_weighted_densities_and_shades_their_part_in_the_interval(data, interval):
    scores, group, weight = data
    display = GroupScoreDisplay.from_predictions(
        scores, sensitive_features=group, interval=interval, sample_weight=weight, bins=20
    )
    length = sum(b - a for a, b in np.atleast_2d(interval))
    for name, line, shade in zip("abc", display.lines_, display.shades_, strict=True):
        own = group == name
        heights, edges, _ = line.get_data()
        expected, _ = np.histogram(scores[own], edges, weights=weight[own], density=True)
        assert heights == pytest.approx(expected, abs=1e-9)
        inside = shade.get_data().values
        assert (inside <= heights + 1e-9).all()
        assert inside @ np.diff(edges) == pytest.approx(length)
        assert line.get_label() == name
    assert display.ax_.get_legend() is not None


def test_curves_are_ranks_against_ranks(data):
    scores, group, weight = data
    display = ParityCurveDisplay.from_predictions(
        scores, sensitive_features=group, sample_weight=weight, interval=(0.1, 0.5), name="model"
    )
    thresholds = np.concatenate(([-np.inf], np.unique(scores)))[::-1]
    for name, line in zip("bc", display.lines_, strict=True):
        for g, values in (("a", line.get_xdata()), (name, line.get_ydata())):
            own = group == g
            above = [np.average(scores[own] > t, weights=weight[own]) for t in thresholds]
            assert values == pytest.approx(np.array(above), abs=1e-12)
        assert line.get_label() == f"model, {name}"
    assert len(display.shades_) == 1


def test_from_an_estimator_with_its_interval():
    data = make_biased_classification(200, 6, 2, 2, bias=0.3, random_state=0)
    clf = PartialParityClassifier("demographic_parity", interval=(0.2, 0.6))
    clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    forest = RandomForestClassifier(5, random_state=0).fit(data.data, data.target)
    own = clf.decision_function(data.data), forest.predict_proba(data.data)[:, 1]
    for model, scores, interval in zip((clf, forest), own, ((0.2, 0.6), None), strict=True):
        for kind in (GroupScoreDisplay, ParityCurveDisplay):
            display = kind.from_estimator(
                model, data.data, sensitive_features=data.sensitive_features
            )
            assert (display.y_score == scores).all()
            assert display.interval == interval


@pytest.mark.parametrize("steps", [[], [StandardScaler()]], ids=["alone", "scaled"])
def test_a_pipeline_is_looked_at_as_its_last_step(steps):
    """Its interval is marked, and it sees the groups if it wants to: predictions do not route."""
    data = make_biased_classification(200, 6, 2, 2, bias=0.3, random_state=0)
    X = steps[0].fit_transform(data.data) if steps else data.data
    clf = PartialParityClassifier("demographic_parity", interval=(0.2, 0.6), group_features=True)
    clf.fit(X, data.target, sensitive_features=data.sensitive_features)
    model = make_pipeline(*steps, make_pipeline(clf))
    display = GroupScoreDisplay.from_estimator(
        model, data.data, sensitive_features=data.sensitive_features
    )
    expected = clf.decision_function(X, sensitive_features=data.sensitive_features)
    assert (display.y_score == expected).all()
    assert display.interval == (0.2, 0.6)
    display = GroupReportDisplay.from_estimator(
        model, data.data, data.target, sensitive_features=data.sensitive_features, confidence=0.9
    )
    assert display.report.loc["overall", "selection_rate"] == pytest.approx(np.mean(expected > 0))
    assert display.ax_.get_xlabel() == "rate, with its 90 % interval; shaded: overall"
