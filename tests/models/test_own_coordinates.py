"""Linear models on rows in their own coordinates: the same function, gradients and clips."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fairconstrained.models import features
from fairconstrained.models.features import as_features
from fairconstrained.models.linear import LinearModel, OwnCoordinates, with_sums

N, D = 40, 5
DRAWS = torch.Generator().manual_seed(0)
X = (
    torch.randn((N, D), generator=DRAWS, dtype=torch.float64)
    * torch.rand(D, generator=DRAWS).double()
)
X[X.abs() < 0.2] = 0.0
CENTRE = torch.linspace(-1.0, 1.0, D, dtype=torch.float64)
TRANSFORMS = {
    "diagonal": torch.linspace(0.5, 2.0, D, dtype=torch.float64),
    "full": torch.triu(torch.randn((D, D), generator=DRAWS, dtype=torch.float64)),
}


def draw(*shape):
    return torch.randn(shape, generator=DRAWS, dtype=torch.float64)


@pytest.mark.parametrize("scale", [None, torch.linspace(0.1, 3.0, D, dtype=torch.float64)])
@pytest.mark.parametrize("transform", list(TRANSFORMS))
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_the_prepared_model_is_the_same_function(scale, transform, n_outputs, fit_intercept, wrap):
    centre = CENTRE if fit_intercept else torch.zeros_like(CENTRE)  # as all models are built
    given_model = LinearModel(n_outputs, centre, TRANSFORMS[transform], fit_intercept, scale)
    given_rows = as_features(wrap(X.numpy()))
    model, rows = given_model.prepared(given_rows)
    assert (type(model) is OwnCoordinates) == (wrap is sp.csr_array)
    assert model.n_params == given_model.n_params
    assert torch.equal(model.offsets, given_model.offsets)
    w, cotangent = draw(model.n_params), draw(N, n_outputs)
    index = torch.tensor([3, 3, 0, 17])
    for own, other in ((rows, given_rows), (rows.rows(index), given_rows.rows(index))):
        c = cotangent[: own.shape[0]]
        torch.testing.assert_close(model.scores(w, own), given_model.scores(w, other))
        scores, clipped = model.linearize_rows(w, own)
        expected, reference = given_model.linearize_rows(w, other)
        torch.testing.assert_close(scores, expected)
        for bound in (1e-2, 0.7, 1e6):
            torch.testing.assert_close(clipped(c, bound), reference(c, bound))
    ours, theirs = model.penalty(w), given_model.penalty(w)
    torch.testing.assert_close(ours.gradient, theirs.gradient)
    torch.testing.assert_close(ours.value, theirs.value)
    restored = model.restore(model.attributes(w))
    torch.testing.assert_close(restored, w)


RUN = torch.tensor([0, -1, 0, 1, 1])
SUMS = np.array([[1, 0, 1, 0, 0], [0, 0, 0, 1, 1]]).T  # of the columns of each run


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("small", [True, False], ids=["a copy is dense", "too large for a copy"])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_a_model_with_sums_is_that_of_a_table_with_their_columns(
    n_outputs, small, wrap, monkeypatch
):
    """Scores, clipped gradients and coefficients, with stored norms and without."""
    if not small:
        monkeypatch.setattr(features, "_SMALL_NUMBERS", 0)
    factors = TRANSFORMS["diagonal"]
    scaled = (X - CENTRE) * factors
    wide = as_features(torch.cat((scaled, scaled @ torch.tensor(SUMS).double()), dim=1).numpy())
    none, one = torch.zeros(D + 2).double(), torch.ones(D + 2).double()
    reference = LinearModel(n_outputs, none, one, True)
    given_model = LinearModel(n_outputs, CENTRE, with_sums(factors, RUN), True)
    rows = as_features(wrap(X.numpy()))
    w, c = draw(reference.n_params), draw(N, n_outputs)
    assert given_model.n_params == len(w)
    index = torch.tensor([3, 3, 0, 17])
    for model, own in ((given_model, rows), given_model.prepared(rows)):
        scores, clipped = model.linearize_rows(w, own)
        expected, of_wide = reference.linearize_rows(w, wide)
        torch.testing.assert_close(scores, expected)
        _, of_batch = model.linearize_rows(w, own.rows(index))
        _, of_wide_batch = reference.linearize_rows(w, wide.rows(index))
        for bound in (1e-2, 0.7, 1e6):
            torch.testing.assert_close(clipped(c, bound), of_wide(c, bound))
            torch.testing.assert_close(of_batch(c[:4], bound), of_wide_batch(c[:4], bound))
        told = model.attributes(w)
        of_columns = X.numpy() @ told["coef_"].T + told["intercept_"]
        np.testing.assert_allclose(of_columns, expected.numpy())
        assert torch.equal(model.offsets, reference.offsets)


@pytest.mark.parametrize("entry", [1e160, 1e300, -1e308])
@pytest.mark.parametrize("transform", list(TRANSFORMS))
def test_a_row_too_long_for_its_length_gives_nothing_and_spoils_nothing(entry, transform):
    huge = X.clone()
    huge[0, 0] = entry
    model, rows = LinearModel(1, CENTRE, 1e3 * TRANSFORMS[transform], True).prepared(
        as_features(sp.csr_array(huge.numpy()))
    )
    cotangent = draw(N, 1)
    _, clipped = model.linearize_rows(draw(model.n_params), rows)
    _, without = model.linearize_rows(draw(model.n_params), rows.rows(torch.arange(1, N)))
    torch.testing.assert_close(clipped(cotangent, 1.0), without(cotangent[1:], 1.0))
