"""The report on folds: differences within a split, which other splits do not enter."""

from itertools import product

import pandas as pd

from benchmarks.posterior_folds import CASE, FOLDS, KEY, MEASURED, WAYS, differences


def test_folds_are_compared_within_splits_that_have_all():
    """Two folds are worse than before by .1 and by .3 on two splits; a third split lacks runs."""
    worse = {("compas", 0): 0.1, ("bank", 0): 0.3}
    common = {"classifier": "forest", "without_group": True, "notion": "parity", "slack": 0.05}
    rows = [
        {**common, "dataset": dataset, "seed": seed, "folds": folds, "new_rows": way}
        | dict.fromkeys(MEASURED, 1.0 + extra * (folds == 2))
        for ((dataset, seed), extra), folds, way in product(worse.items(), FOLDS, WAYS)
    ]
    lone = {**common, "dataset": "compas", "seed": 1, "folds": 2, "new_rows": "mean"}
    rows.append(lone | dict.fromkeys(MEASURED, 9.0))
    table = pd.DataFrame(rows)[[*KEY, *MEASURED]]
    found = differences(table, CASE[:1]).set_index(["folds", "new rows"])
    assert found["splits"].eq(2).all()
    assert found.loc[(2, "mean"), "error"] == "+0.2000 ± 0.1000"
    assert found.loc[(2, "mean"), "cpu, ratio"] == "+1.2000 ± 0.1000"
    assert found.loc[(3, "refit"), "error"] == "+0.0000 ± 0.0000"
