"""Displays draw the data they are given, onto axes of their own or of another display."""

import importlib
import sys
from functools import partial

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairconstrained import PartialParityClassifier, RateConstrainedClassifier
from fairconstrained.constraints import DemographicParity
from fairconstrained.datasets import make_biased_classification
from fairconstrained.display import (
    ConvergenceDisplay,
    GroupReportDisplay,
    GroupScoreDisplay,
    ParityCurveDisplay,
    TradeoffDisplay,
)
from fairconstrained.metrics import (
    confidence_interval,
    equalized_odds_difference,
    equalized_odds_ratio,
    group_report,
)
from fairconstrained.model_selection import pareto_front, tradeoff_curve

mpl.use("Agg")
plt = importlib.import_module("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


ERROR = np.array([0.15, 0.20, 0.25, 0.18])
VIOLATION = np.array([0.20, 0.10, 0.02, 0.20])
PALE = "pale: behind the line"
STD = np.array([0.01, 0.02, 0.03, 0.04])


def tradeoff(**kwargs):
    ends = {"error_std": STD, "violation_std": 2 * STD}
    return TradeoffDisplay(error=ERROR, violation=VIOLATION, **ends, **kwargs)


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def bars(container):
    horizontal, vertical = (np.array(lines.get_segments()) for lines in container.lines[2])
    return np.ptp(horizontal[:, :, 0], axis=1) / 2, np.ptp(vertical[:, :, 1], axis=1) / 2


def test_tradeoff_draws_points_bars_front_and_slack():
    display = tradeoff(slack=0.05, name="ours", violation_name="gap").plot()
    on, behind = display.points_
    front = np.array([True, True, True, False])
    for container, rows in ((on, front), (behind, ~front)):
        assert np.array_equal(container.lines[0].get_xdata(), VIOLATION[rows])
        assert np.array_equal(container.lines[0].get_ydata(), ERROR[rows])
        assert bars(container)[0] == pytest.approx(2 * STD[rows])
        assert bars(container)[1] == pytest.approx(STD[rows])
    assert display.front_.get_xdata().tolist() == [0.02, 0.10, 0.20]
    assert display.front_.get_ydata().tolist() == [0.25, 0.20, 0.15]
    assert display.slack_.get_xdata() == [0.05, 0.05]
    assert display.ax_.get_xlabel() == "gap"
    assert display.ax_.get_ylabel() == "error"
    assert labels(display.ax_) == ["ours", "slack 0.05", PALE]
    assert display.figure_ is display.ax_.figure
    chosen = TradeoffDisplay(error=ERROR, violation=VIOLATION, chosen=1).plot()
    assert chosen.chosen_.get_offsets().tolist() == [[0.10, 0.20]]
    assert labels(chosen.ax_) == ["chosen", PALE]
    assert display.chosen_ is chosen.slack_ is None


def test_tradeoff_of_a_curve_and_of_cv_results():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 2))
    group, y = x[:, 1] > 0, x.sum(axis=1) > 0
    points = {"param_name": "C", "param_range": [1e-2, 1e-1, 1.0], "cv": 3}
    curve = tradeoff_curve(LogisticRegression(), x, y, sensitive_features=group, **points)
    display = TradeoffDisplay.from_cv_results(curve, slack=0.1, name="LR", capsize=5)
    assert display.error == pytest.approx(1 - curve["mean_test_accuracy"])
    assert display.violation == pytest.approx(-curve["mean_test_dp"])
    assert display.error_std == pytest.approx(curve["std_test_accuracy"])
    assert display.violation_std == pytest.approx(curve["std_test_dp"])
    assert len(display.front_.get_xdata()) == pareto_front(display.error, display.violation).sum()
    assert display.ax_.get_ylabel() == "error rate (mean ± sd over splits)"
    assert display.ax_.get_xlabel() == "demographic parity difference (mean ± sd over splits)"
    again = TradeoffDisplay.from_cv_results(curve.to_dict("list"), ax=display.ax_)
    assert again.ax_ is display.ax_
    with pytest.raises(ValueError, match="a scorer of a negated gap, at most 0; got 'accuracy'"):
        TradeoffDisplay.from_cv_results(curve, violation="accuracy")
    with pytest.raises(ValueError, match=r"no \['mean_test_eo', 'std_test_eo'\]"):
        TradeoffDisplay.from_cv_results(curve, violation="eo")


def test_tradeoff_of_predictions_has_confidence_intervals():
    """The bars end where the intervals of error and violation end."""
    rng = np.random.default_rng(0)
    y, group, weight = rng.random(400) < 0.5, rng.integers(2, size=400), rng.exponential(size=400)
    preds = [rng.random(400) < 0.3 + 0.3 * group, y]
    given = {"sensitive_features": group, "sample_weight": weight}
    metric = partial(equalized_odds_difference, agg="worst_case")
    display = TradeoffDisplay.from_predictions(y, preds, metric=metric, chosen=0, **given)
    assert display.error == pytest.approx([np.average(y != preds[0], weights=weight), 0])
    assert display.violation == pytest.approx([metric(y, p, **given) for p in preds])
    assert display.ax_.get_xlabel() == "equalized odds difference (95 % interval)"
    ends = [confidence_interval(metric, y, p, random_state=0, **given) for p in preds]
    low = display.violation - display.violation_std[0]
    assert low == pytest.approx(np.minimum([end for end, _ in ends], display.violation))
    assert display.violation + display.violation_std[1] == pytest.approx([e[1] for e in ends])
    assert (display.error_std[1] > 0).all()
    objects = [p.astype(object) for p in (y, *preds)]  # as pandas' dropna leaves them
    plain = TradeoffDisplay.from_predictions(
        objects[0], objects[1:], metric=metric, confidence=None, **given
    )
    assert plain.error_std is None
    assert (plain.error == display.error).all()
    with pytest.raises(ValueError, match=r"metric must be a gap, .* got equalized_odds_ratio"):
        TradeoffDisplay.from_predictions(y, preds, metric=equalized_odds_ratio, **given)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        *(
            ({"chosen": place}, "chosen must be the place of one of 4")
            for place in (4, -5, 1.5, True)
        ),
        *(
            ({name: [0.1]}, f"{name} must have one length")
            for name in ("error_std", "violation_std")
        ),
        ({"slack": "low"}, "slack must be a number; got 'low'"),
    ],
)
def test_tradeoff_refuses_what_is_no_point_no_bar_and_no_bound(wrong, message):
    with pytest.raises(ValueError, match=message):
        TradeoffDisplay(error=ERROR, violation=VIOLATION, **wrong).plot()


@pytest.mark.parametrize("y_preds", [[], np.array([0, 1, 1])])
def test_tradeoff_of_predictions_needs_those_of_a_model(y_preds):
    with pytest.raises(ValueError, match="y_preds must be a sequence with an array of labels for"):
        TradeoffDisplay.from_predictions([0, 1, 1], y_preds, sensitive_features=[0, 1, 1])


def history(n=5, **more):
    t = np.arange(1.0, n + 1)
    return {"objective": 1 / t, "violation": 0.3 / t, "time": t / 10, **more}


def test_convergence_of_a_fit_has_all_panels():
    data = make_biased_classification(300, random_state=0)
    clf = RateConstrainedClassifier(slack=0.1)
    with pytest.raises(NotFittedError):
        ConvergenceDisplay.from_estimator(clf)
    clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    display = ConvergenceDisplay.from_estimator(clf, x="time", linewidth=3)
    assert display.slack_.get_ydata() == [0.1, 0.1]
    assert {line.get_linewidth() for line in display.lines_} == {3}
    titles = ["objective", "violation", "residual", "multiplier"]
    assert [ax.get_ylabel() for ax in display.ax_] == titles
    assert np.isfinite(display.ax_[2].lines[0].get_ydata()).any()  # a baseline has none


def test_the_line_is_the_slack_of_the_criteria_if_they_have_one():
    data = make_biased_classification(300, random_state=0)
    for criteria, slack in (
        (DemographicParity(0.3), 0.3),
        (DemographicParity(ratio=0.8), 0.2),
        ([DemographicParity(0.3), "equalized_odds"], None),
    ):
        clf = RateConstrainedClassifier(criteria, slack=0.5)
        clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
        line = ConvergenceDisplay.from_estimator(clf).slack_
        assert (line and line.get_ydata()) == (slack and [slack, slack])


def test_convergence_refuses_what_it_cannot_draw():
    other = LogisticRegression().fit([[0], [1]], [0, 1])
    with pytest.raises(ValueError, match="LogisticRegression has no history_: give an estimator"):
        ConvergenceDisplay.from_estimator(other)
    display = ConvergenceDisplay(history={"objective": [1.0], "violation": [0.0]})
    with pytest.raises(ValueError, match=r"x must be one of .*; got 'epoch'"):
        display.plot(x="epoch")
    with pytest.raises(ValueError, match="history has no time"):
        display.plot(x="time")
    private = ConvergenceDisplay(history={**history(), "time": np.full(5, np.nan)})
    with pytest.raises(ValueError, match=r"history has no .'violation'"):
        ConvergenceDisplay(history={"objective": [1.0]}).plot()
    with pytest.raises(ValueError, match="times of a private fit are not released"):
        private.plot(x="time")
    with pytest.raises(ValueError, match=r"one Axes per panel .objective, violation.; got 1"):
        display.plot(plt.subplots()[1])


@pytest.mark.parametrize("display", [tradeoff(), ConvergenceDisplay(history=history())])
def test_without_matplotlib_it_is_named(display, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        display.plot()


def test_group_report_draws_every_group_with_its_interval():
    y, group = np.tile([0, 1], 50), np.repeat(["a", "b"], [97, 3])
    report = group_report(y, y, sensitive_features=group)
    rates = ["selection_rate", "error"]
    display = GroupReportDisplay(report=report, rates=rates).plot()
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == ["a (97)", "b (3)"]
    for rate, points in zip(rates, display.points_, strict=True):
        assert points.lines[0].get_xdata().tolist() == report[rate].tolist()[:-1]
        (lines,) = points.lines[2]
        ends = np.array(lines.get_segments())[:, :, 0]
        expected = report[[f"{rate}_low", f"{rate}_high"]].to_numpy()[:-1]
        np.testing.assert_allclose(ends, expected, atol=1e-12)
    assert labels(display.ax_) == ["selection rate", "error"]
    for wrong in (["fairness"], "error"):
        with pytest.raises(
            ValueError, match=r"rates must be a list of some of .*; got .*" + wrong[0]
        ):
            GroupReportDisplay(report=report, rates=wrong).plot()


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    group = np.repeat(list("abc"), (100, 60, 40))
    return rng.normal(size=200) + (group == "b"), group, rng.exponential(size=200)


@pytest.mark.parametrize("interval", [(0.1, 0.5), [(0.0, 0.2), (0.6, 0.9)]])
def test_outlines_are_weighted_densities_and_shades_their_part_in_the_interval(data, interval):
    scores, group, weight = data
    given = {"sensitive_features": group, "sample_weight": weight, "interval": interval}
    display = GroupScoreDisplay.from_predictions(scores, **given, bins=20)
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


@pytest.mark.parametrize(
    ("unit", "bins", "message"),
    [
        (1.0, 0, "bins must be an integer >= 1; got 0"),
        (1.0, [0.2, 0.3], r"bins must be an integer >= 1; got \[0\.2, 0\.3\]"),
        (1e308, 20, "bins=20 is more than numbers can tell apart from -1e\\+308 to 1e\\+308"),
        (1e-320, 20, "give fewer bins, or y_score in other units"),
    ],
)
def test_bins_that_scores_cannot_fill_are_refused(unit, bins, message):
    given = {"sensitive_features": ["a", "b"], "bins": bins}
    with pytest.raises(ValueError, match=message):
        GroupScoreDisplay.from_predictions([-unit, unit], **given)


def test_names_of_groups_are_shown_as_they_are(data):
    """Dollars are no mathematics, and underscores leave no name out of a legend."""
    scores, group, _ = data
    names = {"a": "$0-$9", "b": "_other", "c": r"$\\bad$"}
    given = {"sensitive_features": np.array([names[g] for g in group])}
    kinds = GroupScoreDisplay, ParityCurveDisplay
    displays = [kind.from_predictions(scores, **given) for kind in kinds]
    report = GroupReportDisplay.from_predictions(scores > 0, scores > 0, **given)
    for display, left_out in zip(displays, (0, 1), strict=True):
        texts = display.ax_.get_legend().get_texts()
        shown = [text.get_text().strip() for text in texts]
        assert shown == sorted(names.values())[left_out:]
        assert not any(text.get_parse_math() for text in [*texts, display.ax_.xaxis.label])
    assert not any(text.get_parse_math() for text in report.ax_.get_yticklabels())
    for display in [*displays, report]:
        display.figure_.canvas.draw()


def test_curves_are_ranks_against_ranks(data):
    scores, group, weight = data
    given = {"sensitive_features": group, "sample_weight": weight, "interval": (0.1, 0.5)}
    display = ParityCurveDisplay.from_predictions(scores, **given, name="model")
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
            groups = data.sensitive_features
            display = kind.from_estimator(model, data.data, sensitive_features=groups)
            assert (display.y_score == scores).all()
            assert display.interval == interval


@pytest.mark.parametrize("steps", [[], [StandardScaler()]], ids=["alone", "scaled"])
def test_a_pipeline_is_looked_at_as_its_last_step(steps):
    """Its interval is marked, and it sees the groups if it wants to: predictions do not route."""
    data = make_biased_classification(200, 6, 2, 2, bias=0.3, random_state=0)
    X = steps[0].fit_transform(data.data) if steps else data.data
    groups = {"sensitive_features": data.sensitive_features}
    clf = PartialParityClassifier("demographic_parity", interval=(0.2, 0.6), group_features=True)
    clf.fit(X, data.target, **groups)
    model = make_pipeline(*steps, make_pipeline(clf))
    display = GroupScoreDisplay.from_estimator(model, data.data, **groups)
    expected = clf.decision_function(X, **groups)
    assert (display.y_score == expected).all()
    assert display.interval == (0.2, 0.6)
    options = {**groups, "confidence": 0.9}
    display = GroupReportDisplay.from_estimator(model, data.data, data.target, **options)
    assert display.report.loc["overall", "selection_rate"] == pytest.approx(np.mean(expected > 0))
    assert display.ax_.get_xlabel() == "rate, with its 90 % interval; shaded: overall"
