"""How many folds posteriors need, and who judges new rows, by inner validation.

    python -m benchmarks.posterior_folds --tasks compas bank --output results

Three quarters of the training rows of each split fit, one quarter judges; no test row is read. New
rows get the mean of the classifiers of the folds, as in `Posteriors`, or the answer of one that is
fitted on all rows. Measured are error and violation of predicted labels, log loss of the posteriors
of label and groups, and processor seconds of the fits of classifiers.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from benchmarks import frontier, results
from benchmarks.any_classifier import TASKS, Remembered, Split, bound_notion, load, trees
from benchmarks.objectives.rate_constrained import ALPHA, VIOLATIONS
from fairconstrained import RateConstrainedClassifier
from fairconstrained.models import Posteriors
from fairconstrained.models.posteriors import FittedPosteriors

SPLIT = ["classifier", "dataset", "without_group", "seed"]
CASE = [*SPLIT, "notion", "slack"]
KEY = [*CASE, "folds", "new_rows"]
COMPARED = ["error", "violation", "training_violation", "label_log_loss", "group_log_loss"]
MEASURED = [*COMPARED, "cpu"]
NOTIONS, SLACKS, FOLDS = ["demographic_parity", "equalized_odds"], [0.02, 0.05], [2, 3, 5]
WAYS = ["mean", "refit"]
BEFORE = 5, "refit"  # what the others are compared with
CLASSIFIERS = {"boosted trees": trees, "forest": lambda: RandomForestClassifier(random_state=0)}


class Rows:
    """Rows of a split: X as the classifier takes it, labels and groups."""

    def __init__(self, X: pd.DataFrame, y: Any, groups: Any):
        self.X, self.y, self.groups = X, y, groups

    def __getitem__(self, rows: Any) -> Rows:
        return Rows(self.X.iloc[rows], self.y[rows], self.groups[rows])


def inner(split: Split, classifier: str, seed: int) -> tuple[Rows, Rows]:
    """Training rows that fit, and training rows that judge."""
    X, y, groups = split.tables[0], split.y[0], split.groups[0]
    if classifier == "forest":  # which knows no categories
        X = X.apply(lambda column: column.cat.codes if column.dtype == "category" else column)
    strata = y * (groups.max() + 1) + groups
    parts = train_test_split(
        np.arange(len(y)), test_size=0.25, stratify=strata, random_state=100 + seed
    )
    fit, held = (Rows(X, y, groups)[rows] for rows in parts)
    return fit, held


def refitted(fitted: FittedPosteriors, rows: Rows, base: Any) -> FittedPosteriors:
    """The same calibrated posteriors, by classifiers that are fitted on all rows."""
    asked = []
    for own in fitted.group_models:
        used = own.task.labels[rows.y]
        part = own.task.part_of_group[rows.groups[used]]
        model = Remembered(base).fit(rows.X[used], part)
        asked.append(own._replace(model=own.model._replace(models=[model])))
    label = fitted.label_model._replace(models=[Remembered(base).fit(rows.X, rows.y)])
    return fitted._replace(label_model=label, group_models=asked)


def measured(
    split: Split, classifier: str, seed: int, folds: int, notion: str
) -> Iterator[dict[str, Any]]:
    """Fit on most training rows, and measure on the others."""
    fit, held = inner(split, classifier, seed)
    base = CLASSIFIERS[classifier]()
    parts = bound_notion(split, notion, SLACKS[0]).part_of_cell.numpy()
    start = time.process_time() + Remembered.spared
    table, fitted = Posteriors(Remembered(base), cv=folds).columns(fit.X, fit.y, fit.groups, parts)
    cpu = time.process_time() + Remembered.spared - start
    again = refitted(fitted, fit, base)
    whole = time.process_time() + Remembered.spared - start
    judges = {"mean": (fitted, cpu), "refit": (again, whole)}
    columns = {way: judge.columns(held.X) for way, (judge, _) in judges.items()}
    losses = {way: log_losses(judge, held) for way, (judge, _) in judges.items()}
    for slack in SLACKS:
        head = RateConstrainedClassifier(notion, slack=slack, alpha=ALPHA, random_state=0)
        head.fit(table, fit.y, sensitive_features=fit.groups)
        for way in WAYS:
            predicted = head.predict(columns[way])
            violation = VIOLATIONS[notion](held.y, predicted, sensitive_features=held.groups)
            yield {
                **{"slack": slack, "new_rows": way, "cpu": judges[way][1]},
                "error": float(np.mean(predicted != held.y)),
                "violation": violation,
                "training_violation": head.violation_,
                **losses[way],
            }


def log_losses(fitted: FittedPosteriors, held: Rows) -> dict[str, float]:
    """Log loss of the posteriors of the label, and of the groups in the mean of the questions."""

    def loss(model: Any, X: pd.DataFrame, target: Any) -> float:
        return float(log_loss(target, model.posteriors(X).clip(1e-9, 1.0), labels=model.kinds))

    of_groups = []
    for task, _, model in fitted.group_models:
        used = task.labels[held.y]
        part = task.part_of_group[held.groups[used]]
        of_groups.append(loss(model, held.X[used], part))
    label = loss(fitted.label_model, held.X, held.y)
    return {"label_log_loss": label, "group_log_loss": float(np.mean(of_groups))}


def differences(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Differences from what was before: means over splits and their standard errors."""
    whole = table.groupby(CASE).filter(lambda runs: len(runs) == len(FOLDS) * len(WAYS))
    wide = whole.pivot_table(index=CASE, columns=["folds", "new_rows"], values=MEASURED)
    found = []
    for way in product(FOLDS, WAYS):
        change = pd.DataFrame({name: wide[name][way] - wide[name][BEFORE] for name in COMPARED})
        change["cpu, ratio"] = wide["cpu"][way] / wide["cpu"][BEFORE]
        groups = change.groupby(SPLIT).mean().groupby(by)
        mean, error = groups.mean(), groups.sem()
        text = mean.map("{:+.4f}".format) + " ± " + error.map("{:.4f}".format)
        way_columns = {"folds": way[0], "new rows": way[1], "splits": groups.size()}
        found.append(pd.DataFrame(way_columns, index=text.index).join(text).reset_index())
    return pd.concat(found)


def main() -> None:
    """Run what the table lacks, and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("results"))
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--classifiers", nargs="+", default=list(CLASSIFIERS), choices=CLASSIFIERS)
    parser.add_argument("--without-group", action="store_true")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    path = options.output / "posterior_folds.csv"
    done = results.finished(path, KEY)
    asked = product(options.seeds, options.tasks, options.classifiers)
    for seed, task, classifier in () if options.report else asked:
        split, known = load(task, options.without_group, seed), (classifier, task)
        for folds in FOLDS:
            Remembered.fits.clear()
            for notion in NOTIONS:
                given = (*known, options.without_group, seed, notion)
                if all((*map(str, (*given, s, folds)), w) in done for s in SLACKS for w in WAYS):
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    rows = list(measured(split, classifier, seed, folds, notion))
                for row in rows:
                    row |= dict(zip(CASE, given, strict=False), folds=folds)
                    results.append(path, row, [*KEY, *MEASURED], KEY)
    table = results.table(path, KEY, MEASURED)
    for by in (SPLIT[:1], SPLIT[:3]):
        print(frontier.markdown(differences(table, by)), end="\n\n")


if __name__ == "__main__":
    main()
