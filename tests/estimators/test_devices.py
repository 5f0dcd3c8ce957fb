"""Every path of the estimators on a device: the fit ends, and it is that of the CPU.

A tensor left on the CPU by accident raises as soon as it meets one of the device, so that a fit
that ends has put everything there. The device is a GPU where there is one, and otherwise a made-up
one that refuses what CUDA refuses (`tests.helpers.elsewhere`), on which fits take few iterations.
"""

import pickle
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import fairconstrained as fc
from fairconstrained.constraints import AUCParity, DemographicParity, EqualizedOdds, LossParity
from fairconstrained.training import train
from tests.helpers.elsewhere import elsewhere
from tests.helpers.fits import table
from tests.helpers.modules import log_loss, normalised

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else elsewhere()
# Few iterations, where operations are slow; enough for partial parity not to end at equal scores,
# after which looser slacks would be tried.
FEW = {} if CUDA else {"max_iter": 1, "tol": 1e-1}
IN_PART = {"interval": (0.1, 0.5), "slack": 0.1} | ({} if CUDA else {"max_iter": 10})
SHORT = {} if CUDA else {"solver": fc.solvers.EarlyStoppedSGDA(n_steps=20, n_evaluations=2)}


def few_positives(outputs, batch):
    return torch.sigmoid(outputs).mean() - 0.2


def fitted(kind, data=None, **params):
    X, y, group = table() if data is None else data
    params = {"random_state": 0, **FEW, **params}
    if params.get("epsilon") and "feature_range" not in params and kind is not fc.DPFermiClassifier:
        params["feature_range"] = (X.min(axis=0) - 0.1, X.max(axis=0) + 0.1)
    with warnings.catch_warnings(action="ignore"):
        return kind(**params).fit(X, y, sensitive_features=group)


def named(value):
    return getattr(value, "__name__", str(value))[:60]


@pytest.mark.skipif(CUDA, reason="with CUDA the made-up device is not used")
@pytest.mark.parametrize(
    "mixed",
    [
        lambda x: x + torch.ones(3),
        lambda x: torch.stack((x[0], torch.tensor(1.0))),
        lambda x: x.index_select(0, torch.arange(2)),
        lambda x: torch.randn(3, device=DEVICE, generator=torch.Generator()),
        lambda x: x.numpy(),
    ],
)
def test_the_made_up_device_refuses_what_cuda_refuses(mixed):
    x = torch.zeros(3, device=DEVICE)
    assert (x + torch.tensor(1.0))[torch.arange(2)].cpu().tolist() == [1.0, 1.0]
    with pytest.raises((RuntimeError, TypeError)):
        mixed(x)


PUBLIC = [
    (fc.RateConstrainedClassifier, {"constraint": ["equalized_odds", "false_negative_rate"]}),
    (fc.RateConstrainedClassifier, {"constraint": "predictive_parity", "slack": 0.2}),
    (fc.RateConstrainedClassifier, {"margin": 1.0}),
    (fc.RateConstrainedClassifier, {"solver": fc.solvers.SequentialQuadratic()}),
    (fc.PartialParityClassifier, {"constraint": "equal_opportunity", **IN_PART}),
    (fc.PartialParityClassifier, {"constraint": "group_auc", **IN_PART}),
    (fc.AUCFairClassifier, {"constraint": "group_auc"}),
    (fc.LossParityClassifier, {"model": "linear", "solver": fc.solvers.ALM(n_steps=10)}),
    (fc.DPFermiClassifier, {"penalty": 3.0, "constraint": "equalized_odds", "epsilon": None}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "params"), PUBLIC, ids=named)
def test_a_linear_fit_is_that_of_the_cpu(kind, params):
    """The problem is the same; sums in another order may move few rows at the threshold."""
    X, _, _ = table()
    here, there = fitted(kind, **params), fitted(kind, device=DEVICE, **params)
    assert there.coef_.dtype == np.float64
    assert (here.predict(X) == there.predict(X)).mean() > 0.97
    if hasattr(here, "violation_"):
        assert there.feasible_ == here.feasible_
        assert there.violation_ == pytest.approx(here.violation_, abs=5e-3)
    assert pickle.loads(pickle.dumps(there)).predict(X).shape == (len(X),)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [fc.RateConstrainedClassifier, fc.DPFermiClassifier])
def test_networks_train_on_the_device_and_predict_on_the_cpu(kind):
    data, own_module = table(3, 3), kind is fc.DPFermiClassifier
    params = {"model": normalised} if own_module else {"model": (8,), **SHORT}
    clf = fitted(kind, data, device=DEVICE, **params)
    assert all(p.device.type == "cpu" for p in clf.module_.parameters())
    assert np.isfinite(clf.predict_proba(data[0])).all()


QUADRATIC = AUCParity("inter_group", surrogate="quadratic")
LEVELS = fc.solvers.LevelSet(n_steps=20, step_size=0.1, max_levels=2)
PROXIMAL = fc.solvers.ProximalLevelSet(level_set=LEVELS, n_rounds=2)
OF_AUC = {"constraint": QUADRATIC, "objective": "auc", "slack": 0.9}
FEW_STEPS = fc.solvers.StochasticIDCA(n_steps=5, inner_steps=2, n_evaluations=2)
SOLVERS = [
    (fc.RateConstrainedClassifier, {"solver": fc.solvers.SSLALM(n_steps=20)}),
    (fc.PartialParityClassifier, {"solver": fc.solvers.IDCA(inner_steps=20), "slack": 0.9}),
    (fc.PartialParityClassifier, {"solver": FEW_STEPS, "slack": 0.9}),
    (fc.AUCFairClassifier, {"solver": fc.solvers.QCQP(), **OF_AUC}),
    (fc.AUCFairClassifier, {"solver": PROXIMAL, **OF_AUC}),
    (fc.DPFermiClassifier, {"solver": fc.solvers.FERMI(n_steps=20), "epsilon": None}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "params"), SOLVERS, ids=named)
def test_solvers(kind, params):
    assert np.isfinite(fitted(kind, device=DEVICE, **params).coef_).all()


PRIVATE = [
    (fc.RateConstrainedClassifier, {"model": (8,), "solver": fc.solvers.DPSGDA(n_steps=30)}),
    (fc.RateConstrainedClassifier, {"protect": "sensitive_features", "feature_range": None}),
    (fc.PartialParityClassifier, {"constraint": "equal_opportunity", "interval": (0.1, 0.5)}),
    (fc.AUCFairClassifier, {}),
    (fc.DPFermiClassifier, {"solver": fc.solvers.NoisyTables(n_steps=30)}),
    (fc.DPFermiClassifier, {"solver": fc.solvers.DPFERMI(n_steps=30)}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "params"), PRIVATE, ids=named)
def test_private_fits_spend_what_they_spend_on_the_cpu(kind, params):
    params = {"epsilon": 3.0, "delta": 1e-5, **params}
    here, there = fitted(kind, **params), fitted(kind, device=DEVICE, **params)
    assert there.privacy_.epsilon == here.privacy_.epsilon
    assert np.isfinite(there.decision_function(table()[0])).all()


TRAINED = [
    (EqualizedOdds(), fc.solvers.EarlyStoppedSGDA(n_steps=20, n_evaluations=2)),
    (LossParity(), fc.solvers.SSLALM(n_steps=20, n_evaluations=2)),
    (DemographicParity(), fc.solvers.StochasticGhost(n_steps=5, n_evaluations=2)),
    (few_positives, fc.solvers.SwitchingSubgradient(n_steps=20, n_evaluations=2)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("constraint", "solver"), TRAINED, ids=named)
def test_a_module_of_the_user_trains_on_the_device(constraint, solver):
    X, y, group = table()
    data = torch.tensor(X), torch.tensor(y, dtype=torch.float64)
    groups = None if constraint is few_positives else group
    torch.manual_seed(0)
    module = normalised(X.shape[1], 1).double()
    module[3] = nn.Identity()  # dropout draws its masks on the device
    training = partial(train, module, log_loss, constraint, data, groups=groups, solver=solver)
    here, there = (training(random_state=0, device=device) for device in ("cpu", DEVICE))
    for own, other in zip(here.module.parameters(), there.module.parameters(), strict=True):
        assert other.device.type == torch.device(DEVICE).type
        torch.testing.assert_close(other.cpu(), own, rtol=0, atol=1e-6)
