"""Errors at equal violation, from the table of runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fairconstrained.model_selection import pareto_front


def error_at(violation: ArrayLike, error: ArrayLike, at: ArrayLike) -> NDArray[np.float64]:
    """Return the error on the frontier of the points at given violations.

    Linear between the points that no other point beats; beyond the largest violation the error of
    that point, which is allowed there too; nan below the smallest.
    """
    violation, error, at = (np.asarray(v, dtype=float) for v in (violation, error, at))
    front = pareto_front(error, violation)
    order = np.argsort(violation[front], kind="stable")
    return np.interp(at, violation[front][order], error[front][order], left=np.nan)


def differences(
    runs: pd.DataFrame, method: str, peer: str, baseline: str = "unconstrained"
) -> Iterator[dict[str, float]]:
    """Give the error of `method` minus a peer's at each violation that the peer reached.

    The frontier of `method` is that of its slacks in one seed, and the unconstrained model, which
    a large slack would give.
    """
    for seed, of_seed in runs.groupby("seed"):
        ours = of_seed[of_seed["method"].isin((method, baseline))]
        peers = of_seed[of_seed["method"] == peer]
        if not (ours["method"] == method).any():
            continue
        at = {
            part: error_at(
                ours[f"{part}_violation"], ours[f"{part}_error"], peers[f"{part}_violation"]
            )
            - peers[f"{part}_error"].to_numpy()
            for part in ("train", "test")
        }
        for train, test in zip(at["train"], at["test"], strict=True):
            yield {"seed": seed, "train": train, "test": test}
