"""The quick start: its printed output and its files."""

from __future__ import annotations

import argparse
import importlib.util
import json
import warnings
from dataclasses import replace
from typing import Any

import joblib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn import config_context

from fairconstrained.audit.facts import report
from fairconstrained.audit.measures import UNDEFINED
from fairconstrained.audit.program import write
from fairconstrained.audit.wording import points
from fairconstrained.display import GroupReportDisplay, TradeoffDisplay
from fairconstrained.distributed import one_openmp_thread
from fairconstrained.exceptions import (
    ConstraintNotSatisfiedWarning,
    InputWarning,
    MissingSensitiveFeaturesWarning,
    ignoring,
)
from fairconstrained.inputs.groups import encode_groups, group_name
from fairconstrained.metrics import certify, group_report
from fairconstrained.quickstart import steps
from fairconstrained.quickstart.arguments import CONSTRAINTS, GENERATED
from fairconstrained.quickstart.steps import Result, Table

Chosen = tuple[str, float]  # method and slack


@ignoring(InputWarning)  # notes say how values are spelled
def run(options: argparse.Namespace) -> None:
    """Run the quick start; raise `Unusable` for bad input."""
    if options.csv is not None:
        table = steps.from_file(options)
    else:
        is_made = options.dataset == GENERATED
        table = steps.generated(options.seed) if is_made else steps.dataset(options.dataset)
    train, test = steps.held_out(table, options)
    folder = options.output
    folder.mkdir(parents=True, exist_ok=True)
    proxies = steps.proxies(train, test)
    print("\n".join([_headline(table, train, test, options), *proxies]))
    with (
        # The first lines speak of a constraint that is not kept, and of unknown groups.
        ignoring(ConstraintNotSatisfiedWarning, MissingSensitiveFeaturesWarning),
        config_context(enable_metadata_routing=True),
        one_openmp_thread(train.X),
    ):
        # Warnings of unknown words, few iterations, and near constants, which the table names.
        warnings.filterwarnings("ignore", module="sklearn")
        warnings.filterwarnings("ignore", ".* has no score, but nan")
        compared = steps.methods(table, options)
        name, slack, model, validated = steps.cross_validate(compared, train, options)
        chosen = name, slack
        print(f"\ncross-validated over {options.cv} folds, mean (a standard deviation either way)")
        print(_results_table(validated, chosen))
        bounds = options.reductions if importlib.util.find_spec("fairlearn") else []
        if len(bounds) < len(options.reductions):
            print("fairlearn is not installed: no reductions. pip install fairlearn")
        measured, predictions, missed = steps.measure(compared, train, test, bounds, options)
        rates, printed = _groups_table(model, test, CONSTRAINTS[options.constraint][1])
    violation = next(r.violation for r in validated if (r.method, r.slack) == chosen)
    if violation > options.max_violation:
        wanted, least = points(options.max_violation), points(violation)
        nearest = f"{steps.in_words(name, slack)} came closest, with {least}"
        why = f"No useful model kept a gap of {wanted} in cross-validation: {nearest}."
        missed = [why, *missed]
    print("\n".join(["", *missed]))
    print("held-out rows, 95 % intervals: a difference within them may be chance")
    print(_results_table(measured, chosen))
    if bounds:
        print(
            "reductions: one draw of its random predictions; its slack bounds each group against "
            "all rows,\nso that two groups may differ by up to twice as much"
        )
    pd.DataFrame(validated + measured).to_csv(folder / "tradeoff.csv", index=False)
    print(f"\nchosen: {name}, slack {slack:g}; held-out rows by group, 95 % intervals\n{printed}")
    rates.to_csv(folder / "groups.csv")
    _draw_tradeoff(validated + measured, chosen, options)
    figure = Figure(figsize=(6, 1.5 + 0.4 * len(rates)), layout="constrained")
    compared_rates = [*CONSTRAINTS[options.constraint][1], "error"]
    GroupReportDisplay(report=rates, rates=compared_rates).plot(figure.subplots())
    figure.savefig(folder / "groups.png", dpi=120)
    before = predictions[f"{name}, unconstrained"]
    _prove(model, before, chosen, (table, test), [*missed, *proxies], options)
    print(
        f"\nWritten to {folder}: audit.html, a page about the chosen model before and after; "
        "audit.json, tradeoff.csv, tradeoff.png, groups.csv, groups.png, certificate.json, and "
        "model.joblib (joblib.load gives the fitted classifier; its prediction 1 means "
        f"{table.outcomes[1]})."
    )


def _prove(
    model: Any,
    before: Any,
    chosen: Chosen,
    tables: tuple[Table, Table],
    sentences: list[str],
    options: argparse.Namespace,
) -> None:
    """Certify the chosen model on the held-out rows, and audit it beside the unconstrained one."""
    (name, slack), (table, test), folder = chosen, tables, options.output
    with ignoring(*UNDEFINED):  # it names the groups that it leaves out
        certificate = certify(
            *(model, test.X, test.y),
            sensitive_features=test.groups,
            constraint=options.constraint,
            slack=options.max_violation,
            name="held-out rows",
            label_names=dict(enumerate(table.outcomes)),
        )
    certificate = replace(certificate, estimator=f"{name}, slack {slack:g}: {folder}/model.joblib")
    print(f"\n{certificate}")
    (folder / "certificate.json").write_text(json.dumps(certificate.to_dict()) + "\n", "utf-8")
    joblib.dump(model, folder / "model.joblib")
    words = np.array(table.outcomes, dtype=object)
    columns = {"decision": model.predict(test.X), "label": test.y, "unconstrained": before}
    named = {name: pd.Series(words[codes], name=name) for name, codes in columns.items()}
    audit = report(
        *(named["label"], named["decision"]),
        sensitive_features=test.groups.reset_index(drop=True),
        y_score=model.predict_proba(test.X)[:, 1],
        before=named["unconstrained"],
        constraint=options.constraint,
        slack=options.max_violation,
        pos_label=table.outcomes[1],
    )
    origin = {"file": f"{table.name}, held-out rows", "command": options.command}
    model_is = f"The model: {steps.in_words(name, slack)} on the gap. "
    model_is += "Before: the same model without the limit."
    findings = [model_is, *audit.findings]
    print("\n".join(["", audit.question, audit.answer, *findings]))  # the others are above
    provenance = {**audit.provenance, **origin}
    write(replace(audit, findings=[*findings, *sentences], provenance=provenance), folder)


def _headline(table: Table, train: Table, test: Table, options: argparse.Namespace) -> str:
    """Return lines about the data, the groups and the constraint of this run."""
    codes, labels = encode_groups(train.groups)
    sizes = zip(map(group_name, labels), np.bincount(codes[codes >= 0]), strict=True)
    rows = f"{len(train.y)} training rows, {len(test.y)} held-out rows"
    others, favourable = table.outcomes
    features = f"{table.X.shape[1]} feature{'s' * (table.X.shape[1] != 1)}"
    lines = [
        f"{table.name}: {rows}, {features}",
        f"favourable: {favourable} ({100 * table.y.mean():.1f} % of the rows); other: {others}",
        f"groups: {', '.join(f'{name} ({size})' for name, size in sizes)}",
        f"constraint: {options.constraint}, wanted violation at most {options.max_violation:g}",
    ]
    return "\n".join(lines + train.notes)


def _results_table(results: list[Result], chosen: Chosen) -> str:
    """Return a table with a line for each fit."""
    lines = [f"{'':23}{'slack':>6}  {'error':25}{'violation':25}{'fit (s)':>8}"]
    for r in results:
        slack = "" if np.isnan(r.slack) else f"{r.slack:g}"
        mark = "  <- chosen" if (r.method, r.slack) == chosen else ""
        error = f"{r.error:.4f} ({r.error_low:.4f}, {r.error_high:.4f})"
        low = max(r.violation_low, 0.0)  # a deviation below the mean may reach below zero
        violation = f"{r.violation:.4f} ({low:.4f}, {r.violation_high:.4f})"
        if np.isnan(r.violation):  # the score of a model that is nearly constant on a fold
            violation = "none: near a constant"
        lines.append(f"{r.method:23}{slack:>6}  {error:25}{violation:25}{r.fit_time:8.2f}{mark}")
    return "\n".join(lines)


def _groups_table(model: Any, test: Table, rates: list[str]) -> tuple[pd.DataFrame, str]:
    """Return the rates of each group with their intervals, and the most important ones as text."""
    score = model.predict_proba(test.X)[:, 1]
    report = group_report(
        test.y, model.predict(test.X), sensitive_features=test.groups, y_score=score
    )
    lines = pd.DataFrame({"samples": report["samples"].astype(int)})
    printed = ["base_rate", "selection_rate", "true_positive_rate", *rates, "error"]
    for rate in dict.fromkeys(printed):
        three = report[[rate, f"{rate}_low", f"{rate}_high"]].to_numpy()
        lines[rate.replace("_", " ")] = [
            "none" if np.isnan(r) else f"{r:.3f} ({low:.3f}, {up:.3f})" for r, low, up in three
        ]
    return report, lines.to_string()


def _draw_tradeoff(results: list[Result], chosen: Chosen, options: argparse.Namespace) -> None:
    """Draw error against violation, on the folds and on the held-out rows, on the same axes."""
    table = pd.DataFrame(results)
    figure = Figure(figsize=(12, 4), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, (rows, part) in zip(axes, table.groupby("rows", sort=False), strict=True):
        for method, of_method in part.groupby("method", sort=False):
            ours = method == chosen[0]
            TradeoffDisplay(
                error=of_method["error"],
                violation=of_method["violation"],
                error_std=_reach(of_method, "error"),
                violation_std=_reach(of_method, "violation"),
                chosen=int(np.flatnonzero(of_method["slack"] == chosen[1])[0]) if ours else None,
                slack=options.max_violation if ours else None,
                name=str(method),
                violation_name=f"violation of {options.constraint.replace('_', ' ')}",
            ).plot(ax)
        for point in part[part["violation"].notna() & part["slack"].notna()].itertuples():
            place = {"xytext": (4, 4), "textcoords": "offset points", "fontsize": 7}
            ax.annotate(f"{point.slack:g}", (point.violation, point.error), **place)
        ends = "95 % intervals" if rows == "held out" else "mean ± sd"
        ax.set_title(f"{rows} ({ends}); numbers are slacks")
        ax.label_outer()
        ax.get_legend().remove()
    # The held-out rows show all methods.
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside right center")
    figure.savefig(options.output / "tradeoff.png", dpi=120)


def _reach(points: pd.DataFrame, name: str) -> Any:
    """Return the lengths of error bars below and above; a gap can lie above its own interval."""
    value = points[name]
    ends = value - points[f"{name}_low"], points[f"{name}_high"] - value
    return np.maximum(np.array(ends), 0.0)
