"""Equal mean losses of networks."""

from __future__ import annotations

import pandas as pd

from benchmarks.evidence.aggregates.cells import Cells, means, table


@table("loss_parity_again", "loss_parity")
def _loss_parity_again(runs: pd.DataFrame) -> Cells:
    measures = {
        "train_gap": "training gap",
        "train_Ina": "training error",
        "test_Ina": "test error",
    }
    names = {"LossParityClassifier": "default (`EarlyStoppedSGDA`)", "SGDA": "`SGDA`"}
    runs = runs[runs["method"].isin(names)]
    for method, of in runs.groupby("method"):
        yield from means(of, names[method], measures)


@table("loss_parity", "loss_parity")
def _loss_parity(runs: pd.DataFrame) -> Cells:
    measures = {
        "train_gap": "training gap",
        "train_Ina": "training error",
        "test_gap": "test gap",
        "test_Ina": "test error",
        "test_Ind": "test independence gap",
        "test_Sp": "test separation gap",
        "test_Sf": "test sufficiency gap",
    }
    for method, of in runs[runs["method"] != "LossParityClassifier"].groupby("method", sort=False):
        yield from means(of, method.replace("SSw", "switching"), measures)


@table("loss_parity_published", "published")
def _loss_parity_published(points: pd.DataFrame) -> Cells:
    for _, point in points.iterrows():
        std = "" if pd.isna(point["std"]) else f"{point['std']:.4f}"
        yield point["method"], "published test error", f"{point['error']:.4f}", std
