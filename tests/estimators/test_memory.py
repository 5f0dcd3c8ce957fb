"""Memory of a fit and of predictions on many rows, in processes of their own."""

import numpy as np
import pytest

from benchmarks.scaling import apart, generate, measure
from tests.helpers.fits import fitted, same_model, table


@pytest.mark.slow
def test_a_table_of_single_precision_is_not_copied(tmp_path):
    """Beyond 500,000 float32 rows a fit needs a few vectors, and predictions only the labels."""
    generate("mapped20", 500_000, 0, tmp_path)
    for predicts, most in ((False, 2.5), (True, 0.5)):
        found = apart(measure, "mapped20", tmp_path, predicts)
        beyond = found["peak_mb"] - found["loaded_mb"] - found["data_mb"]
        assert beyond / found["data_mb"] < most


def test_single_precision_gives_the_model_of_the_same_numbers():
    """The arithmetic is in double precision whatever the table."""
    X, y, group = table()
    single = X.astype(np.float32)
    same_model(
        fitted(data=(single, y, group)), fitted(data=(single.astype(float), y, group)), rtol=1e-8
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_blocks_of_rows_give_the_model_of_all_rows(monkeypatch, n_classes):
    data = table(n_classes)
    whole = fitted("equalized_odds", data, slack=0.15)
    for module in ("problems.erm", "constraints.statistics"):
        monkeypatch.setattr(f"fairconstrained.{module}.BLOCK_ROWS", 64)
    monkeypatch.setattr("fairconstrained.estimators._predictions.BLOCK_ROWS", 7)
    blocks = fitted("equalized_odds", data, slack=0.15)
    same_model(blocks, whole)
    np.testing.assert_array_equal(blocks.predict(data[0]), whole.predict(data[0]))
    np.testing.assert_allclose(blocks.predict_proba(data[0]), whole.predict_proba(data[0]))
