"""The command line of the quick start: it loads nothing, so that help and errors come at once."""

import argparse
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

GENERATED = "loans"
# Written out, because the data sets load pandas and scikit-learn.
DATASETS = (
    *("a9a", "acs_income_ok", "adult", "bank", "compas", "compas_scores", "credit_card", "heart"),
    *("law_school", "parkinsons"),
)
# Constraints, their classes in fairlearn, and the rates that they compare.
NOTIONS = {
    "demographic_parity": ("DemographicParity", ["selection_rate"]),
    "equalized_odds": ("EqualizedOdds", ["true_positive_rate", "false_positive_rate"]),
    "equal_opportunity": ("TruePositiveRateParity", ["true_positive_rate"]),
}


def read(argv: Sequence[str] | None, description: str | None) -> argparse.Namespace:
    """Return the options, or exit with code 2 and a sentence."""
    parser = argparse.ArgumentParser(
        prog="python -m fairconstrained.quickstart",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tables = parser.add_mutually_exclusive_group()
    tables.add_argument(
        "--dataset",
        default=GENERATED,
        choices=[GENERATED, *DATASETS],
        help="generated loan applications (default), or real data, which are read from the folder "
        "FAIRCONSTRAINED_DATA or else downloaded",
    )
    tables.add_argument("--csv", type=Path, metavar="FILE", help="your own table, with a header")
    add, fraction = parser.add_argument, _number(float, 0, 1)
    add("--label", metavar="COLUMN", help="of the CSV file: what is predicted")
    add(
        "--sensitive",
        nargs="+",
        metavar="COLUMN",
        help="of the CSV file: the groups, crossed if several; they are no features",
    )
    add("--positive", metavar="VALUE", help="the favourable label (default: 1 or True)")
    add("--drop", nargs="+", default=[], metavar="COLUMN", help="columns that are no features")
    add("--notion", default="demographic_parity", choices=NOTIONS)
    add("--slack", nargs="+", type=fraction, default=[0.01, 0.02, 0.05, 0.1, 0.2], help="the grid")
    add(
        "--max-violation",
        type=fraction,
        default=0.05,
        help="the search chooses the best mean accuracy within it (default: %(default)s)",
    )
    folds = _number(int, 2, 1_000)
    add("--cv", type=folds, default=3, help="number of folds (default: %(default)s)")
    add(
        "--reductions",
        nargs="*",
        type=fraction,
        help="bounds for fairlearn's reductions, none to leave them out (default: the grid on "
        "generated data, else the wanted violation: one fit on adult takes half a minute)",
    )
    folder = Path("quickstart-results")
    add("--output", type=Path, default=folder, help="folder for the files (default: %(default)s)")
    add("--seed", type=_number(int, 0, 2**32 - 1), default=0)
    options = parser.parse_args(argv)
    if options.csv is None:
        if options.label or options.sensitive or options.positive or options.drop:
            parser.error("--label, --sensitive, --positive and --drop go with --csv")
    elif options.label is None or not options.sensitive:
        parser.error("--csv needs --label COLUMN and --sensitive COLUMN [COLUMN ...]")
    elif options.label in options.sensitive:
        parser.error(f"{options.label!r} is the label; it cannot be sensitive as well")
    elif not options.csv.is_file():
        parser.error(f"there is no file {options.csv}")
    if importlib.util.find_spec("matplotlib") is None:
        parser.error("the pictures need matplotlib: pip install matplotlib")
    return options


def _number(kind: type[float], least: int, most: int) -> Callable[[str], float]:
    """A type of arguments: numbers within two bounds."""

    def number(text: str) -> float:
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be between {least} and {most}; got {text}")
        return value

    return number
