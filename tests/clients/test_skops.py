"""Fitted models in files of skops, which name every type that is in them."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fairconstrained as fc
from fairconstrained.constraints import EqualizedOdds
from fairconstrained.exceptions import PrivacyWarning
from fairconstrained.export import model_card, trusted_types
from fairconstrained.models import SingleFit
from fairconstrained.models.perceptron import Layers
from tests.helpers.clients import rows

skops = pytest.importorskip("skops", reason="skops is in the extra `clients`")
ESTIMATORS = {
    "notion object": fc.RateConstrainedClassifier(EqualizedOdds(slack=0.1)),
    "posteriors": fc.RateConstrainedClassifier(model=LogisticRegression()),
    "single": fc.RateConstrainedClassifier(model=SingleFit(LogisticRegression())),
    "boosted trees": fc.RateConstrainedClassifier(model=HistGradientBoostingClassifier(max_iter=5)),
    "perceptron": fc.RateConstrainedClassifier(model=(4,), max_iter=3),
    "ranking": fc.AUCFairClassifier(),
    "interval": fc.PartialParityClassifier(slack=0.3),
    "loss": fc.LossParityClassifier(),
    "private perceptron": fc.DPFermiClassifier(epsilon=1.0, model=(4,), max_iter=3),
}
ROWS = rows()


@pytest.mark.filterwarnings("ignore")  # of fits that are cut short
@pytest.mark.parametrize("name", ESTIMATORS)
def test_models_load_with_the_types_of_this_package_named(name):
    import skops.io

    X = ROWS["X"]
    clf = copy.deepcopy(ESTIMATORS[name]).set_params(random_state=0)
    clf.fit(**ROWS)
    file = skops.io.dumps(clf)
    named = trusted_types(clf)
    assert named == skops.io.get_untrusted_types(data=file)
    again = skops.io.loads(file, trusted=named)
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), clf.predict(X))
    if clf.privacy_ is None and name != "single":  # it goes on from there
        again.set_params(warm_start=True).fit(**ROWS)


@pytest.mark.filterwarnings("ignore")
def test_perceptrons_hold_arrays_and_no_code():
    clf = copy.deepcopy(ESTIMATORS["perceptron"]).fit(**ROWS)
    assert isinstance(clf.module_, Layers)
    for again in (pickle.loads(pickle.dumps(clf.module_)), copy.deepcopy(clf.module_)):
        assert list(again.state_dict()) == list(clf.module_.state_dict())
        for name, tensor in clf.module_.state_dict().items():
            assert tensor.equal(again.state_dict()[name])
    assert b"torch._utils" not in pickle.dumps(clf.module_)  # which rebuilds pickled tensors


def test_types_of_other_packages_are_left_for_the_user_to_judge():
    clf = fc.RateConstrainedClassifier().fit(**ROWS)
    pipe = make_pipeline(StandardScaler(), clf)
    assert trusted_types(pipe) == trusted_types(clf)
    assert all(name.startswith("fairconstrained.") for name in trusted_types(clf))


def test_a_card_of_skops_has_the_sections_of_ours():
    clf = fc.RateConstrainedClassifier().fit(**ROWS)
    card = model_card(clf)
    rendered = card.to_skops(clf).render()
    for name, text in card.sections.items():
        assert f"# {name}\n\n{text}" in rendered


def test_a_card_of_skops_shows_no_seed_of_a_private_fit():
    clf = fc.RateConstrainedClassifier(epsilon=1.0, random_state=123456789)
    with pytest.warns(PrivacyWarning):
        clf.fit(**ROWS)
    assert "123456789" not in model_card(clf).to_skops(clf).render()
