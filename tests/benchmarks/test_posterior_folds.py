"""The report on folds: differences within a split, which other splits do not enter."""

import pandas as pd

from benchmarks.posterior_folds import FOLDS, KEY, MEASURED, report


def test_folds_are_compared_within_splits_that_have_all():
    """Two folds are worse than five by .1 and by .3 on two splits; a third split lacks five."""
    worse = {("compas", 0): 0.1, ("bank", 0): 0.3}
    rows = [
        (*split, folds, "demographic_parity", 0.05, *[extra * (folds == 2)] * len(MEASURED))
        for split, extra in worse.items()
        for folds in FOLDS
    ]
    rows.append(("compas", 1, 2, "demographic_parity", 0.05, *[9.0] * len(MEASURED)))
    table = report(pd.DataFrame(rows, columns=[*KEY, *MEASURED]))
    assert "| 2 instead of 5 | error | 2 | +0.2000 | 0.1000 |" in table
    assert "| 3 instead of 5 | error | 2 | +0.0000 | 0.0000 |" in table
