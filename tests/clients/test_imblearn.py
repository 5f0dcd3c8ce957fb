"""Samplers of imbalanced-learn: the groups travel inside of X."""

import numpy as np
import pytest

from fairconstrained import RateConstrainedClassifier
from fairconstrained.metrics import demographic_parity_difference, fairness_scorer
from fairconstrained.model_selection import SensitiveColumnsClassifier
from fairconstrained.models import SingleFit
from tests.helpers.clients import frame

imblearn = pytest.importorskip("imblearn", reason="imbalanced-learn is in the extra `clients`")
GAP = fairness_scorer(demographic_parity_difference, column="sex")


@pytest.fixture(scope="module")
def rare():
    """Rows with few positive labels; the groups are text, which no sampler interpolates."""
    table, y = frame(600)
    kept = np.r_[np.flatnonzero(y == 1)[:90], np.flatnonzero(y == 0)]
    sex = np.array(["f", "m"])[table["sex"]]
    return table.assign(sex=sex).iloc[kept].reset_index(drop=True), y[kept]


@pytest.mark.parametrize("name", ["SMOTENC", "RandomUnderSampler"])
def test_resampled_rows_bring_their_groups(rare, name):
    from imblearn import over_sampling, under_sampling
    from imblearn.pipeline import make_pipeline

    table, y = rare
    options = {"categorical_features": ["sex"]} if name == "SMOTENC" else {}
    module = under_sampling if name == "RandomUnderSampler" else over_sampling
    sampler = getattr(module, name)(random_state=0, **options)
    fair = SensitiveColumnsClassifier(RateConstrainedClassifier(slack=0.02), "sex")
    pipe = make_pipeline(sampler, fair).fit(table, y)
    resampled, labels = sampler.fit_resample(table, y)
    assert len(resampled) != len(table)
    assert list(pipe[-1].estimator_.groups_) == ["f", "m"]
    assert -GAP(pipe, resampled, labels) == pytest.approx(pipe[-1].estimator_.violation_)
    assert pipe[-1].estimator_.violation_ <= 0.02 + 1e-3


def test_ready_made_scorers_work_whatever_is_imported_first(rare):
    """Isort's order imports imbalanced-learn after this package, and it changes the requests."""
    from sklearn import config_context
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_validate

    from fairconstrained.metrics import demographic_parity_scorer

    table, y = rare
    X, groups = table.drop(columns="sex"), table["sex"]
    with config_context(enable_metadata_routing=True):
        asked = {"scoring": demographic_parity_scorer, "params": {"sensitive_features": groups}}
        scores = cross_validate(LogisticRegression(), X, y, cv=2, error_score="raise", **asked)
    assert (scores["test_score"] <= 0).all()


def test_a_single_fit_refuses_a_sampler_whose_rows_have_no_weights(rare):
    from imblearn.pipeline import make_pipeline
    from imblearn.under_sampling import RandomUnderSampler
    from sklearn.linear_model import LogisticRegression

    table, y = rare
    model = SingleFit(make_pipeline(RandomUnderSampler(), LogisticRegression()))
    with pytest.raises(ValueError, match="a sampler gives it others"):
        RateConstrainedClassifier(model=model).fit(table.drop(columns="sex"), y)
