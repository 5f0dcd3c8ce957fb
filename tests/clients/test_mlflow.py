"""Fits in mlflow: the model in its default format, and the card beside it."""

import os
from unittest.mock import patch

import numpy as np
import pytest

from fairconstrained import RateConstrainedClassifier
from fairconstrained.export import model_card, trusted_types
from tests.helpers.clients import biased

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of mlflow

pytest.importorskip("mlflow", reason="mlflow is in the extra `clients`")
pytest.importorskip("skops", reason="skops is in the extra `clients`")


@pytest.fixture
def tracking(tmp_path):
    import mlflow

    before = mlflow.get_tracking_uri()
    with patch.dict(os.environ):  # where mlflow leaves the experiment for later processes
        mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
        mlflow.create_experiment("fair", artifact_location=(tmp_path / "artifacts").as_uri())
        mlflow.set_experiment("fair")
        yield mlflow
        mlflow.set_tracking_uri(before)


def test_a_logged_model_comes_back(tracking):
    import mlflow.sklearn

    X, y, groups = biased()
    clf = RateConstrainedClassifier(model=(4,), max_iter=5, random_state=0)
    clf.fit(X, y, sensitive_features=groups)
    with tracking.start_run() as run:
        logged = mlflow.sklearn.log_model(
            clf, name="model", skops_trusted_types=trusted_types(clf), pip_requirements=[]
        )
        tracking.log_params(clf.get_params())
        tracking.log_metric("violation", clf.violation_)
        tracking.log_text(str(model_card(clf)), "card.md")
    again = mlflow.sklearn.load_model(logged.model_uri)
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    of_functions = tracking.pyfunc.load_model(logged.model_uri)
    np.testing.assert_array_equal(of_functions.predict(X), clf.predict(X))
    found = tracking.get_run(run.info.run_id).data
    assert found.params["slack"] == "0.05"
    assert found.metrics["violation"] == clf.violation_
