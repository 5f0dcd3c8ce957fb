"""The command line of the quick start: it loads nothing, so that help and errors come at once."""

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from fairconstrained.audit.arguments import FILE, add_file_options, is_there, is_writable

GENERATED = "loans"
# Written out, because the data sets load pandas and scikit-learn.
DATASETS = ["a9a", "acs_income_ok", "adult", "bank", "compas", "compas_scores", "credit_card"]
DATASETS += ["heart", "law_school", "parkinsons"]
# Constraints, their classes in fairlearn, and the rates that they compare.
CONSTRAINTS = {
    "demographic_parity": ("DemographicParity", ["selection_rate"]),
    "equalized_odds": ("EqualizedOdds", ["true_positive_rate", "false_positive_rate"]),
    "equal_opportunity": ("TruePositiveRateParity", ["true_positive_rate"]),
}
_REDUCTIONS = """bounds for fairlearn's reductions, none to leave them out (default: the grid on
generated data, else the wanted violation: one fit on adult takes half a minute)"""


def read(argv: Sequence[str] | None, description: str | None) -> argparse.Namespace:
    """Return the options, or exit with code 2 and a sentence."""
    parser = argparse.ArgumentParser("python -m fairconstrained.quickstart")
    parser.description, parser.formatter_class = description, argparse.RawDescriptionHelpFormatter
    tables, add = parser.add_mutually_exclusive_group(), parser.add_argument
    known = [GENERATED, *DATASETS]
    places = "generated (default), or real: from the folder FAIRCONSTRAINED_DATA, or downloaded"
    tables.add_argument("--dataset", default=GENERATED, choices=known, help=places)
    tables.add_argument("--csv", type=Path, metavar="FILE", help=f"your own: {FILE}")
    add_file_options(parser)
    add("--label", metavar="COLUMN", help="of the CSV file: what is predicted")
    groups = "of the CSV file: the groups, crossed if several; they are no features"
    add("--sensitive", nargs="+", default=[], metavar="COLUMN", help=groups)
    add("--positive", metavar="VALUE", help="the favourable label (default: 1 or True)")
    add("--drop", nargs="+", default=[], metavar="COLUMN", help="columns that are no features")
    add("--constraint", default="demographic_parity", choices=CONSTRAINTS)
    add("--slack", nargs="+", type=float, default=[0.01, 0.02, 0.05, 0.1, 0.2], help="the grid")
    chosen = "the search chooses the best mean accuracy within it (default: %(default)s)"
    add("--max-violation", type=float, default=0.05, help=chosen)
    add("--cv", type=int, default=3, help="number of folds (default: %(default)s)")
    add("--reductions", nargs="*", type=float, help=_REDUCTIONS)
    folder = Path("quickstart-results")
    add("--output", type=Path, default=folder, help="folder for the files (default: %(default)s)")
    add("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    options.command = " ".join([parser.prog, *(sys.argv[1:] if argv is None else argv)])
    csv, label, sensitive = options.csv, options.label, options.sensitive
    bounds = [*options.slack, options.max_violation, *(options.reductions or [])]
    inside = all(0 <= bound <= 1 for bound in bounds)
    only = label or sensitive or options.positive or options.drop
    only = only or options.sheet or options.sep or options.decimal or options.encoding
    errors = {
        "--slack, --max-violation and --reductions must be between 0 and 1": not inside,
        "--cv must be at least 2": options.cv < 2,
        "--seed must be at least 0 and less than 2**32": not 0 <= options.seed < 2**32,
        "--label, --sensitive, --positive, --drop and options of files go with --csv": (
            only and not csv
        ),
        "--csv needs --label COLUMN and --sensitive COLUMN [COLUMN ...]": (
            csv and not (label and sensitive)
        ),
        f"{label!r} is the label; it cannot be sensitive as well": label in sensitive,
        f"there is no file {csv}": csv and not is_there(csv),
        f"--output must be a folder to write to; got {options.output}": (
            not is_writable(options.output)
        ),
        "the pictures need matplotlib: pip install matplotlib": (
            importlib.util.find_spec("matplotlib") is None
        ),
    }
    for error in (sentence for sentence, is_so in errors.items() if is_so):
        parser.error(error)
    if options.reductions is None:
        made = not csv and options.dataset == GENERATED
        options.reductions = options.slack if made else [options.max_violation]
    return options
