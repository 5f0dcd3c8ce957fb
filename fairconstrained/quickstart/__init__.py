"""A fair model from end to end, from a table to a report: ``python -m fairconstrained.quickstart``.

1. Hold out a quarter of the rows.
2. Search over the model (boosted trees, linear) and the slack by cross-validation, scoring
   accuracy and fairness.
3. Refit the most accurate candidate whose violation is small enough.
4. On the held-out rows, with confidence intervals, compare all slacks, the unconstrained models
   and fairlearn's reductions; list the rates of each group; certify the chosen model.
5. Write the trade-off (tradeoff.csv, tradeoff.png), the rates of the groups (groups.csv,
   groups.png), the certificate (certificate.json) and the chosen model (model.joblib).

By default the table is generated. ``--dataset adult`` and other names use real data, ``--csv FILE
--label COLUMN --sensitive COLUMN [COLUMN ...]`` your own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from sklearn import config_context

from fairconstrained.datasets import list_datasets
from fairconstrained.groups import encode_groups, group_name
from fairconstrained.metrics import certify, group_report
from fairconstrained.quickstart import steps
from fairconstrained.quickstart.steps import NOTIONS, Result, Table

__all__ = ["main"]

_GENERATED = "loans"
Chosen = tuple[str, float]  # method and slack
# The rates of a group that are printed; the file has all of them.
_PRINTED = ("base_rate", "selection_rate", "true_positive_rate", "error")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the quick start with a command line, which ``["--help"]`` explains.

    Raises SystemExit if an argument is not valid, or the table is not there or cannot be used.
    """
    options = _options(argv)
    if options.csv is not None:
        columns = options.label, options.sensitive, options.positive, options.drop
        table = steps.from_csv(options.csv, *columns)
    else:
        is_made = options.dataset == _GENERATED
        table = steps.generated(options.seed) if is_made else steps.dataset(options.dataset)
    train, test = steps.held_out(table, options.seed)
    print(_headline(table, train, test, options))
    notion = options.notion
    with config_context(enable_metadata_routing=True), tempfile.TemporaryDirectory() as cache:
        compared = steps.methods(table, notion, options.seed, cache)
        name, slack, model, validated = steps.cross_validate(compared, train, notion, options)
        # The folder of the cache will be gone.
        caches = [key for key in model.get_params() if key.endswith("__memory")]
        chosen, model = (name, slack), model.set_params(**dict.fromkeys(caches))
        print(f"\ncross-validated over {options.cv} folds, mean (a standard deviation either way)")
        print(_results_table(validated, chosen))
        bounds = _bounds_of_reductions(options)
        measured = steps.measure(compared, train, test, notion, bounds, options)
    drawn = " (reductions: one draw of its random predictions)" if bounds else ""
    print(f"\nheld-out rows, 95 % intervals{drawn}")
    print(_results_table(measured, chosen))
    report, words = _groups_table(model, test)
    print(f"\nchosen: {name}, slack {slack:g}; held-out rows by group, 95 % intervals\n{words}")
    certificate = certify(
        model,
        test.X,
        test.y,
        sensitive_features=test.groups,
        constraint=notion,
        slack=options.max_violation,
        name="held-out rows",
    )
    print(f"\n{certificate}")
    folder = options.output
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(validated + measured).to_csv(folder / "tradeoff.csv", index=False)
    _draw_tradeoff(validated + measured, chosen, options, folder / "tradeoff.png")
    report.to_csv(folder / "groups.csv")
    _draw_groups(report, folder / "groups.png")
    (folder / "certificate.json").write_text(
        json.dumps(certificate.to_dict()) + "\n", encoding="utf-8"
    )
    joblib.dump(model, folder / "model.joblib")
    print(
        f"\nWritten to {folder}: tradeoff.csv, tradeoff.png, groups.csv, groups.png, "
        "certificate.json, and model.joblib (joblib.load gives the fitted classifier; its "
        f"prediction 1 means {table.positive})."
    )


def _bounds_of_reductions(options: argparse.Namespace) -> list[float]:
    if importlib.util.find_spec("fairlearn") is None:
        print("fairlearn is not installed: no reductions. pip install 'fairconstrained[bench]'")
        return []
    if options.reductions is not None:
        return list(options.reductions)
    generated = options.csv is None and options.dataset == _GENERATED
    return list(options.slack) if generated else [options.max_violation]


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fairconstrained.quickstart",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tables = parser.add_mutually_exclusive_group()
    tables.add_argument(
        "--dataset",
        default=_GENERATED,
        choices=[_GENERATED, *list_datasets()],
        help="generated loan applications (default), or real data, which are read from the folder "
        "FAIRCONSTRAINED_DATA or else downloaded",
    )
    tables.add_argument("--csv", type=Path, metavar="FILE", help="your own table, with a header")
    add = parser.add_argument
    add("--label", metavar="COLUMN", help="of the CSV file: what is predicted")
    add(
        "--sensitive",
        nargs="+",
        metavar="COLUMN",
        help="of the CSV file: the groups, crossed if several; they are no features",
    )
    add("--positive", metavar="VALUE", help="the favourable label (default: the larger number)")
    add("--drop", nargs="+", default=[], metavar="COLUMN", help="columns that are no features")
    add("--notion", default="demographic_parity", choices=list(NOTIONS))
    add("--slack", nargs="+", type=float, default=[0.01, 0.02, 0.05, 0.1, 0.2], help="the grid")
    add(
        "--max-violation",
        type=float,
        default=0.05,
        help="the search chooses the best mean accuracy within it (default: %(default)s)",
    )
    add("--cv", type=int, default=3, help="number of folds (default: %(default)s)")
    add(
        "--reductions",
        nargs="*",
        type=float,
        help="bounds for fairlearn's reductions, none to leave them out (default: the grid on "
        "generated data, else the wanted violation: one fit on adult takes half a minute)",
    )
    add("--output", type=Path, default=Path(), help="folder for the files (default: this one)")
    add("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    if options.csv is None:
        if options.label or options.sensitive or options.positive or options.drop:
            parser.error("--label, --sensitive, --positive and --drop go with --csv")
    elif options.label is None or not options.sensitive:
        parser.error("--csv needs --label COLUMN and --sensitive COLUMN [COLUMN ...]")
    return options


def _headline(table: Table, train: Table, test: Table, options: argparse.Namespace) -> str:
    """Data, groups and constraint of this run."""
    codes, labels = encode_groups(train.groups)
    sizes = zip(labels, np.bincount(codes), strict=True)
    groups = ", ".join(f"{group_name(label)} ({size})" for label, size in sizes)
    lines = [
        f"{table.name}: {len(train.y)} training rows, {len(test.y)} held-out rows, "
        f"{table.X.shape[1]} features",
        f"favourable: {table.positive} ({table.y.mean():.1%} of the rows)",
        f"groups: {groups}",
        f"constraint: {options.notion}, wanted violation at most {options.max_violation:g}",
        *table.notes,
    ]
    return "\n".join(lines)


def _results_table(results: list[Result], chosen: Chosen) -> str:
    """A line for each fit."""
    lines = [f"{'':23}{'slack':>6}  {'error':25}{'violation':25}{'fit (s)':>8}"]
    for r in results:
        slack = "" if np.isnan(r.slack) else f"{r.slack:g}"
        mark = "  <- chosen" if (r.method, r.slack) == chosen else ""
        error = f"{r.error:.4f} ({r.error_low:.4f}, {r.error_high:.4f})"
        violation = f"{r.violation:.4f} ({r.violation_low:.4f}, {r.violation_high:.4f})"
        lines.append(f"{r.method:23}{slack:>6}  {error:25}{violation:25}{r.fit_time:8.2f}{mark}")
    return "\n".join(lines)


def _groups_table(model: Any, test: Table) -> tuple[pd.DataFrame, str]:
    """Rates of each group with their intervals: all of them, and as text those that matter most."""
    score = model.predict_proba(test.X)[:, 1]
    report = group_report(
        test.y, model.predict(test.X), sensitive_features=test.groups, y_score=score
    )
    lines = pd.DataFrame({"samples": report["samples"].astype(int)})
    for rate in _PRINTED:
        ends = zip(report[rate], report[f"{rate}_low"], report[f"{rate}_high"], strict=True)
        lines[rate.replace("_", " ")] = [
            f"{value:.3f} ({low:.3f}, {high:.3f})" for value, low, high in ends
        ]
    return report, lines.to_string()


def _draw_tradeoff(
    results: list[Result], chosen: Chosen, options: argparse.Namespace, path: Path
) -> None:
    """Error against violation, on the folds and on the held-out rows."""
    # Imported here: everything else works without matplotlib.
    from matplotlib.figure import Figure

    from fairconstrained.display import TradeoffDisplay

    table = pd.DataFrame(results)
    figure = Figure(figsize=(12, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, (rows, part) in zip(axes, table.groupby("rows", sort=False), strict=True):
        for method, points in part.groupby("method", sort=False):
            ours = method == chosen[0]
            TradeoffDisplay(
                error=points["error"],
                violation=points["violation"],
                error_std=_reach(points, "error"),
                violation_std=_reach(points, "violation"),
                chosen=int(np.flatnonzero(points["slack"] == chosen[1])[0]) if ours else None,
                slack=options.max_violation if ours else None,
                name=str(method),
                violation_name=f"violation of {options.notion.replace('_', ' ')}",
            ).plot(ax)
        ax.set_title(str(rows))
        ax.get_legend().remove()
    # The held-out rows show all methods.
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside right center")
    figure.savefig(path, dpi=120)


def _draw_groups(report: pd.DataFrame, path: Path) -> None:
    """Selection rate and error of each group, with their intervals."""
    from matplotlib.figure import Figure

    from fairconstrained.display import GroupReportDisplay

    figure = Figure(figsize=(6, 1.5 + 0.4 * len(report)), layout="constrained")
    display = GroupReportDisplay(report=report, rates=("selection_rate", "error"))
    display.plot(figure.subplots())
    figure.savefig(path, dpi=120)


def _reach(points: pd.DataFrame, name: str) -> Any:
    """How far the bars reach below and above; a gap can lie above its own interval."""
    value = points[name]
    ends = value - points[f"{name}_low"], points[f"{name}_high"] - value
    return np.maximum(np.array(ends), 0.0)
