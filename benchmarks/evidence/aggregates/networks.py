"""The default network beside the linear model."""

from __future__ import annotations

import pandas as pd

from benchmarks.evidence.aggregates.cells import Cells, name, summary, table


@table("networks", "networks")
def _networks(runs: pd.DataFrame) -> Cells:
    measures = {"error": "test_error", "gap": "test_violation"}
    runs = (
        runs[runs["method"].isin(["linear", "network"])]
        .assign(free=lambda of: of["slack"] >= 1)
        .sort_values(["dataset", "free"], ascending=[1, 0])
    )
    for (data, free, slack), of in runs.groupby(["dataset", "free", "slack"], sort=False):
        row = name(data, "no constraint" if free else f"slack {slack}")
        pair = of.pivot(index="seed", columns="method", values="test_error").dropna()
        for words, measure in measures.items():
            for method, own in of[of["seed"].isin(pair.index)].groupby("method"):
                yield row, f"{method}, {words}", *summary(own[measure])
        yield row, "network less linear, error", *summary(pair["network"] - pair["linear"], "+.4f")
        yield row, "splits", str(len(pair)), ""
