"""ONNX graphs give the labels of predict, to the last one."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    AdaBoostClassifier,
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
from sklearn.svm import LinearSVC

from fairconstrained import AUCFairClassifier, PartialParityClassifier, RateConstrainedClassifier
from fairconstrained.export import to_onnx
from fairconstrained.models import Boosting, Posteriors, SingleFit
from fairconstrained.solvers import DPSGDA
from tests.helpers.clients import biased

pytest.importorskip("skl2onnx", reason="skl2onnx is in the extra `onnx`")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is in the extra `onnx`")
pytestmark = pytest.mark.filterwarnings("ignore")  # of fits that are cut short, and of skl2onnx
NETWORK = {"model": (4, 3), "max_iter": 3, "random_state": 0}
SINGLE = RateConstrainedClassifier(model=SingleFit(LogisticRegression()))
OF_TWO = {
    "linear": RateConstrainedClassifier(),
    "ranking": AUCFairClassifier(),
    "interval": PartialParityClassifier(slack=0.3),
    "perceptron": RateConstrainedClassifier(**NETWORK),
    "odds": RateConstrainedClassifier("equalized_odds", slack=0.2, model=LogisticRegression()),
    "forest": RateConstrainedClassifier(model=RandomForestClassifier(5, random_state=0)),
    "single in a pipeline": make_pipeline(StandardScaler(), SINGLE),
}
CASES = [(name, 2, False) for name in OF_TWO]
CASES += [("linear", 3, True), ("perceptron", 3, False), ("forest", 3, True)]


def answers(graph, X):
    session = runtime.InferenceSession(graph.SerializeToString())
    return session.run(None, {session.get_inputs()[0].name: X})


def fitted(estimator, y):
    X, _, groups = biased()
    with config_context(enable_metadata_routing=True):
        return clone(estimator).fit(X, y, sensitive_features=groups), X


def agrees(clf, X, atol=1e-6, **options):
    labels, probabilities = answers(to_onnx(clf, X[:1], **options), X)
    np.testing.assert_array_equal(labels, clf.predict(X))
    np.testing.assert_allclose(probabilities, clf.predict_proba(X), atol=atol)
    return probabilities


@pytest.mark.parametrize(("name", "n_classes", "words"), CASES)
def test_the_graph_gives_labels_and_probabilities(name, n_classes, words):
    X, y, _ = biased()
    y = y + (X[:, 0] > 1) * (n_classes == 3)
    agrees(*fitted(OF_TWO[name], np.array(["a", "b", "c"])[y] if words else y))


@pytest.mark.parametrize(
    ("private", "kind"),
    [
        ({"epsilon": 1.0, "solver": DPSGDA(n_steps=5)}, LogisticRegression),
        ({"epsilon": 1.0, "protect": "sensitive_features"}, HistGradientBoostingClassifier),
        ({}, LogisticRegression),
    ],
    ids=["record", "sensitive_features", "nobody"],
)
def test_heads_on_frozen_models(private, kind):
    """Of the label, which knows a class more, and of the group."""
    X, y, groups = biased()
    of_label = kind(max_iter=20).fit(X, np.where(X[:, 1] > 1, 2, y))
    of_group = kind(max_iter=20).fit(X, groups)
    model = Posteriors(FrozenEstimator(of_label), FrozenEstimator(of_group))
    clf = RateConstrainedClassifier("equalized_odds", model=model, **private)
    agrees(clf.set_params(random_state=0).fit(X, y, sensitive_features=groups), X)


def trees(**params):
    return HistGradientBoostingClassifier(max_iter=3, max_leaf_nodes=8, random_state=0, **params)


def encoded(*steps):
    as_missing = {"unknown_value": np.nan, "encoded_missing_value": np.nan}
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", **as_missing)
    return make_pipeline(make_column_transformer((codes, ["c"]), remainder="passthrough"), *steps)


@pytest.mark.parametrize(
    ("model", "words", "n_classes"),
    [
        ("linear", False, 2),
        (Posteriors(trees(categorical_features=[0]), cv=2), False, 3),
        (Posteriors(encoded(trees(categorical_features=[0])), cv=2), True, 2),
        (SingleFit(encoded(trees(categorical_features=[0])), cv=2), True, 2),
    ],
    ids=["linear", "categories", "words", "single"],
)
def test_each_column_of_a_frame_is_an_input(model, words, n_classes):
    X, y, groups = biased()
    y = y + (X[:, 0] > 1) * (n_classes == 3)
    category = (2 * y + (X[:, 1] > 0)).astype(float)
    category = category.astype(str).astype(object) if words else category
    frame = pd.DataFrame({"c": category, "x": X[:, 0], "z": X[:, 2]})
    if model != "linear":
        frame.loc[::5, "x"] = np.nan
    clf = RateConstrainedClassifier(model=model, random_state=0)
    clf.fit(frame, y, sensitive_features=groups)
    frame.loc[::7, "c"] = "another" if words else 9.0
    session = runtime.InferenceSession(to_onnx(clf, frame[:1]).SerializeToString())
    assert [given.name for given in session.get_inputs()] == list(frame)
    labels, probabilities = session.run(None, {name: frame[[name]].to_numpy() for name in frame})
    np.testing.assert_array_equal(labels, clf.predict(frame))
    np.testing.assert_allclose(probabilities, clf.predict_proba(frame), atol=1e-6)


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.ConstraintNotSatisfiedWarning")
@pytest.mark.parametrize("model", [SingleFit(trees(), cv=2), Boosting(trees())], ids=str)
def test_the_graph_of_a_single_model_is_that_of_the_classifier(model):
    clf, X = fitted(RateConstrainedClassifier(model=model), biased()[1])
    graphs = [to_onnx(model, X[:1]).graph for model in (clf, clf.model_.estimator_)]
    assert graphs[0].node == graphs[1].node
    assert graphs[0].initializer == graphs[1].initializer
    agrees(clf, X)


@pytest.mark.parametrize("model", [trees(), ExtraTreesClassifier(5, random_state=0)], ids=str)
def test_a_single_model_that_lacks_a_class_is_one_of_all_classes_in_the_graph(model):
    """As it predicts itself; nobody is given a label that two rows have."""
    X, y, groups = biased()
    y, X = np.where(np.arange(len(y)) < 2, 0, y + 1), X.astype(np.float32).astype(float)
    clf = RateConstrainedClassifier(slack=0.5, model=SingleFit(model), random_state=0)
    clf.fit(X, y, sensitive_features=groups)
    assert clf.model_.estimator_.classes_.tolist() == [1, 2]
    agrees(clf, X)


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.ConstraintNotSatisfiedWarning")
@pytest.mark.parametrize("kind", [partial(SingleFit, cv=2), Boosting, partial(Posteriors, cv=2)])
def test_boosted_trees_of_other_libraries_go_through_onnxmltools(kind):
    """What converts the plain classifier converts this one; these trees compute in single."""
    lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is in the extra `clients`")
    tools = pytest.importorskip("onnxmltools.convert.lightgbm.operator_converters.LightGbm")
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes

    update_registered_converter(
        *(lightgbm.LGBMClassifier, "LightGbmLGBMClassifier"),
        *(calculate_linear_classifier_output_shapes, tools.convert_lightgbm),
        options={"nocl": [True, False], "zipmap": [True, False, "columns"]},
    )
    X, y, groups = biased()
    X = X.astype(np.float32).astype(float)
    trees = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1)
    clf = RateConstrainedClassifier(model=kind(trees), random_state=0)
    clf.fit(X, y, sensitive_features=groups)
    agrees(clf, X, atol=1e-5)


class Unknown(LogisticRegression):
    pass


def test_inputs_in_single_precision_are_computed_with_in_double():
    clf, X = fitted(RateConstrainedClassifier(), biased()[1])
    assert agrees(clf, X.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (PartialParityClassifier(slack=0.3, group_features=True), "group_features=False"),
        (RateConstrainedClassifier(model=torch.nn.Linear, max_iter=3), "torch.onnx.export"),
        (RateConstrainedClassifier(model=LinearSVC()), "predict_proba"),
        (RateConstrainedClassifier(model=Unknown()), "no converter for Unknown"),
        (
            RateConstrainedClassifier(model=KNeighborsClassifier()),
            "has other probabilities than KN",
        ),
        (
            RateConstrainedClassifier(model=AdaBoostClassifier(n_estimators=3, random_state=0)),
            "no graph of this model in double precision: .* inconsistent type",
        ),
        (
            RateConstrainedClassifier(model=VotingClassifier([("a", GaussianNB())], voting="soft")),
            "no graph of this model .*: flatten_transform==True is not implemented",
        ),
    ],
)
def test_what_has_no_graph_is_refused_in_words(estimator, words):
    clf, X = fitted(estimator, biased()[1])
    with pytest.raises(ValueError, match=words):
        to_onnx(clf, X[:1])


def test_an_estimator_that_is_not_fitted_is_said_to_be():
    with pytest.raises(NotFittedError):
        to_onnx(RateConstrainedClassifier(), np.zeros((1, 2)))


def test_words_need_a_pipeline_and_dates_are_no_labels():
    X, y, groups = biased()
    clf = RateConstrainedClassifier().fit(X[:, :1], y, sensitive_features=groups)
    with pytest.raises(ValueError, match="a pipeline that encodes the words"):
        to_onnx(clf, pd.DataFrame({"job": ["nurse"]}, dtype=object))
    clf.fit(X[:, :1], y.astype("M8[D]"), sensitive_features=groups)
    with pytest.raises(ValueError, match="ONNX has no dates"):
        to_onnx(clf, X[:, :1])
