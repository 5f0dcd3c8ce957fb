"""The steps of the quick start: its table, the methods that it compares, and their measurements."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import zero_one_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from tqdm.auto import tqdm

from fairconstrained import RateConstrainedClassifier, metrics
from fairconstrained.arrays import in_rows
from fairconstrained.audit.files import File, Unusable
from fairconstrained.audit.tables import check_groups, dates, numbers, read_table
from fairconstrained.comparison import compared
from fairconstrained.datasets import load_dataset, make_loan_applications
from fairconstrained.datasets.catalogue import DATASETS
from fairconstrained.exceptions import NoUsefulModelError
from fairconstrained.inputs.groups import encode_groups, group_name
from fairconstrained.inputs.outcomes import read_outcomes
from fairconstrained.inputs.values import listed, notes_on, texts
from fairconstrained.metrics.bounds import wilson
from fairconstrained.metrics.inputs import CONSTANT, nearly_constant
from fairconstrained.model_selection.choice import select_feasible
from fairconstrained.model_selection.splits import StratifiedSensitiveKFold
from fairconstrained.quickstart.arguments import CONSTRAINTS

# Words that differ on more than this fraction of the rows are names or identifiers.
_IDENTIFYING = 0.5
# A column that alone predicts the outcome of 99 in 100 rows was most likely written after it.
_TELLING = 0.99
# Range of a running number per row: a tenth of the numbers may be missing, of rows that were left
# out.
_DENSE = 1.1
# Least rows of a table: with fewer, those held out would say little about any group.
_FEWEST = 200
_DAYS_OF_YEAR = 365.25
_BIRTH = re.compile(r"birth|born|dob|geb", re.IGNORECASE)
# In these data sets 1 is the worse outcome: a new arrest, a default, a disease.
_ADVERSE = {"compas", "compas_scores", "credit_card", "heart", "parkinsons"}


class Table(NamedTuple):
    """Features, labels and groups."""

    name: str
    X: pd.DataFrame
    y: NDArray[np.int64]  # 0 or 1
    groups: Any  # Series or DataFrame
    words: list[str]  # columns of X that are no numbers
    outcomes: tuple[str, str]  # meanings of 0 and 1
    notes: list[str]  # messages to the user about changes of the table

    def rows(self, index: Any) -> Table:
        """Select rows by position."""
        return self._replace(X=self.X.iloc[index], y=self.y[index], groups=self.groups.iloc[index])


def generated(seed: int) -> Table:
    """Make 8,000 loan applications, with sex as the sensitive feature."""
    loans = make_loan_applications(random_state=seed)
    y = (loans.target == "granted").astype(np.int64)
    sex = loans.sensitive_features["sex"]
    words = ["occupation", "housing"]
    return Table("loan applications", loans.data, y, sex, words, ("refused", "granted"), [])


def dataset(name: str) -> Table:
    """Load a benchmark data set with its usual sensitive feature."""
    bunch = load_dataset(name)
    X, codes = bunch.data, DATASETS[name].codes.split()
    numeric = X.select_dtypes("number").columns
    words = [column for column in X if column in codes or column not in numeric]
    groups = pd.Series(np.asarray(bunch.sensitive_features), name="group")
    better = 1 - int(name in _ADVERSE)
    y = (np.asarray(bunch.target) == better).astype(np.int64)
    outcomes = bunch.target_names[1 - better], bunch.target_names[better]
    return Table(name, X, y, groups, words, outcomes, [])


def from_file(options: argparse.Namespace) -> Table:
    """Read a user's file, or raise `Unusable`.

    The sensitive columns are no features, so that the model can be used where they are not known.
    """
    label, sensitive, drop = options.label, options.sensitive, options.drop
    file = read_table(options, [label, *sensitive, *drop])
    frame, notes = file.frame, list(file.notes)
    labelled = frame[label].notna()
    if not labelled.all():
        notes.append(f"{in_rows((~labelled).sum())} without {label}: left out.")
        frame = frame[labelled].reset_index(drop=True)
    if len(frame) < _FEWEST:
        raise Unusable(
            f"{file.name} has {len(frame)} rows with a label; a quarter of them, held out, says "
            f"too little. The quick start takes at least {_FEWEST}."
        )
    y, outcomes, spelled = _labels(frame[label], options.positive, file.name)
    groups, unknown = _groups(frame[list(dict.fromkeys(sensitive))], file.name)
    X, words, changes = _features(frame.drop(columns={label, *sensitive, *drop}), file)
    name = Path(file.name).name.split(".")[0]
    return Table(name, X, y, groups, words, outcomes, notes + spelled + unknown + changes)


def held_out(table: Table, options: argparse.Namespace) -> tuple[Table, Table]:
    """Hold out a quarter of each label in each group; raise `Unusable` if folds would lack some."""
    group, names = encode_groups(table.groups)
    strata = 2 * (group % (len(names) + 1)) + table.y  # rows of unknown group stand last
    size = np.bincount(strata)
    strata = np.where(size[strata] < 4, size.argmax(), strata)  # a few rows go anywhere
    train, test = train_test_split(
        np.arange(len(table.y)), test_size=0.25, stratify=strata, random_state=options.seed
    )
    rows = np.zeros((len(names) + 1, 2), dtype=int)
    np.add.at(rows, (group[train], table.y[train]), 1)
    rows = rows[:-1]  # of known groups
    rates = CONSTRAINTS[options.constraint][1]
    in_each = ["false_positive_rate" in rates, "true_positive_rate" in rates]
    if few := [
        f"{table.outcomes[y]} in group {group_name(names[g])}: {rows[g, y]}"
        for g, y in np.argwhere(np.where(in_each, rows, rows.max(axis=0)) < options.cv)
    ]:
        raise Unusable(
            f"Too few training rows for {options.cv} folds: {listed(few)}. Add rows, join small "
            "groups or leave them out, or take fewer folds by --cv."
        )
    notes = table.notes + _too_small(rows, table.outcomes, names, options)
    return table.rows(train)._replace(notes=notes), table.rows(test)


def _too_small(
    rows: NDArray[np.int64], outcomes: tuple[str, str], names: Any, options: argparse.Namespace
) -> list[str]:
    """Name groups with too few rows for the wanted violation, given the rows of each label."""
    counts = {
        "selection_rate": (rows.sum(axis=1), ""),
        "false_positive_rate": (rows[:, 0], f"{outcomes[0]} in "),
        "true_positive_rate": (rows[:, 1], f"{outcomes[1]} in "),
    }
    sizes, words = zip(*map(counts.get, CONSTRAINTS[options.constraint][1]), strict=True)
    cells = compared(np.stack(sizes, axis=1), options.max_violation, "auto")
    small = cells.left_out(lambda g, k: f"{words[k]}group {group_name(names[g])}")
    if not small:
        return []
    return [
        f"{listed(small)}: too few rows for a violation of at most {options.max_violation:g}. Fits "
        "leave them out of the constraint, and measured violations count them: join small groups, "
        "or leave their rows out of the table."
    ]


def _labels(
    column: Any, positive: str | None, name_of_file: str
) -> tuple[NDArray[np.int64], tuple[str, str], list[str]]:
    """Return codes, the meanings of 0 and 1, and a note of values with several spellings."""
    if pd.api.types.is_float_dtype(column) and (column % 1 == 0).all():
        column = column.astype(np.int64)  # codes, of which some were missing
    values = sorted(column.unique().tolist(), key=str)
    if len(values) < 2:
        labels = f"the labels in {column.name} are {listed(values) or 'missing'}"
        raise Unusable(f"In {name_of_file} {labels}. Learning needs two or more.")
    try:
        outcome = read_outcomes({"label": column}, positive, "--positive")["label"]
    except ValueError as error:
        raise Unusable(f"In {name_of_file}, {error}") from None
    name = f"{column.name} = " if pd.api.types.is_numeric_dtype(column) else ""
    good = sorted(outcome.good, key=str)
    others = [value for value in values if value not in good]
    notes = [f"{listed(outcome.spelled)} in {column.name} count as one value."]
    outcomes = f"{name}{listed(others)}", f"{name}{listed(good)}"
    return outcome.favourable.astype(np.int64), outcomes, notes if outcome.spelled else []


def _groups(columns: pd.DataFrame, name_of_file: str) -> tuple[Any, list[str]]:
    """Return the groups as strings, None where they are missing, and notes about them."""
    check_groups(columns)
    try:
        groups = pd.DataFrame({name: texts(columns[name], str(name)) for name in columns})
    except ValueError as error:
        raise Unusable(f"In {name_of_file}, {error}") from None
    known = groups.notna().all(axis=1)
    if len(groups[known].drop_duplicates()) < 2:
        which = "" if known.all() else " whose group is known"
        same = f"All rows of {name_of_file}{which} have the same {' and '.join(groups)}"
        raise Unusable(f"{same}: there are no groups to compare.")
    notes = [note for name in groups for note in notes_on(groups[name].unique(), name, "group")]
    if not known.all():
        notes.append(
            f"{in_rows((~known).sum())} with no {' or '.join(groups)}: used to train the model, "
            "in no group."
        )
    return groups.iloc[:, 0] if groups.shape[1] == 1 else groups, notes


def _features(X: pd.DataFrame, file: File) -> tuple[pd.DataFrame, list[str], list[str]]:
    """Return the features, the names of text columns, and notes on columns changed or dropped."""
    X, notes = _read_as_numbers(X, file.decimal)
    numeric = X.select_dtypes("number").columns
    beyond = X[numeric].abs() > np.finfo(np.float32).max  # in which scikit-learn's trees compute
    X[numeric] = X[numeric].mask(beyond)
    infinite = [c for c in numeric if beyond[c].any()]
    notes += [f"{listed(infinite)}: infinite numbers count as missing."] if infinite else []
    constant = [c for c in X if X[c].nunique(dropna=False) < 2]
    running = [c for c in numeric if _runs(X[c])]
    naming = [c for c in X if c not in numeric and X[c].nunique() > _IDENTIFYING * len(X)]
    reasons = {
        "the same in all rows": constant,
        "a running number": running,
        "different in most rows, as names and identifiers are": naming,
    }
    notes += [f"{listed(columns)}: left out, {why}." for why, columns in reasons.items() if columns]
    X = X.drop(columns={*constant, *running, *naming})
    if X.shape[1] == 0:
        raise Unusable(f"{file.name} has no features beside the label and the sensitive columns.")
    words = [c for c in X if c not in numeric]
    X = X.astype(dict.fromkeys(words, object))
    X[words] = X[words].where(X[words].isna(), X[words].astype(str))
    return X, words, notes


def _read_as_numbers(X: pd.DataFrame, decimal: str) -> tuple[pd.DataFrame, list[str]]:
    """Turn amounts, percentages and dates into numbers, with a note about each."""
    notes = []
    for name in X.select_dtypes(exclude=["number", "bool"]).columns:
        first = X[name].dropna()
        if (days := dates(X[name])) is not None:
            newest = days.max()
            born = _BIRTH.search(str(name)) is not None
            passed = newest - days if born else days - pd.Timestamp(1970, 1, 1)
            years = passed.dt.days / _DAYS_OF_YEAR
            X[name] = years.round(2) if born else (12 * years).round(1)
            way = f"the age in years on {newest:%Y-%m-%d}" if born else "months since January 1970"
            notes.append(f"{name}: dates, such as {days.dropna().iloc[0]:%Y-%m-%d}, become {way}.")
        elif (amounts := numbers(X[name], decimal)) is not None:
            X[name] = amounts
            number = amounts.dropna().iloc[0]
            notes.append(f"{name}: {first.iloc[0]!r} is read as the number {number:g}.")
    return X, notes


def _runs(column: pd.Series) -> bool:
    """Return whether a column is a running number: whole, unique and almost without gaps."""
    return bool(
        column.notna().all()
        and column.is_unique
        and (column % 1 == 0).all()
        and column.max() - column.min() < _DENSE * len(column)
    )


class Method(NamedTuple):
    """A constrained classifier, whose ``clf__slack`` is searched, and the unconstrained one."""

    name: str
    constrained: Pipeline
    free: Pipeline


class Result(NamedTuple):
    """Measurements of one fit."""

    rows: str  # "cross-validated" or "held out"
    method: str
    slack: float  # nan without a constraint
    error: float
    violation: float
    fit_time: float  # seconds
    # Ends of the error bars: a standard deviation over the folds, or a confidence interval.
    error_low: float
    error_high: float
    violation_low: float
    violation_high: float


def methods(table: Table, options: argparse.Namespace) -> list[Method]:
    """Return boosted trees and a linear model, with and without a constraint."""
    trees = make_pipeline(
        _coded(table.words, max_categories=200),
        HistGradientBoostingClassifier(
            categorical_features=list(range(len(table.words))), random_state=options.seed
        ),
    )
    fair_trees = RateConstrainedClassifier(
        options.constraint, model=trees, random_state=options.seed
    )
    indicators = make_column_transformer(
        (OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=100), table.words),
        remainder=make_pipeline(
            SimpleImputer(strategy="median", add_indicator=True), StandardScaler()
        ),
    )
    fair = RateConstrainedClassifier(options.constraint)
    free = LogisticRegression(max_iter=1_000)
    return [
        Method("trees", Pipeline([("clf", fair_trees)]), trees),
        Method(
            "linear",
            Pipeline([("preprocess", indicators), ("clf", fair)]),
            Pipeline([("preprocess", indicators), ("clf", free)]),
        ),
    ]


def _coded(words: list[str], **options: Any) -> Any:
    """Encode text columns as numbers, missing or new values as nan; leave other columns."""
    missing = {"unknown_value": np.nan, "encoded_missing_value": np.nan}
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", **missing, **options)
    return make_column_transformer((codes, words), remainder="passthrough")


def proxies(train: Table, test: Table) -> list[str]:
    """Name features that alone predict the group, or the label, of 99 % of the held-out rows."""
    columns = _coded(train.words)
    columns.set_output(transform="pandas").set_params(verbose_feature_names_out=False)
    features = columns.fit_transform(train.X), columns.transform(test.X)
    groups, others = pd.DataFrame(train.groups), pd.DataFrame(test.groups)
    sentences = [
        f"{name} tells {attribute} of {share} of the held-out rows, so the model knows it. "
        f"--drop {name} leaves it out."
        for attribute in groups
        for name, share in _predicted(features, groups[attribute], others[attribute])
    ]
    return sentences + [
        f"{name} tells the label of {share} of the held-out rows. If it is known only after the "
        f"decision, it leaks the answer: --drop {name} leaves it out."
        for name, share in _predicted(features, train.y, test.y)
    ]


def _predicted(
    features: tuple[pd.DataFrame, pd.DataFrame], *targets: Any
) -> Iterator[tuple[str, str]]:
    """Yield each feature that alone nearly always predicts the target, and how often it does."""
    known = [pd.notna(column) for column in targets]
    train, test = (table[rows] for table, rows in zip(features, known, strict=True))
    y, others = (np.asarray(column)[rows] for column, rows in zip(targets, known, strict=True))
    for name in train:
        tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=0).fit(train[[name]], y)
        right = pd.Series(tree.predict(test[[name]]) == others)
        share = right.groupby(others).mean().mean()
        if share > _TELLING:
            yield str(name), f"{100 * share:.1f} %"


def cross_validate(
    compared: list[Method], train: Table, options: argparse.Namespace
) -> tuple[str, float, Any, list[Result]]:
    """Search over method and slack; return the choice, its model fitted to all rows, and scores."""
    folds = StratifiedSensitiveKFold(options.cv, shuffle=True, random_state=options.seed)
    choose = select_feasible("accuracy", "gap", max_violation=options.max_violation)
    gap = getattr(metrics, f"{options.constraint}_scorer")
    free = [method.free for method in compared]
    n_slacks, results = len(options.slack), []
    n_fits = options.cv * len(compared) * (1 + n_slacks)
    with tqdm(total=n_fits, desc="cross-validation", unit="fit") as bar:

        def accuracy(estimator: Any, X: Any, y: Any) -> float:
            bar.update()
            return float(np.mean(estimator.predict(X) == y))

        def search(first: Any, grid: Any, refit: Any) -> Any:
            return GridSearchCV(
                Pipeline([("method", first)]),  # which decides to what the groups are routed
                grid,
                scoring={"accuracy": accuracy, "gap": gap},
                refit=refit,
                cv=folds,
                error_score="raise",
            ).fit(train.X, train.y, sensitive_features=train.groups)

        baseline = search(free[0], {"method": free}, False)
        grid = [
            {"method": [method.constrained], "method__clf__slack": options.slack}
            for method in compared
        ]
        try:
            ours = search(compared[0].constrained, grid, choose)
        except NoUsefulModelError as error:
            raise Unusable(
                "No useful model was found: with every slack, predictions of a fold are within "
                f"{CONSTANT:g} of a constant. Try more than --slack {max(options.slack):g}, or "
                "more columns."
            ) from error
    for i, method in enumerate(compared):
        results.append(_validated(f"{method.name}, unconstrained", np.nan, baseline, i))
        for j, slack in enumerate(options.slack):
            results.append(_validated(method.name, slack, ours, i * n_slacks + j))
    chosen, of_slack = divmod(ours.best_index_, n_slacks)
    best = ours.best_estimator_.named_steps["method"]
    return compared[chosen].name, options.slack[of_slack], best, results


def in_words(method: str, slack: float) -> str:
    """Name a method and its limit for readers who do not know the program."""
    names = {"trees": "Boosted trees", "linear": "A linear model", "reductions": "Reductions"}
    name = names[method.split(",")[0]]
    unit = "point" if slack == 0.01 else "points"
    limit = "without a limit" if np.isnan(slack) else f"with a limit of {100 * slack:g} {unit}"
    return f"{name} {limit}"


def _validated(method: str, slack: float, search: Any, i: int) -> Result:
    """Return means of candidate i over the folds, and a standard deviation either way."""
    scores = {name: column[i] for name, column in search.cv_results_.items()}
    error, gap = 1 - scores["mean_test_accuracy"], 0.0 - scores["mean_test_gap"]
    error_sd, gap_sd = scores["std_test_accuracy"], scores["std_test_gap"]
    ends = error - error_sd, error + error_sd, gap - gap_sd, gap + gap_sd
    return Result("cross-validated", method, slack, error, gap, scores["mean_fit_time"], *ends)


def _reached(clf: Any) -> str:
    """Say which gap a fit has reached, and on which rows."""
    reached = f"the gap on the training rows is {100 * clf.violation_:.1f} points"
    if clf.training_violation_ == clf.violation_:
        return reached
    trained = f"{100 * clf.training_violation_:.1f} by the model that predicts"
    return f"{reached} out of fold, and {trained}"


def measure(
    compared: list[Method],
    train: Table,
    test: Table,
    bounds: list[float],
    options: argparse.Namespace,
) -> tuple[list[Result], dict[str, Any], list[str]]:
    """Measure each method on the held-out rows; return results, predictions and remarks."""
    sentences: list[str] = []

    def fitted(model: Pipeline, slack: float) -> Any:
        if np.isnan(slack):
            return clone(model).fit(train.X, train.y).predict(test.X)
        model = clone(model).set_params(clf__slack=slack)
        model.fit(train.X, train.y, sensitive_features=train.groups)
        if not model[-1].feasible_:
            sentences.append(f"{in_words(name, slack)}: {_reached(model[-1])}.")
        return model.predict(test.X)

    def reductions(model: Pipeline, slack: float) -> Any:
        from fairlearn import reductions

        preprocess = clone(model["preprocess"]).set_params(sparse_threshold=0).fit(train.X)
        moment = getattr(reductions, CONSTRAINTS[options.constraint][0])(difference_bound=slack)
        reduction = reductions.ExponentiatedGradient(clone(model["clf"]), moment)
        known = encode_groups(train.groups).known  # fairlearn takes no others
        X, groups = preprocess.transform(train.X[known]), train.groups[known]
        reduction.fit(X, train.y[known], sensitive_features=groups)
        return reduction.predict(preprocess.transform(test.X), random_state=options.seed)

    jobs: list[tuple[str, float, Any, Pipeline]] = []
    for method in compared:
        jobs.append((f"{method.name}, unconstrained", np.nan, fitted, method.free))
        jobs += [(method.name, slack, fitted, method.constrained) for slack in options.slack]
    jobs += [("reductions", slack, reductions, compared[-1].free) for slack in bounds]
    results, metric = [], getattr(metrics, f"{options.constraint}_difference")
    predictions = {}
    with tqdm(jobs, desc="held-out rows", unit="fit") as bar:
        for name, slack, predict, model in bar:
            bar.set_postfix_str(name)
            start = time.perf_counter()
            predictions[name] = predicted = predict(model, slack)
            seconds = time.perf_counter() - start
            if nearly_constant(predicted):
                almost = "almost " if len(np.unique(predicted)) > 1 else ""
                people = almost + ("nobody", "everybody")[int(np.mean(predicted) > 0.5)]
                granted = f"{people} of the held-out rows gets the favourable decision"
                sentences.append(f"{in_words(name, slack)}: {granted}.")
            wrong, labels = predicted != test.y, (test.y, predicted)
            low, high = (float(end) for end in wilson(wrong.sum(), len(wrong)))
            gap = metric(*labels, sensitive_features=test.groups)
            ends = metrics.confidence_interval(
                metric, *labels, sensitive_features=test.groups, random_state=0
            )
            error = zero_one_loss(*labels)
            results.append(Result("held out", name, slack, error, gap, seconds, low, high, *ends))
    return results, predictions, sentences
