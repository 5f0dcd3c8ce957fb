"""Sparse and dense features are the same matrix to every caller, and numpy's matrix."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fairconstrained.models.features import DenseFeatures, SparseFeatures, as_features


def matrix(seed=0, n=40, d=6, density=0.6):
    rng = np.random.default_rng(seed)
    return rng.normal(loc=1.0, size=(n, d)) * (rng.random((n, d)) < density)


X = matrix()
CENTRE = torch.as_tensor(np.random.default_rng(2).normal(size=X.shape[1]))
both = pytest.mark.parametrize(
    "wrapped",
    [DenseFeatures(torch.as_tensor(X)), SparseFeatures(sp.csr_array(X))],
    ids=["dense", "sparse"],
)


@both
@pytest.mark.parametrize("full", [False, True], ids=["diagonal", "triangular"])
def test_norms_that_are_known_are_those_of_the_rows_and_of_no_other_coordinates(wrapped, full):
    """Clips rest on them: rows pass them on, and other coordinates are worked out anew."""
    rng = np.random.default_rng(4)
    transforms = [
        torch.as_tensor(
            rng.normal(size=(len(CENTRE),) * 2) if full else rng.normal(size=len(CENTRE))
        )
        for _ in range(2)
    ]
    index = torch.tensor([5, 0, 5, 39])
    known = wrapped.with_norms(CENTRE, transforms[0])
    for transform in transforms:
        t = transform.numpy() if full else np.diag(transform.numpy())
        for chosen, rows in ((known, X), (known.rows(index), X[index]), (wrapped, X)):
            expected = ((rows - CENTRE.numpy()) @ t) ** 2
            found = chosen.square_norms(CENTRE, transform).numpy()
            np.testing.assert_allclose(found, expected.sum(axis=1))
    centre = CENTRE + 1.0
    expected = wrapped.square_norms(centre, transforms[0])
    torch.testing.assert_close(known.square_norms(centre, transforms[0]), expected)


def test_a_constant_column_has_no_negative_variance():
    """Sparse moments subtract squares of means, which rounding could make negative."""
    ones = torch.ones(9, dtype=torch.float64)
    for value in (0.1, 0.3, 1e3 / 7):
        constant = SparseFeatures(sp.csr_array(np.full((9, 1), value)))
        variance = constant.variance(ones, constant.mean(ones)).item()
        assert 0 <= variance <= 1e-15 * value**2


def test_another_device_gets_dense_tensors_and_refuses_sparse_matrices():
    wrapped = as_features(matrix(density=0.1, n=400), "meta")
    assert isinstance(wrapped, DenseFeatures)
    assert wrapped.X.device.type == "meta"
    for container in (sp.csr_matrix, sp.csr_array):
        with pytest.raises(ValueError, match="device='cpu'; got device='meta'"):
            as_features(container(X), "meta")
