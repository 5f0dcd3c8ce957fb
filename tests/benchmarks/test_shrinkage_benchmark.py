"""The benchmark of shrunken rates estimates the true gaps of groups without bias."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.evidence.aggregates import AGGREGATES
from benchmarks.shrinkage import LEAST, gaps, measured


@pytest.mark.slow
def test_squared_gaps_have_no_bias_and_small_groups_do_not_count():
    rng, true, size = np.random.default_rng(0), np.array([0.2, 0.3, 0.4]), [50, 80, 120]
    group = np.repeat([0, 1, 2, 3], [*size, LEAST - 1])
    chance, found = np.append(true, 1.0)[group], []
    for _ in range(300):
        total, pairs, largest = gaps(rng.random(len(group)) < chance, group)
        found.append(total / pairs)
        assert pairs == 3
        assert largest < 1
    assert np.mean(found) == pytest.approx((0.1**2 + 0.1**2 + 0.2**2) / 3, abs=4e-3)


def test_odds_are_within_labels():
    group = np.repeat([0, 1], 200)
    y = np.tile([0, 1], 200)
    found = measured("equalized_odds", y, np.where(group == 0, y, 1 - y), group)
    assert found == {"error": 0.5, "squared": 1.0, "largest": 1.0}
    assert measured("demographic_parity", y, y, group)["largest"] == 0.0


def test_tables_compare_at_the_same_slack_and_on_lines_at_the_same_error():
    key = {"data": "adult", "groups": "race", "criterion": "demographic_parity", "seed": 0}
    fits = [("none", 1.0, 0.10, 0.3), ("measured", 0.05, 0.14, 0.1), ("shrunken", 0.05, 0.12, 0.15)]
    runs = [
        {**key, "way": way, "slack": slack, "error": error, "squared": gap**2}
        for way, slack, error, gap in fits
    ]
    found = AGGREGATES["shrinkage_compared"].table(pd.DataFrame(runs)).set_index("column")["value"]
    assert found["error"] == "-0.0200"
    assert found["true gap"] == "+0.050"
    assert found["true gap at equal error"] == "-0.050"  # half way between .3 and .1
