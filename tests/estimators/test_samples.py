"""What fits take one entry per sample of: by position, unmasked, and by name."""

import warnings

import numpy as np
import pandas as pd
import pytest

from fairconstrained import (
    AUCFairClassifier,
    DPFermiClassifier,
    LossParityClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
)
from fairconstrained.exceptions import InputWarning
from fairconstrained.inputs.samples import check_samples
from fairconstrained.model_selection import (
    CertifiedClassifier,
    PrivateGridSearch,
    StratifiedSensitiveKFold,
)
from tests.helpers.fits import table

ESTIMATORS = [
    AUCFairClassifier,
    DPFermiClassifier,
    LossParityClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
]
X, Y, GROUP = table()
FRAME = pd.DataFrame(X)
ORDER = np.random.default_rng(0).permutation(len(Y))
INPUTS = {"y": Y, "sensitive_features": GROUP, "sample_weight": np.ones(len(Y))}


def given(clf, changed, *, X=FRAME, method="fit"):
    inputs = {**INPUTS, **changed}
    return getattr(clf, method)(X, inputs.pop("y"), **inputs)


@pytest.mark.parametrize(("kind", "name"), list(zip(ESTIMATORS, [*INPUTS, *INPUTS], strict=False)))
def test_samples_in_another_order_than_those_of_X_are_refused(kind, name):
    """Pandas would align them, scikit-learn would not: either would be a guess."""
    clf, moved = kind(), pd.Series(INPUTS[name]).iloc[ORDER]
    with pytest.raises(ValueError, match=f"{name} has the samples of X in another order"):
        given(clf, {name: moved})
    assert not hasattr(clf, "n_features_in_")


def test_without_an_index_of_X_the_others_are_compared():
    y, groups = pd.Series(Y), pd.Series(GROUP).iloc[ORDER]
    with pytest.raises(ValueError, match="sensitive_features has the samples of y in another"):
        given(RateConstrainedClassifier(), {"y": y, "sensitive_features": groups}, X=X)
    with pytest.raises(ValueError, match="sensitive_features has the samples of X in another"):
        given(RateConstrainedClassifier(), {"sensitive_features": {"sex": groups}})


def test_equal_orders_say_nothing_and_shared_labels_at_other_positions_are_a_warning():
    """Rows of a split have their labels out of order, alike in all inputs or reset in one."""
    rows = ORDER[:300]
    columns = {name: pd.Series(column).iloc[rows] for name, column in INPUTS.items()}
    split = given(RateConstrainedClassifier(), columns, X=FRAME.iloc[rows])
    columns["sensitive_features"] = columns["sensitive_features"].reset_index(drop=True)
    ways_out = r"give sensitive_features.loc\[X.index\]; .* after reset_index .*to_numpy\(\)"
    with pytest.warns(InputWarning, match=ways_out):
        reset = given(RateConstrainedClassifier(), columns, X=FRAME.iloc[rows])
    np.testing.assert_array_equal(split.coef_, reset.coef_)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pd.RangeIndex(200), pd.RangeIndex(100, 300)),
        (pd.Index([0, 1, 2]), pd.Index(["2", "0", "1"])),
        (pd.Index(["a", "b", "b", "c"]), pd.Index(["a", "a", "b", "d"])),
        (
            pd.MultiIndex.from_tuples([(0, "a"), (1, "b")]),
            pd.MultiIndex.from_tuples([(1, "b"), (2, "c")]),
        ),
    ],
)
def test_indices_that_share_labels_at_other_positions(first, second):
    inputs = {"y": pd.Series(0, first), "s": pd.Series(0, second)}
    with pytest.warns(InputWarning, match=r"s and y are matched by position, .* s.loc\[y.index\]"):
        check_samples(**inputs)
    check_samples(y=inputs["y"], s=inputs["s"].to_numpy())
    check_samples(y=inputs["y"], s=pd.Series(0, first.astype(object)))


@pytest.mark.parametrize(
    "second", [pd.RangeIndex(3, 6), pd.Index(["0", "1", "2"]), [0.0, 1.0, 2.0]]
)
def test_equal_labels_in_one_order_and_others_are_no_warning(second):
    check_samples(y=pd.Series(0, range(3)), s=pd.Series(0, second))


def test_prediction_and_streams_and_splits_look_too():
    clf = given(PartialParityClassifier(group_features=True), {})
    moved = {"sensitive_features": pd.Series(GROUP).iloc[ORDER]}
    for refused in (
        lambda: clf.predict(FRAME, **moved),
        lambda: given(AUCFairClassifier(), moved, method="partial_fit"),
        lambda: CertifiedClassifier(RateConstrainedClassifier()).fit(FRAME, Y, **moved),
        lambda: PrivateGridSearch(RateConstrainedClassifier(epsilon=1.0), {}).fit(
            FRAME, Y, **moved
        ),
        lambda: next(StratifiedSensitiveKFold().split(FRAME, Y, **moved)),
    ):
        with pytest.raises(ValueError, match="sensitive_features has the samples of X in another"):
            refused()


@pytest.mark.parametrize(("kind", "name"), list(zip(ESTIMATORS, ["X", *INPUTS, "X"], strict=True)))
def test_masks_are_refused(kind, name):
    """Numpy's functions differ in whether they see a mask; ours read the data below it."""
    values = {"X": X, **INPUTS}[name]
    masked = np.ma.masked_array(values, mask=np.arange(values.size).reshape(values.shape) % 7 == 0)
    with pytest.raises(ValueError, match=f"{name} has masked values"):
        given(kind(), {name: masked}) if name != "X" else given(kind(), {}, X=masked)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_too_many_positional_arguments_are_answered_in_the_users_words(kind):
    expected = rf"{kind.__name__}\.fit takes X, y by position; got 3 .*sensitive_features=groups"
    with pytest.raises(TypeError, match=expected):
        kind().fit(X, Y, GROUP)
    with pytest.raises(TypeError, match=r"AUCFairClassifier\.partial_fit takes X, y, classes by"):
        AUCFairClassifier().partial_fit(X, Y, [0, 1], GROUP)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_handful_of_samples_can_be_fitted(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # groups left out, or a slack exceeded by one sample
        clf = kind(random_state=0).fit(X[:4], [0, 1, 0, 1], sensitive_features=[0, 0, 1, 1])
    assert np.isfinite(clf.coef_).all()
