"""Rankings: AUC under bounds on gaps of AUCs."""

from __future__ import annotations

import pandas as pd

from benchmarks import frontier
from benchmarks.evidence.aggregates.cells import Cells, name, number, summary, table
from benchmarks.objectives.auc_fair import (
    FREE,
    NETWORK,
    ONLINE,
    OURS,
    OURS_WITH_GROUPS,
    PROXY,
    RESCALED,
    TEST_TOLERANCE,
    WITH_MARGIN,
)

_PEERS = {
    "quadratic surrogate, exact": "paper's surrogate, exact",
    "correlation penalty": "correlation penalty",
    "fairconstrained, log loss": "log loss",
    PROXY: PROXY,
}
_CASE = ["dataset", "constraint"]
_WITHOUT_MARGIN = {OURS: "0", WITH_MARGIN: "1"}


def _of_narrow_slacks(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs without and with a margin, at the slacks that both have, and the excess of each gap."""
    with_margin = runs[runs["method"] == WITH_MARGIN]
    keys = ["dataset", "constraint", "slack"]
    both = runs[keys].isin(with_margin[keys].to_dict("list")).all(axis=1)
    chosen = runs[both & runs["method"].isin(_WITHOUT_MARGIN)]
    excess = chosen["test_violation"] - chosen["slack"]
    return chosen.assign(excess=excess.clip(lower=0.0), within=excess <= TEST_TOLERANCE)


@table("ranking_slacks_kept", "auc_fair")
def _ranking_slacks_kept(runs: pd.DataFrame) -> Cells:
    ours = runs[runs["method"] == OURS]
    excess = ours["train_violation"] - ours["slack"]
    for data, of in excess.groupby(ours["dataset"]):
        yield name(data), "fits", str(len(of)), ""
        yield name(data), "largest excess over the slack", *number(max(of.max(), 0.0))


@table("ranking_default", "auc_fair")
def _ranking_default(runs: pd.DataFrame) -> Cells:
    runs = runs[(runs["method"] == OURS) & (runs["slack"] == 0.01)]
    for data, of_data in runs.assign(auc=1 - runs["test_error"]).groupby("dataset"):
        for measure, words in (("auc", "test AUC"), ("test_violation", "test gap")):
            for notion, of in of_data.groupby("constraint"):
                yield name(data, words), name(notion), *summary(of[measure])


def _differences(runs: pd.DataFrame, ours: str, peer: str, row: str, column: str) -> Cells:
    """Give our error minus a peer's at the peer's gaps, on training and test rows."""
    found = pd.DataFrame(frontier.differences(runs, ours, peer, FREE))
    for part in ("train", "test") if len(found) else ():
        means = found.groupby("seed")[part].mean().dropna()
        if len(means):
            yield f"{row} / {name(part)}", column, *summary(means, "+.4f")


@table("ranking_baselines", "auc_fair")
def _ranking_baselines(runs: pd.DataFrame) -> Cells:
    for case, of in runs.groupby(_CASE):
        for peer, words in _PEERS.items():
            yield from _differences(of, OURS, peer, name(*case), words)


@table("ranking_networks", "auc_fair")
def _ranking_networks(runs: pd.DataFrame) -> Cells:
    """Give test errors and gaps of networks and linear models, on the splits and slacks of both."""
    key = [*_CASE, "slack", "seed"]
    both = runs[runs["method"].isin([OURS, NETWORK])].pivot_table(
        index=key, columns="method", values=["test_error", "test_violation"]
    )
    for case, of in both.dropna().groupby(level=_CASE):
        for method, words in ((NETWORK, "ten hidden units"), (OURS, "linear")):
            for measure, what in (("test_error", "1 - AUC"), ("test_violation", "gap")):
                yield name(*case), f"{what}, {words}", *summary(of[measure, method])


@table("ranking_online", "auc_fair")
def _ranking_online(runs: pd.DataFrame) -> Cells:
    """Compare one pass of single rows with the exact solution at the same surrogate slack."""
    online = runs[runs["method"] == ONLINE]
    exact = runs[(runs["method"] == "quadratic surrogate, exact") & runs["slack"].isin([0.3])]
    both = online.merge(exact, on=[*_CASE, "seed"], suffixes=(", single rows", ", exact"))
    for _, run in both.iterrows():
        for method in ("single rows", "exact"):
            for measure, words in (("error", "1 - AUC"), ("violation", "gap")):
                value = run[f"test_{measure}, {method}"]
                yield name(*run[_CASE]), f"test {words}, {method}", *number(value)


@table("ranking_rescaled", "auc_fair")
def _ranking_rescaled(runs: pd.DataFrame) -> Cells:
    ours = {
        OURS: "our model does not see the group",
        OURS_WITH_GROUPS: "our model has columns for the second group",
    }
    for case, of in runs.groupby(_CASE):
        for method, words in ours.items():
            yield from _differences(of, method, RESCALED, name(*case), words)


@table("ranking_margin_counts", "auc_fair")
def _ranking_margin_counts(runs: pd.DataFrame) -> Cells:
    for case, of in _of_narrow_slacks(runs).groupby([*_CASE, "method"]):
        row = name(*case[:2], _WITHOUT_MARGIN[case[2]])
        for slack, of_slack in of.groupby("slack"):
            yield row, f"slack {slack:g}", str(of_slack["within"].sum()), ""


@table("ranking_margin", "auc_fair")
def _ranking_margin(runs: pd.DataFrame) -> Cells:
    for case, of in _of_narrow_slacks(runs).groupby(_CASE):
        for measure, words in (("excess", "excess"), ("test_error", "test 1 - AUC")):
            for method, margin in _WITHOUT_MARGIN.items():
                value = of.loc[of["method"] == method, measure].mean()
                yield name(*case), f"{words}, margin {margin}", *number(value)


@table("ranking_stream", "auc_passes")
def _ranking_stream(runs: pd.DataFrame) -> Cells:
    words = {"exact": "`QCQP`, from moments", "in place": "`partial_fit` in place, batches of 20"}
    for _, run in runs.iterrows():
        steps = run["method"].removesuffix(" steps a level")
        row = words.get(run["method"]) or f"`LevelSet`, {int(steps):,} steps a level"
        yield row, "passes", *number(run["passes"], ".0f")
        yield row, "processor seconds", *number(run["processor seconds"], ".2f")
        yield row, "objective", *number(run["objective"])
        yield row, "above the optimum, percent", *number(run["above, percent"], ".1f")
        yield row, "surrogate gap", *number(run["gap"], ".3f")
