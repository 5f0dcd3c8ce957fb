"""Bad parameters of every estimator, its notion and its solver are named before any work."""

import numpy as np
import pytest
from torch import nn

from fairconstrained import (
    AUCFairClassifier,
    DPFermiClassifier,
    LossParityClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
)
from fairconstrained.constraints import (
    AUCParity,
    DemographicParity,
    PartialDemographicParity,
    PartialStatisticalParity,
    Quadratic,
)
from fairconstrained.solvers import (
    DPFERMI,
    DPSGDA,
    FERMI,
    SSLALM,
    LevelSet,
    NoisyTables,
    ReleasedMoments,
    StochasticGhost,
)
from tests.helpers.fits import table


def mixes_rows(d, k):
    return nn.Sequential(nn.BatchNorm1d(d), nn.Linear(d, k))


CUBIC, HINGE = (AUCParity("group_auc", surrogate="cubic"), PartialStatisticalParity(surrogate="h"))
SQUARE = AUCParity("group_auc", surrogate=Quadratic(c1=1.0))
FINITE = "must be a finite number"
REFUSED = {
    RateConstrainedClassifier: [
        ({"delta": 1.0, "epsilon": 1.0}, "delta must be a number"),
        ({"warm_start": True, "epsilon": 1.0}, "warm_start must be False"),
        ({"margin": 1.0, "epsilon": 1.0}, "margin must be 0 with epsilon"),
        ({"device": None}, "device must be a torch device"),
        ({"feature_range": (0, 1, 2)}, "feature_range must be None or a pair"),
        ({"feature_range": (np.zeros(5), 1), "epsilon": 1.0}, r"arrays of shape \(6,\)"),
        ({"feature_range": (0, 0)}, "low < high"),
        ({"feature_range": (0, np.inf)}, "finite numbers"),
        ({"feature_range": (-1e308, 1e308)}, "widths whose squares are finite"),
        ({"epsilon": 1.0, "model": mixes_rows}, "group normalisation"),
        ({"solver": DPSGDA(histogram_noise="uniform")}, "histogram_noise must be one of"),
        ({"solver": DPSGDA(clip=5e-324)}, "clip must be a finite number > 1e-100"),
        ({"solver": DPSGDA(sampling_rate=2.0)}, "sampling_rate must be in"),
        ({"solver": DPSGDA(sampling_rate=0.0)}, "DPSGDA.sampling_rate must be a finite number > 0"),
        ({"solver": DPSGDA(histogram_fraction=1.0)}, "histogram_fraction must be .* below 1"),
    ],
    LossParityClassifier: [
        ({"constraint": "demographic_parity"}, "constraint must"),
        ({"loss": "hinge"}, "loss must"),
        ({"solver": StochasticGhost(p0=1.0)}, "StochasticGhost"),
        ({"solver": SSLALM(penalty=-1)}, "SSLALM"),
    ],
    PartialParityClassifier: [
        ({"constraint": "parity"}, "constraint must be one of"),
        ({"interval": (0.5, 0.2)}, "interval must be a pair"),
        ({"interval": [(0.1, 0.4), (0.3, 0.5)]}, "overlapping parts"),
        ({"interval": {"a": (0.0, 0.3), "b": (0.4, 0.1)}}, "interval must be a pair"),
        ({"interval": {"a": (0.0, 0.3)}}, "there is none for b"),
        ({"interval": {"a": (0, 0.3), "b": (0, 0.3), "z": (0, 1)}}, r"do not have: \['z'\]"),
        ({"slack": -0.1}, "slack must be a number >= 0; got -0.1"),
        ({"constraint": PartialDemographicParity(threshold=np.inf)}, "threshold must be a"),
        ({"constraint": PartialStatisticalParity(n_grid=0)}, "n_grid must be an integer >= 1"),
        ({"group_features": "yes"}, "group_features must be True or False"),
        ({"constraint": HINGE}, "surrogate must be one of"),
        ({"constraint": PartialStatisticalParity(temperature=0)}, f"temperature {FINITE} > 0"),
        ({"epsilon": 1.0, "constraint": "rank_parity"}, "constraint must be one of"),
        ({"epsilon": 1.0, "interval": "auto"}, "epsilon must be None with"),
        ({"epsilon": 1.0, "group_features": True}, "epsilon must be None with"),
    ],
    AUCFairClassifier: [
        ({"constraint": "auc"}, "constraint must be one of"),
        ({"slack": -1}, "slack must be a number >= 0"),
        ({"margin": -1.0}, rf"AUCFairClassifier\.margin {FINITE} >= 0"),
        ({"objective": "mse"}, "objective must be one of"),
        ({"constraint": CUBIC}, "surrogate must be one of"),
        ({"stream_memory": 0}, "stream_memory must be an integer >= 1"),
        ({"alpha": -1.0}, "alpha must be a finite number >= 0"),
        ({"constraint": SQUARE, "solver": LevelSet()}, "c1=1.0"),
        ({"epsilon": 1.0, "objective": "log"}, "objective must be 'auc' with epsilon"),
        ({"epsilon": 1.0, "model": (4,)}, "model must be 'linear' with epsilon"),
        (
            {"epsilon": 1.0, "constraint": AUCParity("group_auc", surrogate="soft_bins")},
            "constraint must be a name or one with surrogate='binormal'",
        ),
        ({"epsilon": 1.0, "warm_start": True}, "warm_start must be False with epsilon"),
        ({"epsilon": 0}, "epsilon must be None or a finite number > 0"),
    ],
    DPFermiClassifier: [
        ({"constraint": "parity"}, r"DPFermiClassifier\.constraint must be one of"),
        ({"penalty": -1.0}, r"DPFermiClassifier\.penalty must be a finite number >= 0; got -1.0"),
        ({"protect": "row"}, "protect must be one of"),
        ({"warm_start": True}, "warm_start must be False"),
        ({"constraint": DemographicParity(temperature=0.0)}, "temperature must be"),
        ({"constraint": DemographicParity(slack=0.1)}, "without a slack"),
        ({"epsilon": None, "solver": FERMI(output="best")}, r"FERMI\.output must be one of"),
        ({"epsilon": None, "solver": FERMI(table="scores")}, r"FERMI\.table must be one of"),
        ({"epsilon": None, "solver": FERMI(optimizer=1)}, r"FERMI\.optimizer must be callable"),
        ({"solver": ReleasedMoments(), "protect": "record"}, "protect='sensitive_features'"),
        ({"solver": ReleasedMoments(n_rounds=0)}, r"ReleasedMoments\.n_rounds must be"),
        ({"solver": NoisyTables(memory=1.0)}, r"memory must be a finite number >= 0 and below 1"),
        ({"solver": DPFERMI(clip=-1.0)}, r"DPFERMI\.clip must be"),
        ({"solver": DPFERMI(), "model": mixes_rows}, "group normalisation"),
    ],
}
CASES = [(kind, *case) for kind, cases in REFUSED.items() for case in cases]
IDS = [f"{kind.__name__}, {', '.join(params)}: {message}" for kind, params, message in CASES]


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.PrivacyWarning")
@pytest.mark.parametrize(("kind", "params", "message"), CASES, ids=IDS)
def test_bad_parameters_are_named(kind, params, message):
    X, y, group = table()
    group = np.array(["a", "b"])[group]
    if "solver" in params and kind is RateConstrainedClassifier:
        params = {"epsilon": 1.0, **params}
    clf = kind(**params)
    for method in ("fit", "partial_fit") if kind is AUCFairClassifier else ("fit",):
        with pytest.raises(ValueError, match=message):
            getattr(clf, method)(X, y, sensitive_features=group)
    assert not hasattr(clf, "classes_")
