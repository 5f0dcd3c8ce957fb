"""Fits through the public interface, whose results a change of the code must not change.

``python -m benchmarks.frozen record --output before.json`` writes what every fit finds, and
``python -m benchmarks.frozen compare before.json`` fits again and prints what differs: coefficients
of exact fits by more than 1e-6, of private ones by anything. ``--only`` takes the cases whose names
contain a text. The baseline of another commit comes from its package: run this file by its path in
a checkout of that commit, with ``PYTHONPATH=.``. Seconds are those of the processor, by one thread.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
from scipy.sparse import csr_array
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairconstrained import (
    AUCFairClassifier,
    DPFermiClassifier,
    LossParityClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
    constraints,
    solvers,
)
from fairconstrained.blocks import Blocks
from fairconstrained.datasets import make_biased_classification
from fairconstrained.distributed import sharded_rows
from fairconstrained.models import Linear, Posteriors
from fairconstrained.privacy import Budget

TOLERANCE = 1e-6  # of coefficients of exact fits
LABELS = np.array(["0", "1", "2", "3"])  # texts, and of two the favourable one is known
ROWS = 50  # whose predictions stand for a model without coefficients


class Table(NamedTuple):
    """A generated table: its shape, and how it is passed to ``fit``."""

    n_rows: int = 1000
    n_groups: int = 2
    n_classes: int = 2
    passed_as: str = "memory"  # or as in `PASSED_AS`, or "shards"
    weighted: bool = False


class Case(NamedTuple):
    """A fit: an estimator, made anew each time, and the rows that it is fitted to."""

    estimator: Callable[[], Any]
    table: Table = Table()


def maker(kind: Any, default: Any) -> Callable[..., Callable[[], Any]]:
    """Return a function that gives makers of an estimator, with a constraint by default."""

    def made(constraint: Any = default, **params: Any) -> Callable[[], Any]:
        return lambda: kind(constraint, random_state=0, **params)

    return made


rates = maker(RateConstrainedClassifier, "demographic_parity")
partial = maker(PartialParityClassifier, "statistical_parity")
auc = maker(AUCFairClassifier, "group_auc")
losses = maker(LossParityClassifier, "loss_parity")
fermi = maker(DPFermiClassifier, "demographic_parity")


def trees() -> HistGradientBoostingClassifier:
    """Return boosted trees that take no time."""
    return HistGradientBoostingClassifier(max_iter=10, random_state=0)


def frozen_trees() -> FrozenEstimator:
    """Return fitted trees."""
    data = make_biased_classification(1000, random_state=9)
    return FrozenEstimator(trees().fit(data.data[:, :8], LABELS[data.target]))


NOTIONS = ("demographic_parity", "equalized_odds", "equal_opportunity", "error_rate_parity")
CAPS = ("false_negative_rate", "false_positive_rate")
AUCS = ("group_auc", "inter_group", "intra_group", "positive_equality_gap", "bpsn_bnsp")
PARTIAL = ("statistical_parity", "rank_parity", "demographic_parity", "equal_opportunity")
PARTIAL_ALL = (*PARTIAL, "equalized_odds", "group_auc")
PENALISED = ("demographic_parity", "equalized_odds", "equal_opportunity")
SHARDS = Table(passed_as="shards", weighted=True)
BLOCKS = Table(passed_as="blocks")
PUBLIC = {"epsilon": 1.0, "feature_range": (-4.0, 4.0)}


def rate_cases() -> dict[str, Case]:
    """Return fits under constraints of rates."""
    small, many = Table(300, weighted=True), Table(2000, n_groups=8)
    several = [constraints.EqualizedOdds(slack=0.05), constraints.FalseNegativeRate(max=0.3)]
    cases = {f"rates/{name}": Case(rates(name, slack=0.02)) for name in NOTIONS}
    cases |= {f"rates/{name}": Case(rates(name, slack=0.2)) for name in CAPS}
    for name in ("demographic_parity", "equalized_odds", "false_positive_rate_parity"):
        cases[f"rates/{name}/weighted"] = Case(rates(name), small)
        cases[f"rates/{name}/8 groups"] = Case(rates(name, slack=0.1), many)
        cases[f"rates/{name}/4 classes"] = Case(rates(name, slack=0.1), Table(n_classes=4))
        cases[f"rates/{name}/sparse"] = Case(rates(name), Table(passed_as="sparse"))
        cases[f"rates/{name}/blocks"] = Case(rates(name), BLOCKS)
        cases[f"rates/{name}/shards"] = Case(rates(name), SHARDS)
    for name, made in {
        "list": rates(several),
        "list with AUC": rates([constraints.DemographicParity(), constraints.AUCParity()]),
        "loss parity": rates("loss_parity", slack=0.01),
        "margin": rates(margin=1.0),
        "no constraint binds": rates(slack=1.0),
        "overall": rates(constraints.DemographicParity(reference="overall"), slack=0.02),
        "rest": rates(constraints.EqualizedOdds(reference="rest"), slack=0.02),
        "per group": rates(constraints.FalseNegativeRate(max=0.2, per_group=True)),
        "no intercept": rates(model=Linear(fit_intercept=False)),
        "temperature": rates(constraints.DemographicParity(temperature=5.0), slack=0.02),
    }.items():
        cases[f"rates/{name}"] = Case(made)
    for name in ("margin", "list", "loss parity", "list with AUC", "overall", "per group"):
        cases[f"rates/{name}/blocks"] = Case(cases[f"rates/{name}"].estimator, BLOCKS)
        cases[f"rates/{name}/shards"] = Case(cases[f"rates/{name}"].estimator, SHARDS)
    cases["rates/100 groups"] = Case(rates(slack=0.2, min_group_size=1), Table(3000, n_groups=100))
    cases["rates/20,000 rows"] = Case(rates(slack=0.02), Table(20_000))
    cases["rates/150,000 rows"] = Case(rates(slack=0.02), Table(150_000))
    cases["rates/150,000 rows/odds"] = Case(rates("equalized_odds", slack=0.02), Table(150_000))
    return cases


def model_cases() -> dict[str, Case]:
    """Return fits of other models than the linear one."""
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    made = {
        "network": lambda: (8,),
        "trees": trees,
        "pipeline": lambda: pipeline,
        "frozen trees": frozen_trees,
        "posteriors": lambda: Posteriors(LogisticRegression(), cv=2),
        "posteriors with a group model": lambda: Posteriors(trees(), LogisticRegression()),
    }
    cases = {}
    for name, model in made.items():
        for notion in ("demographic_parity", "equalized_odds", "false_negative_rate"):
            maker = rates(notion, slack=0.1, model=model())
            cases[f"models/{name}/{notion}"] = Case(maker)
    cases["models/network/4 classes"] = Case(rates(model=(8,)), Table(n_classes=4))
    cases["models/trees/4 classes"] = Case(rates(model=trees()), Table(n_classes=4))
    cases["models/trees/5 groups"] = Case(rates(model=trees()), Table(n_groups=5, weighted=True))
    cases["models/trees/frame"] = Case(rates(model=trees()), Table(passed_as="frame"))
    cases["models/network/losses"] = Case(losses(model=(8,)))
    cases["models/network/AUC"] = Case(auc(model=(4,)), Table(400))
    cases["models/network/penalty"] = Case(fermi(model=(4,), epsilon=None), Table(400))
    cases["models/trees/losses"] = Case(losses(model=trees()))
    cases["models/trees/AUC"] = Case(auc(model=trees()))
    cases["models/trees/partial"] = Case(partial(model=trees()))
    return cases


def score_cases() -> dict[str, Case]:
    """Return fits under constraints of rankings, of partial parity and of losses."""
    cases = {f"auc/{name}": Case(auc(name, slack=0.02)) for name in AUCS}
    for name in ("group_auc", "inter_group"):
        for objective in ("auc", "log"):
            made = auc(name, slack=0.02, objective=objective)
            cases[f"auc/{name}/{objective}/weighted"] = Case(made, Table(600, weighted=True))
            cases[f"auc/{name}/{objective}/shards"] = Case(made, SHARDS)
        cases[f"auc/{name}/blocks"] = Case(auc(name), BLOCKS)
        cases[f"auc/{name}/3 groups"] = Case(auc(name), Table(n_groups=3))
        quadratic = constraints.AUCParity(name, surrogate="quadratic")
        binormal = constraints.AUCParity(name, surrogate="binormal")
        cases[f"auc/{name}/binormal"] = Case(auc(binormal))
        cases[f"auc/{name}/quadratic"] = Case(auc(quadratic, solver=solvers.QCQP()))
    cases["auc/margin"] = Case(auc(margin=0.5))
    cases |= {f"partial/{name}": Case(partial(name, slack=0.1)) for name in PARTIAL_ALL}
    cases["partial/weighted"] = Case(partial(), Table(500, weighted=True))
    cases["partial/3 groups"] = Case(partial(slack=0.1), Table(n_groups=3))
    cases["partial/group features"] = Case(partial(group_features=True))
    cases["partial/interval"] = Case(partial(interval=(0.1, 0.5), slack=0.1))
    cases["partial/blocks"] = Case(partial(slack=0.1), Table(600, passed_as="blocks"))
    cases["partial/shards"] = Case(partial(slack=0.1), Table(600, passed_as="shards"))
    for name in ("loss_parity", "equal_opportunity", "equalized_odds"):
        cases[f"losses/{name}"] = Case(losses(name))
        cases[f"losses/{name}/blocks"] = Case(losses(name), BLOCKS)
    cases["losses/3 groups"] = Case(losses(margin=0.5), Table(n_groups=3, weighted=True))
    cases["losses/4 classes"] = Case(losses(), Table(n_classes=4))
    cases["losses/shards"] = Case(losses(), SHARDS)
    return cases


def solver_cases() -> dict[str, Case]:
    """Return fits by solvers other than the defaults."""
    quadratic = constraints.AUCParity("group_auc", surrogate="quadratic")
    for_rates = [solvers.SGDA(), solvers.SSLALM(), solvers.ALM(), solvers.StochasticGhost()]
    for_rates += [solvers.SwitchingSubgradient(), solvers.EarlyStoppedSGDA()]
    for_rates.append(solvers.SequentialQuadratic())
    convex = [solvers.LevelSet(), solvers.ProximalLevelSet()]
    differences = [solvers.IDCA(), solvers.DirectSwitching(n_steps=300), solvers.StochasticIDCA()]
    penalties = [solvers.FERMI(), solvers.LBFGS()]
    fits = [
        *((solver, rates(solver=solver, max_iter=3)) for solver in for_rates),
        *((solver, auc(quadratic, solver=solver, max_iter=3)) for solver in convex),
        *((solver, partial(solver=solver, max_iter=2, slack=0.1)) for solver in differences),
        *((solver, fermi(epsilon=None, solver=solver, max_iter=5)) for solver in penalties),
    ]
    return {f"solvers/{type(solver).__name__}": Case(fit, Table(400)) for solver, fit in fits}


def penalty_cases() -> dict[str, Case]:
    """Return fits with a penalty on mutual information, private or not."""
    cases = {}
    for name in PENALISED:
        cases[f"penalty/{name}"] = Case(fermi(name, epsilon=None))
        cases[f"penalty/{name}/weighted"] = Case(fermi(name, epsilon=None), Table(weighted=True))
        cases[f"penalty/{name}/blocks"] = Case(fermi(name, epsilon=None), BLOCKS)
        cases[f"private/groups/{name}"] = Case(fermi(name))
    cases["penalty/5 groups"] = Case(fermi(epsilon=None, penalty=4.0), Table(n_groups=5))
    cases["penalty/shards"] = Case(fermi(epsilon=None), SHARDS)
    cases["penalty/4 classes"] = Case(fermi(epsilon=None), Table(n_classes=4))
    cases["private/groups/weighted"] = Case(fermi(), Table(weighted=True))
    cases["private/groups/shards"] = Case(fermi(), SHARDS)
    cases["private/groups/5 groups"] = Case(fermi(epsilon=3.0), Table(n_groups=5, n_classes=3))
    steps = solvers.DPFERMI(n_steps=20, batch_size=200)
    cases["private/groups/steps"] = Case(fermi(solver=steps))
    cases["private/penalty of records"] = Case(fermi(protect="record", epsilon=1.0))
    tables = solvers.NoisyTables(n_steps=20, batch_size=200)
    cases["private/penalty of records/tables"] = Case(fermi(protect="record", solver=tables))
    return cases


def record_cases() -> dict[str, Case]:
    """Return fits that protect records."""
    short = solvers.DPSGDA(n_steps=40, sampling_rate=0.2)
    replaced = Budget(1.0, 1e-5, "record_replacement")
    shards = Table(passed_as="shards")
    laplace = solvers.DPSGDA(n_steps=40, sampling_rate=0.2, histogram_noise="laplace")
    made = {
        "rates": rates(epsilon=1.0),
        "rates/odds": rates("equalized_odds", epsilon=1.0),
        "rates/cap": rates("false_negative_rate", slack=0.3, solver=short, **PUBLIC),
        "rates/range": rates(solver=short, **PUBLIC),
        "rates/replacement": rates(solver=short, protect="record_replacement", epsilon=1.0),
        "rates/network": rates(solver=short, model=(4,), **PUBLIC),
        "rates/Laplace": rates(solver=laplace, **PUBLIC),
        "rates/list": rates(["demographic_parity", "equal_opportunity"], solver=short, **PUBLIC),
        "partial": partial(solver=short, **PUBLIC),
        "partial/demographic parity": partial("demographic_parity", solver=short, **PUBLIC),
        "auc": auc(**PUBLIC),
        "auc/inter group": auc("inter_group", **PUBLIC),
        "auc/replacement": auc(epsilon=replaced, feature_range=(-4.0, 4.0)),
    }
    cases = {f"private/{name}": Case(maker) for name, maker in made.items()}
    for name in ("rates/range", "rates", "partial", "auc"):
        cases[f"private/{name}/shards"] = Case(made[name], shards)
    cases["private/rates/5 groups"] = Case(made["rates/range"], Table(n_groups=5))
    cases["private/rates/4 classes"] = Case(made["rates/range"], Table(n_classes=4))
    return cases


def all_cases() -> dict[str, Case]:
    """Return the fits by name."""
    fits = rate_cases() | model_cases() | score_cases()
    return fits | solver_cases() | penalty_cases() | record_cases()


# ---------------------------------------------------------------------- one fit


def columns_of(table: Table) -> tuple[Any, ...]:
    """Return X, labels, groups and weights."""
    n_groups, n_classes = table.n_groups, table.n_classes
    data = make_biased_classification(
        table.n_rows, 8, n_groups, n_classes, bias=0.6, random_state=0
    )
    weight = np.random.default_rng(0).integers(1, 4, table.n_rows).astype(float)
    X, y = data.data, LABELS[data.target]
    return X, y, data.sensitive_features, weight if table.weighted else None


def _blocks(X: Any) -> Blocks:
    """Return rows in blocks of 300."""
    return Blocks(lambda: (X[start : start + 300] for start in range(0, len(X), 300)))


PASSED_AS: dict[str, Any] = {"blocks": _blocks, "sparse": csr_array, "frame": pd.DataFrame}


def fitted(case: Case, part: slice = slice(None)) -> dict[str, Any]:
    """Fit, and return the values that must not change."""
    X, y, group, weight = columns_of(case.table)
    clf, some, X, y, group = case.estimator(), X[:ROWS], X[part], y[part], group[part]
    weight = None if weight is None else weight[part]
    X = PASSED_AS.get(case.table.passed_as, np.asarray)(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        clf.fit(X, y, sensitive_features=group, sample_weight=weight)
        seconds = time.process_time() - start
        if hasattr(clf, "coef_") and getattr(clf, "model", None) in ("linear", None):
            values = np.concatenate([np.ravel(clf.coef_), np.ravel(clf.intercept_)])
        else:
            values = np.ravel(clf.predict_proba(some))
    return {
        "values": values.tolist(),
        "status": clf.status_,
        "violation": float(clf.violation_),
        "n_iter": int(clf.n_iter_),
        "error": float(clf.history_["error"][-1]),
        "epsilon": None if clf.privacy_ is None else float(clf.privacy_.epsilon),
        "seconds": seconds,
    }


def on_workers(names: list[str]) -> dict[str, dict[str, Any]]:
    """Return the result that two processes with half of the rows each agree on."""
    if not names:
        return {}
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        processes = [context.Process(target=_work, args=(rank, names, folder)) for rank in (0, 1)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        first, second = (json.loads((Path(folder) / f"{rank}").read_text()) for rank in (0, 1))
    for name in names:
        assert first[name]["values"] == second[name]["values"], name
    return first


def _work(rank: int, names: list[str], folder: str) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder) / "store"), 2)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=2, timeout=timedelta(minutes=5)
    )
    cases, results = all_cases(), {}
    for name in names:
        half = cases[name].table.n_rows // 2
        with sharded_rows():
            results[name] = fitted(cases[name], slice(rank * half, (rank + 1) * half))
    (Path(folder) / f"{rank}").write_text(json.dumps(results))
    dist.barrier()


def run(only: str) -> dict[str, dict[str, Any]]:
    """Return the results of all fits whose names contain a text."""
    cases = {name: case for name, case in all_cases().items() if only in name}
    sharded = [name for name, case in cases.items() if case.table.passed_as == "shards"]
    results = {}
    for name, case in cases.items():
        if name not in sharded:
            try:
                results[name] = fitted(case)
            except Exception as error:
                print(f"{name} failed: {error!r}", file=sys.stderr)
    return results | on_workers(sharded)


# ---------------------------------------------------------------------- comparison


def differences(name: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Describe the differences in words."""
    tolerance = 0.0 if name.startswith("private/") else TOLERANCE
    one, other = np.array(before["values"]), np.array(after["values"])
    if one.shape != other.shape:
        return [f"shape {one.shape} -> {other.shape}"]
    largest = float(np.abs(one - other).max())
    told = [] if largest <= tolerance else [f"values by {largest:.2g}"]
    texts = [key for key in ("status", "n_iter") if before[key] != after[key]]
    told.extend(f"{key} {before[key]} -> {after[key]}" for key in texts)
    for key in ("violation", "error", "epsilon"):
        pair = np.array([before[key], after[key]], dtype=float)
        if not np.allclose(*pair, rtol=0.0, atol=tolerance, equal_nan=True):
            told.append(f"{key} {pair[0]:.6f} -> {pair[1]:.6f}")
    return told


def main() -> None:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("record", "compare", "list"))
    parser.add_argument("file", nargs="?", help="what was recorded before")
    parser.add_argument("--output", default="frozen.json", help="where to record")
    parser.add_argument("--only", default="", help="a text in the names of the cases")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.action == "list":
        print("\n".join(name for name in all_cases() if args.only in name))
        return
    after = run(args.only)
    if args.action == "record":
        Path(args.output).write_text(json.dumps(after, indent=1), encoding="utf-8")
        seconds = sum(result["seconds"] for result in after.values())
        print(f"{len(after)} fits, {seconds:.1f} processor seconds: {args.output}")
        return
    before = json.loads(Path(args.file).read_text(encoding="utf-8"))
    common = [name for name in after if name in before]
    changed = 0
    for name in common:
        told = differences(name, before[name], after[name])
        changed += bool(told)
        if told:
            print(f"{name}: {'; '.join(told)}")
    was, now = (sum(fits[name]["seconds"] for name in common) for fits in (before, after))
    print(f"{len(common)} fits, {changed} differ; processor seconds {was:.1f} -> {now:.1f}")
    sys.exit(bool(changed))


if __name__ == "__main__":
    main()
