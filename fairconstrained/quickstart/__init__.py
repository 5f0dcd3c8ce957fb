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
import pandas as pd
from sklearn import config_context

from fairconstrained.datasets import list_datasets
from fairconstrained.metrics import certify
from fairconstrained.quickstart.methods import NOTIONS, cross_validate, measure, methods
from fairconstrained.quickstart.reports import (
    draw_groups,
    draw_tradeoff,
    groups_table,
    headline,
    results_table,
)
from fairconstrained.quickstart.tables import Table, dataset, from_csv, generated, held_out

__all__ = ["main"]

_GENERATED = "loans"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the quick start.

    Parameters
    ----------
    argv : sequence of str, optional
        Command line; ``["--help"]`` explains it.

    Raises
    ------
    SystemExit
        If an argument is not valid, or the table is not there or cannot be used.
    """
    options = _options(argv)
    table = _table(options)
    train, test = held_out(table, options.seed)
    print(headline(table, train, test, options))
    notion = NOTIONS[options.notion]
    with config_context(enable_metadata_routing=True), tempfile.TemporaryDirectory() as cache:
        compared = methods(table, options.notion, options.seed, cache)
        name, slack, model, validated = cross_validate(compared, train, notion, options)
        chosen, model = (name, slack), _without_cache(model)
        print(f"\ncross-validated over {options.cv} folds, mean (a standard deviation either way)")
        print(results_table(validated, chosen))
        bounds = _bounds_of_reductions(options)
        measured = measure(compared, train, test, notion, bounds, options)
    drawn = " (reductions: one draw of its random predictions)" if bounds else ""
    print(f"\nheld-out rows, 95 % intervals{drawn}")
    print(results_table(measured, chosen))
    report, words = groups_table(model, test)
    print(f"\nchosen: {name}, slack {slack:g}; held-out rows by group, 95 % intervals\n{words}")
    certificate = certify(
        model,
        test.X,
        test.y,
        sensitive_features=test.groups,
        constraint=options.notion,
        slack=options.max_violation,
        name="held-out rows",
    )
    print(f"\n{certificate}")
    folder = options.output
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(validated + measured).to_csv(folder / "tradeoff.csv", index=False)
    draw_tradeoff(validated + measured, chosen, options, folder / "tradeoff.png")
    report.to_csv(folder / "groups.csv")
    draw_groups(report, folder / "groups.png")
    (folder / "certificate.json").write_text(
        json.dumps(certificate.to_dict()) + "\n", encoding="utf-8"
    )
    joblib.dump(model, folder / "model.joblib")
    print(
        f"\nWritten to {folder}: tradeoff.csv, tradeoff.png, groups.csv, groups.png, "
        "certificate.json, and model.joblib (joblib.load gives the fitted classifier; its "
        f"prediction 1 means {table.positive})."
    )


def _table(options: argparse.Namespace) -> Table:
    if options.csv is not None:
        return from_csv(
            options.csv, options.label, options.sensitive, options.positive, options.drop
        )
    return generated(options.seed) if options.dataset == _GENERATED else dataset(options.dataset)


def _bounds_of_reductions(options: argparse.Namespace) -> list[float]:
    if importlib.util.find_spec("fairlearn") is None:
        print("fairlearn is not installed: no reductions. pip install 'fairconstrained[bench]'")
        return []
    if options.reductions is not None:
        return list(options.reductions)
    generated = options.csv is None and options.dataset == _GENERATED
    return list(options.slack) if generated else [options.max_violation]


def _without_cache(model: Any) -> Any:
    """The model without the name of a folder that is gone."""
    caches = [name for name in model.get_params() if name.endswith("__memory")]
    return model.set_params(**dict.fromkeys(caches))


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(argv)
    if options.csv is None:
        if options.label or options.sensitive or options.positive or options.drop:
            parser.error("--label, --sensitive, --positive and --drop go with --csv")
    elif options.label is None or not options.sensitive:
        parser.error("--csv needs --label COLUMN and --sensitive COLUMN [COLUMN ...]")
    return options


def _parser() -> argparse.ArgumentParser:
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
    return parser
