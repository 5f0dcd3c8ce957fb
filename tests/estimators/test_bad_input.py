"""Bad input gets a clear error before any work, and a failed fit leaves the estimator as it was."""

import warnings

import numpy as np
import pytest
from torch import nn

from fairconstrained import RateConstrainedClassifier
from fairconstrained.constraints import (
    DemographicParity,
    FalseNegativeRate,
    LossParity,
    RateConstraint,
)
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import MissingSensitiveFeaturesWarning
from fairconstrained.solvers import SGDA, AugmentedLagrangian
from tests.helpers.fits import fitted, table


class NeverRuns(AugmentedLagrangian):
    """Shows that an error came before any work."""

    def iterate(self, problem, x, dual, tol, rng):
        raise AssertionError("work has begun")
        yield


def rate_constraint(**changes):
    """Of the first group's rate of the first label, but for `changes`."""
    part = {"first": {"group": 0}, "second": {"group": 1}}
    good = {"part": part, "unions": [["first"]], "weights": [[[1, 0]]]}
    return RateConstraint(**{**good, **changes}, slack=0.1)


def refused(message, data=None, **params):
    X, y, group = table() if data is None else data
    clf = RateConstrainedClassifier(**{"solver": NeverRuns(), **params})
    with pytest.raises(ValueError, match=message):
        clf.fit(X, y, sensitive_features=group)
    assert not hasattr(clf, "classes_")
    assert not hasattr(clf, "n_features_in_")


BAD = {
    "slack": [-0.1, "small", np.nan],
    "alpha": [-1e-4, np.inf],
    "tol": [0],
    "max_iter": [0, 2.5],
    "min_group_size": [-1],
    "missing_sensitive": ["ignore"],
    "warm_start": [1],
    "solver": [SGDA, "sgda"],
    "verbose": [-1, "yes"],
    "callbacks": ["print", [print, 3]],
    "device": ["no such device"],
    "constraint": ["fairness", [], ["demographic_parity", 3], DemographicParity],
    "epsilon": [0.0, "strong"],
}


@pytest.mark.parametrize("parameter", BAD)
def test_parameters_are_named_with_their_value_and_what_is_allowed(parameter):
    for value in BAD[parameter]:
        refused(rf"RateConstrainedClassifier\.{parameter} (must|is empty)", **{parameter: value})


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (DemographicParity(slack=np.nan), "DemographicParity.slack must be a number >= 0; got nan"),
        (DemographicParity(temperature=0.0), "DemographicParity.temperature must be"),
        (DemographicParity(reference="all"), "DemographicParity.reference must be one of .*'all'"),
        (FalseNegativeRate(max=-0.1), "FalseNegativeRate.max must be a number >= 0; got -0.1"),
        (LossParity(loss="hinge"), "LossParity.loss must be one of .*; got 'hinge'"),
        (LossParity(within="some"), "LossParity.within must be one of .*; got 'some'"),
        (rate_constraint(part=[0, 1]), r"RateConstraint.part must be a mapping .*; got \[0, 1\]"),
        (rate_constraint(unions=[[1]]), r"RateConstraint.unions must be lists .* got \[\[1\]\]"),
        (rate_constraint(weights=[[1, 0]]), r"RateConstraint.weights must have shape .* \(1, 2\)"),
    ],
)
def test_parameters_of_constraints_are_named_too(constraint, message):
    refused(message, constraint=constraint)
    refused(message, constraint=["equalized_odds", constraint])


@pytest.mark.parametrize(
    "solver",
    [
        SGDA(step_size=0.0),
        SGDA(dual_step_size=np.inf),
        SGDA(batch_size=2.5),
        AugmentedLagrangian(patience=True),
        AugmentedLagrangian(patience=np.nan),
    ],
)
def test_parameters_of_solvers_are_named_too(solver):
    (changed,) = [
        k for k, v in solver.get_params().items() if v is not type(solver)().get_params()[k]
    ]
    refused(rf"{type(solver).__name__}\.{changed} must be .*; got ", solver=solver)


@pytest.mark.parametrize("model", ["deep", (), (8, 0), lambda d, k: "net", lambda d, k: nn.ReLU()])
def test_models_that_are_none(model):
    refused("model must", model=model)


def test_rows_that_cannot_be():
    X, y, group = table()
    for message, data in {
        "sensitive_features has 399 rows, but X and y have 400": (X, y, group[1:]),
        "inconsistent numbers of samples": (X, y[1:], group),
        "NaN": (np.where(X[3, 1] == X, np.nan, X), y, group),
        "Input y contains NaN": (X, np.where(y == 0, np.nan, 1.0), group),
        "Expected 2D array, got 1D": (X[:, 0], y, group),
        "0 sample": (X[:0], y[:0], group[:0]),
        "y should be a 1d array": (X, np.column_stack((y, y)), group),
        "sensitive_features must hold the group of each sample; .* 'sex'": (X, y, "sex"),
        "Unknown label type": (X, np.linspace(0.0, 1.0, 400), group),
        "at least 2 classes; .* only one class: 7": (X, np.full(400, 7), group),
    }.items():
        refused(message, data)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.zeros(400), "zero for all samples"),
        (np.r_[-1.0, np.ones(399)], "must not be negative"),
        (np.ones(399), r"must have shape \(400,\), one weight per row; got \(399,\)"),
        (2.0, r"one weight per row; got \(\)"),
        (np.r_[np.nan, np.ones(399)], "sample_weight contains NaN"),
        ((table()[1] == 1).astype(float), "only one class"),
    ],
)
def test_weights(weight, message):
    X, y, group = table()
    clf = RateConstrainedClassifier(solver=NeverRuns())
    with pytest.raises(ValueError, match=message):
        clf.fit(X, y, sensitive_features=group, sample_weight=weight)


@pytest.mark.parametrize("group", [None, ["everybody"] * 400])
def test_without_groups_to_compare(group):
    X, y, _ = table()
    with pytest.warns(MissingSensitiveFeaturesWarning, match="imposes no constraint between them"):
        clf = RateConstrainedClassifier().fit(X, y, sensitive_features=group)
    assert np.isnan(clf.violation_)
    assert not clf.feasible_
    assert clf.multipliers_.shape == (0,)
    refused("cannot compare groups", (X, y, group), missing_sensitive="raise")


def test_caps_over_everybody_need_no_groups():
    X, y, _ = table()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf = RateConstrainedClassifier("false_negative_rate", slack=0.2).fit(X, y)
    assert clf.violation_ <= 0.201
    with pytest.warns(MissingSensitiveFeaturesWarning):
        RateConstrainedClassifier(FalseNegativeRate(max=0.2, per_group=True)).fit(X, y)


def test_prediction_checks_its_input():
    X, _, _ = table()
    clf = fitted()
    with pytest.raises(ValueError, match="has 3 features, but RateConstrainedClassifier"):
        clf.predict(X[:, :3])
    with pytest.raises(ValueError, match="NaN"):
        clf.predict(np.full((1, X.shape[1]), np.nan))


def test_columns_whose_squares_overflow_are_named():
    data = make_biased_classification(60, random_state=0)
    X = data.data.copy()
    X[:, 3] *= 1e160
    with pytest.raises(ValueError, match=r"Column 3 of X is too large .* scale the features"):
        RateConstrainedClassifier().fit(X, data.target, sensitive_features=data.sensitive_features)
