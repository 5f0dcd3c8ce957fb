"""Equal mean losses of networks."""

from __future__ import annotations

import pandas as pd

from benchmarks.evidence.aggregates.cells import Cells, summary, table


@table("loss_parity_again", "loss_parity")
def _loss_parity_again(runs: pd.DataFrame) -> Cells:
    measures = {
        "train_gap": "training gap",
        "train_Ina": "training error",
        "test_Ina": "test error",
    }
    names = {"LossParityClassifier": "default (`EarlyStoppedSGDA`)", "SGDA": "`SGDA`"}
    for measure, words in measures.items():
        for method, of in runs.groupby("method"):
            yield names[method], words, *summary(of[measure])


@table("loss_parity_published", "published")
def _loss_parity_published(points: pd.DataFrame) -> Cells:
    for _, point in points.iterrows():
        std = "" if pd.isna(point["std"]) else f"{point['std']:.4f}"
        yield point["method"], "published test error", f"{point['error']:.4f}", std
