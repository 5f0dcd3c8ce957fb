"""Small private fits on every path that releases something."""

import warnings

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from torch import nn

import fairconstrained as fc
from fairconstrained.datasets import make_biased_classification
from fairconstrained.models import Posteriors
from fairconstrained.solvers import DPFERMI, DPSGDA, LabelRounds, NoisyTables, ReleasedMoments

DATA = make_biased_classification(2000, 6, bias=0.6, random_state=0)
LARGE = make_biased_classification(20_000, 6, bias=0.6, random_state=0)
OF_RECORDS = {"epsilon": 1.0, "feature_range": (-4, 4), "random_state": 0}
STEPS = DPSGDA(n_steps=4, sampling_rate=0.2)


class Remembers(LogisticRegression):
    """Keeps the rows that it is asked about."""

    def predict_proba(self, X):
        self.last = X
        return super().predict_proba(X)


PUBLIC = make_biased_classification(500, 6, bias=0.6, random_state=9)
TARGETS = PUBLIC.target, PUBLIC.sensitive_features
OF_LABEL, OF_GROUP = (FrozenEstimator(Remembers().fit(PUBLIC.data, y)) for y in TARGETS)
SECRET_GROUPS = {"epsilon": 1.0, "protect": "sensitive_features", "random_state": 0}
PRIVATE = {
    "rates": fc.RateConstrainedClassifier(solver=STEPS, **OF_RECORDS),
    "rates of raw columns": fc.RateConstrainedClassifier(solver=STEPS, epsilon=1.0, random_state=0),
    "rates of a network": fc.RateConstrainedClassifier(model=(3,), solver=STEPS, **OF_RECORDS),
    "rates of frozen models": fc.RateConstrainedClassifier(
        "equalized_odds",
        model=Posteriors(OF_LABEL, OF_GROUP),
        solver=STEPS,
        epsilon=1.0,
        random_state=0,
    ),
    "partial parity": fc.PartialParityClassifier(solver=STEPS, **OF_RECORDS),
    "ranking": fc.AUCFairClassifier(**OF_RECORDS),
    "penalty, records": fc.DPFermiClassifier(
        protect="record", solver=NoisyTables(n_steps=4, batch_size=400), **OF_RECORDS
    ),
    "rates, groups": fc.RateConstrainedClassifier(**SECRET_GROUPS),
    "rates, groups, frozen": fc.RateConstrainedClassifier(
        "equalized_odds",
        model=Posteriors(Remembers(), OF_GROUP),
        solver=ReleasedMoments(n_rounds=1),
        **SECRET_GROUPS,
    ),
    "penalty, groups": fc.DPFermiClassifier(
        solver=ReleasedMoments(n_rounds=2, inner=LabelRounds(rounds=1)), random_state=0
    ),
    "penalty, groups by steps": fc.DPFermiClassifier(
        solver=DPFERMI(n_steps=4, batch_size=400), random_state=0
    ),
}


class Keeps(nn.Module):
    """Remembers what went through it, where a state dictionary does not look and where it does."""

    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.layer = nn.Linear(n_features, n_outputs)
        self.register_buffer("seen", torch.zeros(n_features).double())

    def forward(self, X):
        self.last = X
        if len(X) > 50:  # not in a trial
            self.seen = X[0].detach().clone()
        return self.layer(X)


def fitted(clf, X=DATA.data, y=DATA.target, groups=DATA.sensitive_features):
    return clf.fit(X, y, sensitive_features=groups)


class Means(TransformerMixin, BaseEstimator):
    """A step of a pipeline that learns from the groups."""

    def fit(self, X, y=None, sensitive_features=None):
        self.means_ = pd.DataFrame(X).groupby(np.asarray(sensitive_features)).mean()
        return self

    def transform(self, X):
        return np.asarray(X)


def errors_of(error):
    """An error and those before it, which a log has, too."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def words_of(fit, category=Warning):
    with warnings.catch_warnings(record=True, action="always") as caught:
        fit()
    return [str(w.message) for w in caught if issubclass(w.category, category)]
