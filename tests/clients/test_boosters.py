"""Boosters are audited as they are, without scikit-learn's interface."""

import numpy as np
import pytest

import fairconstrained
from fairconstrained.metrics import certify, group_report

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3))
SEX = np.where(RNG.random(600) < 0.5, "f", "m")
Y = (X[:, 0] + 0.5 * (SEX == "m") + RNG.normal(size=600) > 0).astype(int)


def of_lightgbm():
    lightgbm = pytest.importorskip("lightgbm")
    options = {"objective": "binary", "verbose": -1, "num_threads": 1}
    booster = lightgbm.train(options, lightgbm.Dataset(X, Y), num_boost_round=5)
    return booster, booster.predict(X)


def of_xgboost():
    xgboost = pytest.importorskip("xgboost")
    options = {"objective": "binary:logistic", "nthread": 1}
    booster = xgboost.train(options, xgboost.DMatrix(X, Y), num_boost_round=5)
    return booster, booster.predict(xgboost.DMatrix(X))


@pytest.mark.slow
@pytest.mark.parametrize("trained", [of_lightgbm, of_xgboost])
def test_a_booster_is_audited_as_its_predictions_are(trained):
    booster, scores = trained()
    given = {"sensitive_features": SEX, "slack": 0.5}
    found = fairconstrained.report(Y, booster, X=X, threshold=0.5, **given)
    decisions = scores > 0.5
    same = fairconstrained.report(Y, decisions, y_score=scores, **given)
    assert found.groups == same.groups
    assert found.calibration == same.calibration
    assert found.answer == same.answer
    (entry,) = found.certificates
    alone = certify(y_pred=decisions, constraint="demographic_parity", **given)
    assert entry["upper"] == alone.upper
    table = group_report(Y, decisions.astype(int), sensitive_features=SEX, y_score=scores)
    rates = {group["group"]: group["selection_rate"] for group in found.groups}
    assert rates["f"] == table.loc["f", "selection_rate"]
    assert rates["m"] == table.loc["m", "selection_rate"]
    with pytest.raises(ValueError, match="threshold must be given"):
        fairconstrained.report(Y, booster, X=X, **given)
    before = fairconstrained.report(Y, Y, before=booster, X=X, threshold=0.5, **given)
    assert before.changes[0]["gained"] == ((Y == 1) & ~decisions).sum()
