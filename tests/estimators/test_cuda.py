"""Every path of the estimators on a GPU: the fit ends, keeps its promise, and resembles the CPU's.

A tensor left on the CPU by accident raises in torch as soon as it meets one that is not, so that a
fit which ends has put everything on the device. Skipped where there is no GPU; CI has none.
"""

import pickle
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from fairconstrained import (
    AUCFairClassifier,
    DPFermiClassifier,
    LossParityClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
)
from fairconstrained.constraints import AUCS, CONSTRAINTS, PARTIAL, PARTIAL_PRIVATE, AUCParity
from fairconstrained.datasets import make_biased_classification
from fairconstrained.models import Linear
from fairconstrained.solvers import (
    ALM,
    DPFERMI,
    DPSGDA,
    FERMI,
    IDCA,
    LBFGS,
    QCQP,
    SGDA,
    SSLALM,
    AugmentedLagrangian,
    DirectSwitching,
    LevelSet,
    NoisyTables,
    ProximalLevelSet,
    ReleasedMoments,
    SequentialQuadratic,
    StochasticGhost,
    StochasticIDCA,
    SwitchingSubgradient,
)
from tests.helpers.fits import FORGIVEN

if not torch.cuda.is_available():
    pytest.skip("torch finds no CUDA device", allow_module_level=True)


class Module(nn.Module):
    """A user's module with batch statistics and dropout."""

    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(n_features, 8),
            nn.BatchNorm1d(8),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(8, n_outputs),
        )

    def forward(self, X):
        return self.layers(X)


def table(n_classes=2, n_groups=2, n=800):
    data = make_biased_classification(
        n, 6, n_groups, n_classes, bias=0.6, class_sep=2.0, random_state=0
    )
    return data.data, data.target, data.sensitive_features


def fitted(kind, data=None, **params):
    X, y, group = table() if data is None else data
    params = {"random_state": 0, **params}
    if params.get("epsilon"):
        params["feature_range"] = (X.min(axis=0) - 0.1, X.max(axis=0) + 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(**params).fit(X, y, sensitive_features=group)


def agreement(one, other, X):
    return (one.predict(X) == other.predict(X)).mean()


def named(value):
    """The identifier of a case: a class, a solver, or the parameters."""
    return getattr(value, "__name__", str(value))[:60]


LINEAR = [
    *[(RateConstrainedClassifier, {"constraint": name}) for name in CONSTRAINTS],
    *[(PartialParityClassifier, {"constraint": name, "interval": (0.1, 0.5)}) for name in PARTIAL],
    *[(AUCFairClassifier, {"constraint": name}) for name in AUCS],
    (RateConstrainedClassifier, {"alpha": 1e-2}),
    (RateConstrainedClassifier, {"constraint": ["equalized_odds", "false_negative_rate"]}),
    (RateConstrainedClassifier, {"margin": 1.0}),
    (LossParityClassifier, {"model": "linear", "solver": ALM(n_steps=50)}),
    (DPFermiClassifier, {"penalty": 3.0, "epsilon": None}),
    (DPFermiClassifier, {"penalty": 3.0, "constraint": "equalized_odds", "epsilon": None}),
]


@pytest.mark.parametrize(("kind", "params"), LINEAR, ids=named)
def test_a_linear_fit_is_that_of_the_cpu(kind, params):
    """The problem is the same; sums in another order may move few rows at the threshold."""
    X, _, _ = table()
    here, there = fitted(kind, **params), fitted(kind, device="cuda", **params)
    assert there.coef_.dtype == np.float64
    assert agreement(here, there, X) > 0.97
    if hasattr(here, "violation_"):
        assert there.feasible_ == here.feasible_
        assert there.violation_ == pytest.approx(here.violation_, abs=5e-3)
    assert pickle.loads(pickle.dumps(there)).predict(X).shape == (len(X),)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("model", [(8,), Module], ids=["layers", "module"])
@pytest.mark.parametrize(
    "kind", [RateConstrainedClassifier, LossParityClassifier, DPFermiClassifier]
)
def test_networks_train_on_the_device_and_predict_on_the_cpu(kind, model, n_classes):
    data = table(n_classes, 3)
    clf = fitted(kind, data, model=model, device="cuda", max_iter=60)
    assert all(p.device.type == "cpu" for p in clf.module_.parameters())
    assert np.isfinite(clf.predict_proba(data[0])).all()


@pytest.mark.parametrize(
    "kind",
    [AUCFairClassifier, PartialParityClassifier],
)
def test_networks_that_rank(kind):
    clf = fitted(kind, model=(8,), device="cuda", max_iter=60)
    assert np.isfinite(clf.decision_function(table()[0])).all()


SMALL_LEVELS = LevelSet(n_steps=100, step_size=0.1, max_levels=2)
# What the solvers of a paper need beside the defaults.
PAPERS = {
    AUCFairClassifier: {
        "constraint": AUCParity("inter_group", surrogate="quadratic"),
        "objective": "auc",
        "slack": 0.9,
    },
    DPFermiClassifier: {"epsilon": None},
}

SOLVERS = [
    *[
        (RateConstrainedClassifier, solver)
        for solver in (
            AugmentedLagrangian(),
            SequentialQuadratic(),
            SGDA(n_steps=50),
            ALM(n_steps=50),
            SSLALM(n_steps=50),
            StochasticGhost(n_steps=20),
            SwitchingSubgradient(n_steps=50),
        )
    ],
    *[
        (PartialParityClassifier, solver)
        for solver in (IDCA(), DirectSwitching(), StochasticIDCA())
    ],
    *[
        (AUCFairClassifier, solver)
        for solver in (QCQP(), SMALL_LEVELS, ProximalLevelSet(level_set=SMALL_LEVELS, n_rounds=2))
    ],
    *[(DPFermiClassifier, solver) for solver in (LBFGS(), FERMI(n_steps=50))],
]


@pytest.mark.parametrize(("kind", "solver"), SOLVERS, ids=named)
def test_solvers(kind, solver):
    clf = fitted(kind, solver=solver, device="cuda", **PAPERS.get(kind, {}))
    assert np.isfinite(clf.coef_).all()


PRIVATE = [
    (RateConstrainedClassifier, {"solver": DPSGDA(n_steps=30)}),
    (RateConstrainedClassifier, {"model": (8,), "solver": DPSGDA(n_steps=30)}),
    *[
        (PartialParityClassifier, {"constraint": name, "interval": (0.1, 0.5)})
        for name in PARTIAL_PRIVATE
    ],
    (AUCFairClassifier, {}),
    *[
        (DPFermiClassifier, {"solver": solver})
        for solver in (ReleasedMoments(), NoisyTables(n_steps=30), DPFERMI(n_steps=30))
    ],
]


@pytest.mark.parametrize(("kind", "params"), PRIVATE, ids=named)
def test_private_fits_spend_what_they_spend_on_the_cpu(kind, params):
    params = {"epsilon": 3.0, "delta": 1e-5, **params}
    here, there = fitted(kind, **params), fitted(kind, device="cuda", **params)
    assert there.privacy_.epsilon == here.privacy_.epsilon
    assert np.isfinite(there.decision_function(table()[0])).all()


def test_more_on_the_device():
    """Warm starts, callbacks, a slack that binds, and a model without an intercept."""
    clf = fitted(RateConstrainedClassifier, device="cuda", warm_start=True, slack=0.02)
    X, y, group = table()
    again = clf.fit(X, y, sensitive_features=group)
    assert again.violation_ <= 0.02 + FORGIVEN
    fitted(RateConstrainedClassifier, device="cuda", model=Linear(fit_intercept=False))
