"""The default network beside the linear model."""

from __future__ import annotations

import pandas as pd

from benchmarks.evidence.aggregates.cells import Cells, name, summary, table


@table("networks", "networks")
def _networks(runs: pd.DataFrame) -> Cells:
    measures = {"error": "test_error", "gap": "test_violation"}
    runs = runs.assign(free=runs["slack"] >= 1).sort_values(["dataset", "free"], ascending=[1, 0])
    for (data, free, slack), of in runs.groupby(["dataset", "free", "slack"], sort=False):
        row = name(data, "no constraint" if free else f"slack {slack}")
        for words, measure in measures.items():
            for method, own in of.groupby("method"):
                yield row, f"{method}, {words}", *summary(own[measure])
        pair = of.pivot(index="seed", columns="method", values="test_error")
        yield row, "network less linear, error", *summary(pair["network"] - pair["linear"], "+.4f")
        yield row, "splits", str(len(pair)), ""
