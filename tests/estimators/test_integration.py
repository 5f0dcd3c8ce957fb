"""The estimator inside scikit-learn's tools, with metadata routing and without."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fairconstrained import RateConstrainedClassifier
from fairconstrained.constraints import DemographicParity
from fairconstrained.metrics import (
    demographic_parity_difference,
    demographic_parity_scorer,
    fairness_scorer,
)
from fairconstrained.model_selection import StratifiedSensitiveKFold, select_feasible
from fairconstrained.solvers import AugmentedLagrangian
from tests.helpers.fits import table

COLUMNS = [f"x{j}" for j in range(6)]
SCORING = {"accuracy": "accuracy", "dp": demographic_parity_scorer}


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def frame():
    X, y, group = table()
    X = pd.DataFrame(X, columns=COLUMNS)
    X["city"] = np.where(X["x0"] > 0, "north", "south")
    return X, y, pd.Series(np.array(["a", "b"])[group], index=1000 + np.arange(400)[::-1] * 7)


def pipeline(**params):
    columns = make_column_transformer(
        (StandardScaler(), COLUMNS), (OneHotEncoder(), ["city"]), verbose_feature_names_out=False
    )
    return Pipeline([("columns", columns), ("clf", RateConstrainedClassifier(**params))])


def search():
    grid = {"clf__slack": [0.02, 0.25]}
    return GridSearchCV(
        pipeline(),
        grid,
        scoring=SCORING,
        refit=select_feasible(max_violation=0.15),
        cv=StratifiedSensitiveKFold(2),
        error_score="raise",
    )


def test_a_search_over_a_pipeline_chooses_a_feasible_slack(routing):
    X, y, group = frame()
    found = search().fit(X, y, sensitive_features=group)
    violation = -found.cv_results_["mean_test_dp"]
    assert violation[found.best_index_] <= 0.15
    assert violation[0] < violation[1]
    assert found.best_estimator_[-1].feasible_
    assert np.isfinite(found.best_estimator_.predict_proba(X)).all()


def test_parameters_of_solvers_and_constraints_can_be_searched(routing):
    X, y, group = table()
    clf = RateConstrainedClassifier(DemographicParity(), solver=AugmentedLagrangian())
    pipe = Pipeline([("scale", StandardScaler()), ("clf", clf)])
    grid = {"clf__solver__penalty": [1.0, 30.0], "clf__constraint__reference": ["overall"]}
    found = GridSearchCV(pipe, grid, cv=2, error_score="raise")
    found.fit(X, y, sensitive_features=group)
    assert found.best_estimator_[-1].solver.penalty == found.best_params_["clf__solver__penalty"]
    assert clf.solver.penalty == 10.0
    # The notion that was searched is the one that was trained: each group against everybody.
    gap = demographic_parity_difference(
        y, found.predict(X), sensitive_features=group, method="to_overall"
    )
    assert found.best_estimator_[-1].violation_ == pytest.approx(gap, abs=1e-12)


def test_without_routing_a_scorer_reads_the_column():
    X, y, group = frame()
    X["group"] = group.to_numpy()
    scorer = fairness_scorer(demographic_parity_difference, column="group")
    found = GridSearchCV(
        pipeline(),
        {"clf__slack": [0.02, 0.3]},
        scoring={"accuracy": "accuracy", "dp": scorer},
        refit=select_feasible(max_violation=0.15),
        cv=2,
        error_score="raise",
    ).fit(X, y, clf__sensitive_features=group)
    violation = -found.cv_results_["mean_test_dp"]
    assert violation[0] < violation[1]
    assert found.best_params_ == {"clf__slack": 0.02}
