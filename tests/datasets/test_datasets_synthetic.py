"""The generator obeys the model it documents; one-hot tables keep what they encode."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from fairconstrained.datasets import make_biased_classification, make_loan_applications
from fairconstrained.datasets.loading import one_hot


def gaps(**parameters):
    """Demographic parity and equalized odds gaps of an unconstrained fit, worst over classes."""
    X, y, s, _ = make_biased_classification(15_000, random_state=0, **parameters).values()
    predicted = LogisticRegression().fit(X, y).predict(X)

    def spread(rows):
        rates = [
            [np.mean(predicted[rows & (s == group)] == label) for label in np.unique(y)]
            for group in np.unique(s)
        ]
        return np.ptp(rates, axis=0).max()

    return spread(s >= 0), max(spread(y == label) for label in np.unique(y))


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"n_groups": 4, "imbalance": 0.3},
        {"n_classes": 3},
        {"weights": [0.8, 0.2], "label_noise": 0.1},
        {"n_features": 60, "density": 0.1},
    ],
)
def test_gaps_of_an_unconstrained_classifier_grow_with_bias(parameters):
    found = np.array([gaps(bias=bias, **parameters) for bias in (0.0, 0.5, 1.0)])
    assert (found[0] < 0.07).all()
    assert (np.diff(found, axis=0) > 0.06).all()


@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_labels_follow_the_documented_logistic_model(bias):
    """Log-odds: class_sep <w, x> + 2 bias a_g, nothing from proxies and noise; |w| = 1."""
    params = {"n_groups": 3, "bias": bias, "class_sep": 1.5}
    X, y, s, names = make_biased_classification(100_000, **params, random_state=1).values()
    standing = np.array([1, 0, -1])[s]
    slopes = LogisticRegression(C=1e6).fit(np.column_stack([X, standing]), y).coef_[0]
    kinds = [name.split("_")[0] for name in names]
    assert kinds == ["informative"] * 4 + ["proxy"] * 2 + ["noise"] * 4
    assert np.linalg.norm(slopes[:4]) == pytest.approx(1.5, abs=0.05)
    np.testing.assert_allclose(slopes[4:10], 0, atol=0.05)
    assert slopes[10] == pytest.approx(2 * bias, abs=0.08)


@settings(max_examples=20)
@given(
    n_samples=st.integers(200, 400),
    n_groups=st.integers(2, 6),
    n_classes=st.integers(2, 5),
    imbalance=st.floats(0, 0.5),
    seed=st.integers(0, 100),
)
def test_sizes_of_groups_and_classes(n_samples, n_groups, n_classes, imbalance, seed):
    shape, params = (n_samples, 7, n_groups, n_classes), {"imbalance": imbalance}
    data = make_biased_classification(*shape, **params, random_state=seed)
    share = (1 - imbalance) ** np.arange(n_groups)
    sizes = np.bincount(data.sensitive_features, minlength=n_groups)
    assert (abs(sizes - n_samples * share / share.sum()) < 1).all()
    assert (abs(np.bincount(data.target, minlength=n_classes) - n_samples / n_classes) <= 1).all()
    assert data.data.shape == (n_samples, 7)
    assert data.target.dtype == data.sensitive_features.dtype == np.int64


@pytest.mark.parametrize("density", [1.0, 0.2])
def test_the_same_random_state_gives_the_same_data(density):
    def draw(random_state):
        data = make_biased_classification(50, density=density, random_state=random_state)
        X = data.data.toarray() if density < 1 else data.data
        return np.column_stack([X, data.target, data.sensitive_features])

    np.testing.assert_array_equal(draw(3), draw(3))
    np.testing.assert_array_equal(draw(3), draw(np.random.RandomState(3)))
    assert not np.array_equal(draw(3), draw(4))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_label_noise_is_the_share_of_replaced_labels(n_classes):
    draw = partial(make_biased_classification, 20_000, n_classes=n_classes, random_state=0)
    clean, noisy, replaced = (draw(label_noise=noise).target for noise in (0.0, 0.3, 1.0))
    assert np.mean(clean != noisy) == pytest.approx(0.3, abs=0.02)
    assert (clean != replaced).all()


def test_density_is_that_of_the_noise_features():
    X = make_biased_classification(2000, 1006, density=0.01, random_state=0).data
    assert X.format == "csr"
    assert X[:, :6].nnz == 6 * 2000
    assert X[:, 6:].nnz == 0.01 * 1000 * 2000


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_samples": 10.5}, r"'n_samples' parameter .* int in the range \[1, inf\). Got 10.5"),
        ({"n_groups": 1}, r"'n_groups' parameter .* int in the range \[2, inf\). Got 1"),
        ({"n_features": 3}, "n_features is 3, but should be at least .* 4 . 2"),
        ({"n_informative": 0}, r"'n_informative' parameter .* range \[1, inf\). Got 0"),
        ({"n_proxies": -1}, r"'n_proxies' parameter .* range \[0, inf\). Got -1"),
        ({"bias": -0.1}, r"'bias' parameter .* float in the range \[0.0, inf\). Got -0.1"),
        ({"bias": np.nan}, "'bias' parameter .* Got nan"),
        ({"class_sep": np.inf}, "'class_sep' parameter .* Got inf"),
        ({"proxy_strength": "big"}, "'proxy_strength' parameter .* Got 'big'"),
        ({"imbalance": 1.0}, r"'imbalance' parameter .* range \[0.0, 1.0\). Got 1.0"),
        ({"label_noise": 1.5}, r"'label_noise' parameter .* range \[0.0, 1.0\]. Got 1.5"),
        ({"density": 0.0}, r"'density' parameter .* range \(0.0, 1.0\]. Got 0.0"),
        ({"weights": [0.5, 0.6]}, "weights is .0.5, 0.6., but should be n_classes=2"),
        ({"weights": [0.5, np.nan]}, "weights is"),
        ({"n_samples": 20, "n_groups": 5, "imbalance": 0.9}, "group 2 without rows"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        make_biased_classification(**parameters)


@pytest.mark.parametrize("parameters", [{"bias": np.inf}, {"missing": 1.0}, {"missing": np.nan}])
def test_bad_parameters_of_applications_are_named(parameters):
    ((name, value),) = parameters.items()
    with pytest.raises(ValueError, match=f"'{name}' parameter of .* Got {value}"):
        make_loan_applications(**parameters)


COLUMNS = {
    "kind": st.sampled_from(["a", "b", "c"]),
    "code": st.sampled_from([1.0, 2.0]),
    "flag": st.sampled_from([0, 1]),
    "size": st.floats(-10, 10),
}


@given(st.lists(st.tuples(*COLUMNS.values()), min_size=1, max_size=30))
@example([("a", 1.0, 0, 0.0), ("a", 1.0, 0, 2e-313)])
def test_one_hot_columns(rows):
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    X, names = one_hot(frame, categorical=["code"])
    X = pd.DataFrame(X.toarray() if sparse.issparse(X) else X, columns=names)
    for name, text in (("kind", str), ("code", "{:g}".format)):
        indicators = X[[column for column in names if column.startswith(f"{name}=")]]
        assert set(np.unique(indicators)) <= {0.0, 1.0}
        assert (indicators.sum(axis=1) == 1).all()
        assert list(indicators.idxmax(axis=1)) == [f"{name}={text(v)}" for v in frame[name]]
    assert (X["flag"] == frame["flag"]).all()
    if not frame["size"].isin([0, 1]).all():
        spread = np.ptp(frame["size"])
        assert X["size"].mean() == pytest.approx(0, abs=1e-6)
        if spread > 1e-6:
            assert X["size"].std(ddof=0) == pytest.approx(1)
            assert np.corrcoef(X["size"], frame["size"])[0, 1] == pytest.approx(1)
        if spread == 0:
            assert (X["size"] == 0).all()


@pytest.mark.parametrize("column", [[1.0, np.nan], ["a", None], [1.0, np.inf]])
def test_one_hot_refuses_missing_values(column):
    with pytest.raises(ValueError, match=r"missing or infinite values in \['bad'\]"):
        one_hot(pd.DataFrame({"good": [1, 2], "bad": column}))
