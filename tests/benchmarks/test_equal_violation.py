"""Comparisons of boosted trees with others: at equal violation, on the splits that both have."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.equal_violation import CASE, MEASURED, advantage_kept, at_equal_violation

OURS, PEER = "trees, constrained", "linear, constrained"


def runs(*rows):
    """A table of runs from (seed, method, slack, test error, test violation)."""
    table = pd.DataFrame(rows, columns=["seed", "method", "slack", "test_error", "test_violation"])
    constants = dict(zip(CASE, ("adult", False, "demographic_parity"), strict=True))
    return table.assign(**constants, **dict.fromkeys(set(MEASURED) - set(table), 0.0))


def free(seed, trees, linear):
    return (
        (seed, "trees, unconstrained", np.nan, trees, 0.20),
        (seed, "linear, unconstrained", np.nan, linear, 0.20),
    )


def test_errors_are_compared_at_the_violation_of_the_peer():
    """Ours is .14 at .02 and .12 at .06, hence .13 at .04, where the peer is .15."""
    table = runs(
        (0, OURS, 0.02, 0.14, 0.02), (0, OURS, 0.05, 0.12, 0.06), (0, PEER, 0.05, 0.15, 0.04)
    )
    (row,) = at_equal_violation(table).to_dict("records")
    assert row["peer"] == PEER
    assert (row["mean"], row["compared"], row["splits"]) == ("-0.0200", 1, 1)


def test_a_split_that_the_peer_lacks_is_not_compared():
    """On split 1, which only we have run, we would be much worse."""
    both = [(0, OURS, 0.05, 0.12, 0.04), (0, PEER, 0.05, 0.15, 0.04)]
    (row,) = at_equal_violation(runs(*both, (1, OURS, 0.05, 0.50, 0.04))).to_dict("records")
    assert (row["mean"], row["splits"]) == ("-0.0300", 1)


@pytest.mark.parametrize(("linear", "kept"), [(0.16, "0.50"), (0.12, "")])
def test_the_advantage_that_is_kept(linear, kept):
    """Trees are better by .04 without constraint, by .02 with it; else there is nothing to keep."""
    table = runs((0, OURS, 0.05, 0.14, 0.05), (0, PEER, 0.05, 0.16, 0.05), *free(0, 0.12, linear))
    (row,) = advantage_kept(table).to_dict("records")
    assert (row["constrained"], row["kept"]) == ("+0.0200", kept)
