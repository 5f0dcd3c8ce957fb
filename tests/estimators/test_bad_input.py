"""Bad input gets a clear error before any work, and a failed fit leaves the estimator as it was."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import fairconstrained as fc
from fairconstrained.constraints import (
    PARTIAL,
    PARTIAL_PRIVATE,
    AUCParity,
    DemographicParity,
    FalseNegativeRate,
    LossParity,
    PartialDemographicParity,
    PartialStatisticalParity,
    Quadratic,
    RateConstraint,
    RejectionRate,
)
from fairconstrained.exceptions import MissingSensitiveFeaturesWarning
from fairconstrained.groups import GroupProbabilities, RecordedGroups
from fairconstrained.models import Boosting, Linear, Network, Posteriors, SingleFit
from fairconstrained.privacy import Budget
from fairconstrained.solvers import (
    DPFERMI,
    DPSGDA,
    FERMI,
    IDCA,
    LBFGS,
    QCQP,
    SGDA,
    AugmentedLagrangian,
    LevelSet,
    NoisyTables,
    ProximalLevelSet,
    ReleasedMoments,
    StochasticGhost,
    StochasticIDCA,
)
from tests.helpers.fits import table
from tests.helpers.releases import answered_by, honest


def rate_constraint(**changes):
    """Of the first group's rate of the first label, but for `changes`."""
    part = {"first": {"group": "a"}, "second": {"group": "b"}}
    good = {"part": part, "unions": [["first"]], "weights": [[[1, 0]]]}
    return RateConstraint(**{**good, **changes}, slack=0.1)


def batch_normalised(d, k):
    return nn.Sequential(nn.BatchNorm1d(d), nn.Linear(d, k))


def of_the_batch(d, k):
    return nn.Sequential(nn.Linear(d, 3), nn.Softmax(0), nn.Linear(3, k))


class Learning(Linear):
    def fit_transform(self, rows, part_of_cell, rng):
        raise AssertionError("it has read the rows")


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
    "random_state": ["a", -1, 1.5, np.random.default_rng(0)],
    "device": ["no such device"],
    "constraint": ["fairness", [], ["demographic_parity", 3], DemographicParity],
    "epsilon": [0.0, "strong"],
}
CONSTRAINTS = [
    (DemographicParity(slack=np.nan), "DemographicParity.slack must be a number >= 0; got nan"),
    (rate_constraint(weights=[[1, 0]]), r"RateConstraint.weights must have shape .* \(1, 2\)"),
    (RejectionRate({"a": 0.5, "b": 0.5}), r"each of the groups \['a', 'b'\], with per_group"),
    (RejectionRate({"a": 0.5}, per_group=True), r"got \{'a': 0.5\}"),
    (RejectionRate({"a": 1, "b": "x"}, per_group=True), "max must be a number >= 0; got 'x'"),
]
TREES, LOGISTIC = HistGradientBoostingClassifier(), LogisticRegression()
PRIVATE, SECRET = {"epsilon": 1.0}, {"epsilon": 1.0, "protect": "sensitive_features"}
SQUARE = AUCParity("group_auc", surrogate=Quadratic(c1=1.0))
BINS = AUCParity("group_auc", surrogate="soft_bins")
STREAMING = {"constraint": AUCParity(surrogate="quadratic"), "solver": LevelSet()}
THRESHOLDS = PartialDemographicParity(interval=(0.1, 0.5))
STRATA = {"control_features": table()[2]}
SHARES = {"sensitive_features": GroupProbabilities(np.full((400, 2), 0.5))}
RECORDED = {"sensitive_features": RecordedGroups(table()[2], [[0.9, 0.1], [0.2, 0.8]])}
ONE_GROUP, COLUMNS = "must hold one group per row.*with epsilon", "must be columns of groups"
NO_STRATA = "control_features must be None: groups are compared"
WEIGHTS = {"sample_weight": np.ones(400)}
BAD_WEIGHTS = {
    "zero for all samples": np.zeros(400),
    "must not be negative": np.r_[-1.0, np.ones(399)],
    "sample_weight has 399 rows, but X has 400": np.ones(399),
    r"one weight per row; got \(\)": 2.0,
    "sample_weight contains NaN": np.r_[np.nan, np.ones(399)],
    "only one class": (table()[1] == 1).astype(float),
}
BAD_BUDGETS = {
    r"epsilon must be a finite number > 0; got 0\.0": Budget(0.0, 1e-5, "record"),
    "delta must be a number in": Budget(1.0, 1.0, "record"),
    r"unit must be one of \['record', 'rec": Budget(1.0, 1e-5, "sensitive_features"),
}
BAD_COSTS = {
    "'balanced', or finite": "dear",
    ">= 0": [[0, -1], [1, 0]],
    "of shape": np.eye(3),
    "must not all be zero": np.zeros((2, 2)),
}
FINITE, READS = "must be a finite number", "reads the rows exactly"
REFUSED = {
    fc.RateConstrainedClassifier: [
        *(
            ({name: value}, rf"RateConstrainedClassifier\.{name} (must|is empty)")
            for name, values in BAD.items()
            for value in values
        ),
        *(
            ({"constraint": given}, message)
            for notion, message in CONSTRAINTS
            for given in (notion, ["equalized_odds", notion])
        ),
        *(({"model": model}, "model must") for model in ("deep", (), (8, 0))),
        *(({"model": lambda d, k, net=net: net}, "model must") for net in ("net", nn.ReLU())),
        *(
            ({"model": model}, "classifier")
            for model in (StandardScaler(), object(), Posteriors(StandardScaler()))
        ),
        ({"model": nn.Linear(6, 1)}, "function that makes a module, .* It got a module, Lin"),
        ({"model": DecisionTreeClassifier}, r"give an object of it, DecisionTreeClassifier\(\)"),
        ({"model": Posteriors}, r"give an object of it, Posteriors\(\)"),
        *(({"model": Network((4,), n_bins=n)}, r"Network\.n_bins must be") for n in (0, True)),
        ({"constraint": [DemographicParity(), AUCParity()]}, NO_STRATA, STRATA),
        ({"constraint": rate_constraint()}, NO_STRATA, STRATA),
        ({}, r"400 groups in 400 samples.*pandas\.qcut", {"sensitive_features": table()[0][:, 0]}),
        ({}, "control_features has 10 rows, but X", {"control_features": table()[2][:10]}),
        *(({}, words, {"sample_weight": weight}) for words, weight in BAD_WEIGHTS.items()),
        *(
            ({"costs": costs, "model": model}, words)
            for words, costs in BAD_COSTS.items()
            for model in ("linear", LOGISTIC, SingleFit(LOGISTIC))
        ),
        ({"costs": [[0, 1], [5, 0]], **PRIVATE}, "costs must be None with epsilon"),
        (PRIVATE, ONE_GROUP, SHARES),
        (PRIVATE, "sample_weight must be None with epsilon", WEIGHTS),
        ({}, COLUMNS, SHARES | STRATA),
        ({"constraint": DemographicParity(attributes="parallel")}, COLUMNS, SHARES),
        ({"delta": 1.0, **PRIVATE}, "delta must be a number"),
        ({"warm_start": True, **PRIVATE}, "warm_start must be False"),
        ({"margin": 1.0, **PRIVATE}, "margin must be 0 with epsilon"),
        ({"device": None}, "device must be a torch device"),
        ({"feature_range": (0, 1, 2)}, "feature_range must be None or a pair"),
        ({"feature_range": (np.zeros(5), 1), **PRIVATE}, r"arrays of shape \(6,\)"),
        ({"feature_range": (0, 0)}, "low < high"),
        ({"feature_range": (0, np.inf)}, "finite numbers"),
        ({"feature_range": (-1e308, 1e308)}, "widths whose squares are finite"),
        ({"model": batch_normalised, **PRIVATE}, "group normalisation"),
        ({"model": of_the_batch, **PRIVATE}, "private training"),
        ({"model": LOGISTIC, **PRIVATE}, READS),
        ({"model": Learning(), **PRIVATE}, READS),
        *(
            ({"model": FrozenEstimator(frozen), **PRIVATE}, "model must be .*got FrozenEstimator")
            for frozen in (nn.Linear(2, 2), StandardScaler(), 3)
        ),
        ({"constraint": PartialStatisticalParity(interval=(0.0, 0.3)), **PRIVATE}, "variables of"),
        ({"solver": DPSGDA(histogram_noise="uniform"), **PRIVATE}, "histogram_noise must be one"),
        ({"solver": DPSGDA(clip=5e-324), **PRIVATE}, "clip must be a finite number > 1e-100"),
        ({"solver": DPSGDA(sampling_rate=2.0), **PRIVATE}, "sampling_rate must be in"),
        ({"solver": DPSGDA(sampling_rate=0.0), **PRIVATE}, f"DPSGDA.sampling_rate {FINITE} > 0"),
        ({"solver": DPSGDA(histogram_fraction=1.0), **PRIVATE}, "histogram_fraction .* below 1"),
        ({"solver": AugmentedLagrangian(), **PRIVATE}, "cannot solve PrivateERM.*DPSGDA"),
        ({"solver": DPSGDA()}, "DPSGDA .*epsilon"),
        ({"solver": IDCA()}, r"IDCA .* is for linear models"),
        ({"solver": AugmentedLagrangian(patience=np.nan)}, "AugmentedLagrangian.patience must be"),
        ({"model": Posteriors(LOGISTIC, TREES), **SECRET}, "reads the groups exactly"),
        ({"model": SingleFit(TREES), **SECRET}, "must be 'linear', a network or a frozen class"),
        ({"feature_range": (-1, 1), **SECRET}, "feature_range must be None .* are public"),
        ({"solver": DPFERMI(), **SECRET}, "DPFERMI"),
        ({"constraint": THRESHOLDS, **SECRET}, "must be linear in sums over groups"),
        ({"margin": 1.0, **SECRET}, "margin must be 0"),
        *(
            case
            for kind in (Boosting, SingleFit)
            for case in (
                ({"model": kind(LOGISTIC if kind is SingleFit else TREES), **PRIVATE}, "reads"),
                ({"model": kind(TREES), "constraint": LossParity()}, "got loss_parity"),
                ({"model": kind(TREES), "warm_start": True}, "warm_start must"),
            )
        ),
        ({"model": Boosting(LOGISTIC)}, "must be one of Hist"),
        ({"model": Boosting(make_pipeline(StandardScaler(), TREES))}, "give the last step"),
        ({"model": Boosting(HistGradientBoostingClassifier(warm_start=True))}, "warm_start must"),
        ({"model": SingleFit(FrozenEstimator(LOGISTIC))}, "frozen"),
        ({"model": SingleFit(KNeighborsClassifier())}, "take sample_weight"),
        ({"model": SingleFit(StandardScaler())}, "must be a classifier"),
    ],
    fc.LossParityClassifier: [
        ({"constraint": "demographic_parity"}, "constraint must"),
        ({"loss": "hinge"}, "loss must"),
        ({"solver": StochasticGhost(p0=1.0)}, "StochasticGhost"),
        ({"model": Boosting(TREES)}, "cannot be Boosting"),
    ],
    fc.PartialParityClassifier: [
        ({"constraint": "parity"}, "constraint must be one of"),
        ({"interval": (0.5, 0.2)}, "interval must be a pair"),
        ({"interval": {"a": (0, 0.3), "b": (0, 0.3), "z": (0, 1)}}, r"do not have: \['z'\]"),
        *(
            (params, r"IDCA .* (is for linear models|constraints that are)")
            for params in (
                {"constraint": "group_auc", "solver": IDCA()},
                {"constraint": "group_auc", "solver": StochasticIDCA()},
                {"model": (4,), "solver": IDCA()},
            )
        ),
        ({"slack": -0.1}, "slack must be a number >= 0; got -0.1"),
        ({"constraint": PartialDemographicParity(threshold=np.inf)}, "threshold must be a"),
        ({"group_features": "yes"}, "group_features must be True or False"),
        *(
            ({"constraint": of, **PRIVATE}, "epsilon must be None with group_auc and rank_parity")
            for name in sorted(PARTIAL.keys() - PARTIAL_PRIVATE.keys())
            for of in (name, PARTIAL[name]())
        ),
        ({"group_features": True}, "the group of every row", SHARES),
        ({}, "PartialParityClassifier takes groups or", RECORDED),
        ({"interval": "auto", **PRIVATE}, "epsilon must be None with"),
        ({"group_features": True, **PRIVATE}, "epsilon must be None with"),
        ({"model": LOGISTIC, **PRIVATE}, READS),
        ({"model": Learning(), **PRIVATE}, READS),
        ({}, NO_STRATA, STRATA),
    ],
    fc.AUCFairClassifier: [
        ({"constraint": "auc"}, "constraint must be one of"),
        ({"slack": -1}, "slack must be a number >= 0"),
        ({"margin": -1.0}, rf"AUCFairClassifier\.margin {FINITE} >= 0"),
        ({"objective": "mse"}, "objective must be one of"),
        ({"stream_memory": 0}, "stream_memory must be an integer >= 1"),
        ({"alpha": -1.0}, "alpha must be a finite number >= 0"),
        ({"constraint": SQUARE, "solver": LevelSet()}, "c1=1.0"),
        (STREAMING, "LevelSet|partial_fit takes groups", SHARES),
        ({"objective": "log", **PRIVATE}, "objective must be 'auc' with epsilon"),
        ({"model": (4,), **PRIVATE}, "model must be 'linear' with epsilon"),
        ({"constraint": BINS, **PRIVATE}, "a name or one with surrogate='binormal'"),
        ({"warm_start": True, **PRIVATE}, "warm_start must be False with epsilon"),
        ({"epsilon": 0}, "epsilon must be None or a finite number > 0"),
        *(
            ({"epsilon": budget}, rf"AUCFairClassifier\.epsilon\.{words}")
            for words, budget in BAD_BUDGETS.items()
        ),
        ({"model": LOGISTIC, **PRIVATE}, READS),
        ({"model": Learning(), **PRIVATE}, READS),
        ({"model": Boosting(TREES)}, "cannot be Boosting"),
        ({"model": SingleFit(LOGISTIC)}, "cannot be SingleFit"),
        *(
            ({"solver": solver}, "(QCQP|LevelSet) cannot solve")
            for solver in (QCQP(), LevelSet(), ProximalLevelSet())
        ),
        ({"solver": SGDA(), **PRIVATE}, "SGDA .* rows can be drawn"),
        ({}, NO_STRATA, STRATA),
        (PRIVATE, "sample_weight must be None with epsilon", WEIGHTS),
    ],
    fc.DPFermiClassifier: [
        ({"constraint": "parity"}, r"DPFermiClassifier\.constraint must be one of"),
        ({"penalty": -1.0}, r"DPFermiClassifier\.penalty must be a finite number >= 0; got -1.0"),
        ({"protect": "row"}, "protect must be one of"),
        ({"warm_start": True}, "warm_start must be False"),
        ({"constraint": DemographicParity(slack=0.1)}, "without a slack"),
        ({"epsilon": None, "solver": FERMI(output="best")}, r"FERMI\.output must be one of"),
        ({"solver": ReleasedMoments(), "protect": "record"}, "protect='sensitive_features'"),
        ({"solver": ReleasedMoments(n_rounds=0)}, r"ReleasedMoments\.n_rounds must be"),
        ({"solver": NoisyTables(memory=1.0)}, r"memory must be a finite number >= 0 and below 1"),
        ({"solver": DPFERMI(clip=-1.0)}, r"DPFERMI\.clip must be"),
        ({"solver": DPFERMI(), "model": batch_normalised}, "group normalisation"),
        ({"solver": NoisyTables(), "model": batch_normalised}, "private training"),
        ({"solver": ReleasedMoments(inner=QCQP())}, "cannot solve"),
        ({"model": Posteriors(GaussianNB(), LOGISTIC)}, "reads the groups exactly"),
        ({"model": LOGISTIC, "protect": "record"}, READS),
        ({"model": Learning(), "protect": "record"}, READS),
        ({"solver": SGDA(), "epsilon": None}, "SGDA cannot solve"),
        ({"solver": LBFGS()}, "LBFGS cannot solve AttributeFermi"),
        ({"epsilon": None}, NO_STRATA, STRATA),
        ({}, ONE_GROUP, SHARES),
        *(
            ({"protect": unit}, "sample_weight must be None with epsilon", WEIGHTS)
            # Even ones: whether they are equal is secret.
            for unit in ("record", "record_replacement")
        ),
        (
            {"solver": NoisyTables(n_steps=10)},
            "sample_weight must be None with NoisyTables",
            {"sample_weight": 1.0 + np.arange(400) % 2},
        ),
    ],
}
CASES = [(kind, *case) for kind, cases in REFUSED.items() for case in cases]


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.PrivacyWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}: {case[2]}")
def test_what_cannot_be_trained_is_refused_before_any_release(case, monkeypatch):
    """By name, with what is allowed, before any other work, and the estimator stays as it was."""

    def work(*_, sample_weight=None, **__):
        raise AssertionError("work has begun")

    for worker, method in (
        *((TREES, "fit"), (LOGISTIC, "fit"), (AugmentedLagrangian(), "iterate")),
        *((DPSGDA(), "iterate"), (SGDA(), "iterate")),
    ):
        monkeypatch.setattr(type(worker), method, work)
    released = answered_by(monkeypatch, honest)
    kind, params, message, *inputs = case
    X, y, group = table()
    inputs = {"sensitive_features": np.array(["a", "b"])[group], **dict(*inputs)}
    clf = kind(**params)
    before = dict(vars(clf))
    streams = kind is fc.AUCFairClassifier and "control_features" not in inputs
    for method in ("fit", "partial_fit") if streams else ("fit",):
        streams = "|needs epsilon=None" * ("epsilon" in params and method == "partial_fit")
        with pytest.raises(ValueError, match=message + streams) as caught:
            getattr(clf, method)(X, y, **inputs)
        assert not hasattr(caught.value, "privacy")
    assert released == []
    assert vars(clf) == before


def test_rows_that_cannot_be():
    X, y, group = table()
    for message, rows in {
        "sensitive_features has 399 rows, but X has 400": (X, y, group[1:]),
        "y has 399 rows, but X has 400": (X, y[1:], group),
        "sensitive_features must hold a value for each sample; .* 'sex'": (X, y, "sex"),
        "Unknown label type": (X, np.linspace(0.0, 1.0, 400), group),
        "at least 2 classes; .* only one class: 7": (X, np.full(400, 7), group),
        # Squares of its entries overflow.
        "Column 3 of X is too large .* scale the": (X * [1.0, 1, 1, 1e160, 1, 1], y, group),
    }.items():
        clf = fc.RateConstrainedClassifier()
        before = dict(vars(clf))
        with pytest.raises(ValueError, match=message):
            clf.fit(*rows[:2], sensitive_features=rows[2])
        assert vars(clf) == before


NOBODY = {
    "rates": fc.RateConstrainedClassifier(),
    "losses": fc.LossParityClassifier(),
    "ranking": fc.AUCFairClassifier(),
    "ranks": fc.PartialParityClassifier(interval="auto"),
    "penalty": fc.DPFermiClassifier(epsilon=None, penalty=9.0),
    "penalty, secret groups": fc.DPFermiClassifier(penalty=9.0),
    "private rates": fc.RateConstrainedClassifier(epsilon=1.0, random_state=0),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("name", "group"), [*dict.fromkeys(NOBODY).items(), ("rates", ["all"] * 400)]
)
def test_without_groups_to_compare(name, group):
    X, y, some = table()
    words = "imposes no constraint between them|sensitive_features is not given"
    with pytest.warns(MissingSensitiveFeaturesWarning, match=words) as caught:
        clf = clone(NOBODY[name]).fit(X, y, sensitive_features=group)
    assert caught[0].filename == __file__
    assert np.isnan(clf.violation_)
    assert not clf.feasible_
    assert len(clf.multipliers_) == 0
    assert clf.predict(X).shape == y.shape
    assert getattr(clf, "interval_", None) is None
    assert clf.privacy_ is None or clf.privacy_.epsilon <= (name == "private rates")
    if "penalty" in name:
        free = fc.DPFermiClassifier(epsilon=None, penalty=0.0).fit(X, y, sensitive_features=some)
        np.testing.assert_allclose(clf.coef_, free.coef_, rtol=1e-6)
    with pytest.raises(ValueError, match=r"cannot compare groups|sensitive_features is not given"):
        clone(clf).set_params(missing_sensitive="raise").fit(X, y, sensitive_features=group)


def test_a_constrained_classifier_as_the_model_is_said_to_get_no_groups():
    """They were given, to the classifier around it."""
    X, y, group = table()
    clf = fc.RateConstrainedClassifier(model=fc.RateConstrainedClassifier())
    with pytest.warns(MissingSensitiveFeaturesWarning, match="model of another .* gets none"):
        clf.fit(X, y, sensitive_features=group)


def test_caps_over_everybody_need_no_groups():
    X, y, _ = table()
    with warnings.catch_warnings(action="error"):
        clf = fc.RateConstrainedClassifier("false_negative_rate", slack=0.2).fit(X, y)
    assert clf.violation_ <= 0.201
    with pytest.warns(MissingSensitiveFeaturesWarning):
        fc.RateConstrainedClassifier(FalseNegativeRate(max=0.2, per_group=True)).fit(X, y)
