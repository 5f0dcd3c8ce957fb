"""The benchmark of draws knows the violations of its population."""

import warnings

import numpy as np
import pytest

from benchmarks.certificate_draws import cases, drawn, wrong
from fairconstrained.metrics import certify


@pytest.mark.parametrize("name", ["ratio, equal opportunity", "declared fractions, cap"])
def test_the_violation_is_that_of_many_rows(name):
    case, rows = cases()[name], drawn(20_000, np.random.default_rng(0))
    given = {"sensitive_features": rows["sex"], "slack": 0.5, **case.given(rows)}
    found = certify(
        y_true=rows["label"], y_pred=rows["decision"], constraint=case.constraint, **given
    )
    assert found.estimate == pytest.approx(case.truth, abs=0.03)


def test_draws_in_parts_are_the_same_draws():
    case = cases()["declared fractions, cap"]._replace(truth=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = [wrong(case, 60, first, 20)["wrong"] for first in (0, 20)]
        assert wrong(case, 60, 0, 40)["wrong"] == sum(parts) > 0
