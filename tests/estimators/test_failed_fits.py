"""A fit that warns says where; a fit that fails leaves the estimator as it was."""

import linecache
import re

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import (
    ConstraintNotSatisfiedWarning,
    DivergenceError,
    MissingSensitiveFeaturesWarning,
    SmallGroupWarning,
)
from fairconstrained.solvers import SGDA
from tests.helpers.fits import fitted, table

# The labels of the table are not separable: no model has both rates so low.
INFEASIBLE = {
    "constraint": ["false_negative_rate", "false_positive_rate"],
    "slack": 0.01,
    "callbacks": lambda iterate: True,
}


def warned(category, data, **params):
    """The message of a fit's only warning, which must point to the line that called fit."""
    X, y, group = data
    clf = RateConstrainedClassifier(**params)
    with pytest.warns(category) as record:
        clf.fit(X, y, sensitive_features=group)
    (warning,) = record
    assert warning.filename == __file__
    assert "clf.fit(" in linecache.getline(__file__, warning.lineno)
    return str(warning.message)


def test_warnings_point_to_the_line_that_called_fit():
    X, y, group = table()
    warned(MissingSensitiveFeaturesWarning, data=(X, y, None))
    rare = np.where(np.arange(400) == 7, 2, group)
    warned(SmallGroupWarning, data=(X, y, rare), min_group_size=2, slack=np.inf)
    message = warned(ConvergenceWarning, data=(X, y, group), slack=np.inf, max_iter=1, tol=1e-15)
    assert "stopped after 1 iterations with residual" in message
    message = warned(ConstraintNotSatisfiedWarning, data=(X, y, group), **INFEASIBLE)
    assert re.search(r"^false_negative_rate: label 1: exceeds its slack by 0\.\d+ .* Try", message)


def test_a_warning_made_an_error_leaves_the_estimator_as_it_was():
    """The caller turns warnings into errors, as this suite does."""
    X, y, group = table()
    clf = RateConstrainedClassifier(**INFEASIBLE)
    before = dict(vars(clf))
    with pytest.raises(ConstraintNotSatisfiedWarning):
        clf.fit(X, y, sensitive_features=group)
    assert vars(clf) == before


def failing(error):
    def callback(iterate):
        raise error

    return callback


@pytest.mark.parametrize("error", [RuntimeError("mine"), KeyboardInterrupt()])
def test_a_failed_refit_leaves_the_former_fit(error):
    X, y, group = table()
    clf = fitted()
    former, predictions = dict(vars(clf)), clf.predict_proba(X)
    clf.set_params(callbacks=failing(error), slack=0.3)
    with pytest.raises(type(error)) as caught:
        clf.fit(X[:, :3], y, sensitive_features=group)
    assert any("as it was before this call" in note for note in caught.value.__notes__)
    changed = {"callbacks", "slack"}
    assert vars(clf).keys() == former.keys()
    assert all(vars(clf)[name] is former[name] for name in former.keys() - changed)
    np.testing.assert_array_equal(clf.predict_proba(X), predictions)


def test_divergence_is_an_error_and_leaves_the_former_fit():
    class Explodes(nn.Linear):
        calls = 0

        def forward(self, X):
            Explodes.calls += 1
            return super().forward(X) * (torch.nan if Explodes.calls > 50 else 1.0)

    X, y, group = table()
    clf = RateConstrainedClassifier(
        model=lambda d, k: Explodes(d, k), solver=SGDA(n_steps=300, batch_size=64)
    )
    with pytest.raises(DivergenceError, match=re.escape("diverged at iteration")):
        clf.fit(X, y, sensitive_features=group)
    assert not hasattr(clf, "classes_")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_module_given_twice_leaves_the_former_fit_alone():
    data = make_biased_classification(200, random_state=0)
    net = nn.Linear(10, 1)
    first, second = (
        RateConstrainedClassifier(slack=1.0, model=lambda d, k: net, max_iter=2, random_state=s)
        for s in (0, 1)
    )
    rows = (data.data, data.target)
    before = first.fit(*rows, sensitive_features=data.sensitive_features).decision_function(rows[0])
    second.fit(rows[0], 1 - rows[1], sensitive_features=data.sensitive_features)
    assert (first.decision_function(rows[0]) == before).all()
    assert net.weight.dtype == torch.float32
