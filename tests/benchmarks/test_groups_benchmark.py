"""The benchmark of hidden groups hides as it says, and its truth is that of its population."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from benchmarks.groups import Sample, _hidden, gap
from fairconstrained.metrics import demographic_parity_difference


def test_the_gap_is_that_of_a_large_sample():
    rows = Sample.drawn(0.3, 400_000, np.random.default_rng(0))
    given = {"sensitive_features": rows.group}
    found = demographic_parity_difference(rows.y, rows.predicted, **given)
    assert found == pytest.approx(gap(0.3), abs=0.005)
    assert gap(0.0) == pytest.approx(0.0, abs=1e-12)
    assert roc_auc_score(rows.group, rows.p) == pytest.approx(0.8, abs=0.02)


def test_rows_are_hidden_by_what_is_named():
    rng, of = np.random.default_rng(0), np.arange(100_000) % 4 == 0
    for fraction in (0.5, 0.9):
        hidden = _hidden(fraction, of, rng, len(of))
        assert hidden.mean() == pytest.approx(fraction, abs=0.03)
        odds = [own.mean() / (1.0 - own.mean()) for own in (hidden[of], hidden[~of])]
        assert odds[0] / odds[1] == pytest.approx(np.exp(2.0), rel=0.1)
