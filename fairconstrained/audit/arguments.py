"""The command line of the audit: it loads nothing, so that help and errors come at once."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

# Written out, because the metrics load pandas and scikit-learn.
CRITERIA = ["demographic_parity", "equal_opportunity", "equalized_odds"]
CRITERIA += ["error_rate_parity", "false_positive_rate_parity"]
CRITERIA += ["predictive_parity", "false_omission_rate_parity"]
PRESETS = PRESET_FOUR_FIFTHS, PRESET_NYC_144 = "four_fifths", "nyc_144"
FILE = """the table, with a header: text with any separator, Excel, Parquet, also compressed by
gzip; - is the standard input"""
_POSITIVE = """the favourable decision, and the favourable label if it has another name (default: 1
of 0 and 1, or True; nothing else is guessed)"""


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about how a file is to be read; without them its contents decide."""
    add = parser.add_argument
    add("--sep", metavar="CHARACTER", help="between columns of text; tab for a tabulator")
    add("--decimal", choices=[".", ","], help="the decimal mark in text")
    add("--encoding", metavar="NAME", help="of text, such as utf-8, utf-16 or latin-1")
    add("--sheet", metavar="NAME", help="of an Excel file, by name or number from 1")


def is_there(path: Path) -> bool:
    """Return whether a file, or the standard input, can be read."""
    return str(path) == "-" or os.path.isfile(path)  # False for names that are too long


def is_writable(folder: Path) -> bool:
    """Return whether files can be written to a folder, which need not exist yet."""
    places = (folder.absolute(), *folder.absolute().parents)
    there = next(place for place in places if os.path.exists(place))
    return os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)


def read(argv: Sequence[str] | None, description: str | None) -> argparse.Namespace:
    """Parse the command line; exit with code 2 and a sentence if it is not valid."""
    parser = argparse.ArgumentParser("python -m fairconstrained.audit")
    parser.description, parser.formatter_class = description, argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--csv", type=Path, required=True, metavar="FILE", help=FILE)
    add_file_options(parser)
    decided = "what was decided (--preset nyc_144: by default whether --score is above its median)"
    add("--decision", metavar="COLUMN", help=decided)
    groups = "the groups: each column by itself, and all together"
    add("--sensitive", nargs="+", required=True, metavar="COLUMN", help=groups)
    strata = "strata, such as the kind of job: groups are compared within each"
    add("--control", nargs="+", default=[], metavar="COLUMN", help=strata)
    add("--label", metavar="COLUMN", help="what turned out to be right")
    add("--positive", nargs="+", metavar="VALUE", help=_POSITIVE)
    add("--before", metavar="COLUMN", help="earlier decisions about the same rows")
    scores = "scores that grow with the chance of the favourable label"
    add("--score", metavar="COLUMN", help=scores)
    add("--weights", metavar="COLUMN", help="weights of the rows")
    most = "a bound on the weights that was known before, for bounds on new rows"
    add("--most-weight", type=float, metavar="BOUND", help=most)
    rule = "a question by name: the four-fifths rule, or New York City's Local Law 144"
    add("--preset", choices=PRESETS, help=rule)
    named = "groups to compare with, one for each sensitive column (default: the highest rate)"
    add("--reference", nargs="+", default=[], metavar="GROUP", help=named)
    add("--criterion", default=CRITERIA[0], choices=CRITERIA, help="default: %(default)s")
    add("--slack", type=float, help="how large the difference of rates may be, such as 0.05")
    ratio = "how small the smallest ratio of rates may be, such as 0.8, in place of --slack"
    add("--ratio", type=float, help=ratio)
    parallel = "compare each sensitive column by itself only, and not all together as well"
    add("--parallel", action="store_true", help=parallel)
    add("--confidence", type=float, default=0.95, help="default: %(default)s")
    hidden = "rates that rest on fewer rows are counted and hidden (default: %(default)s)"
    add("--min-cell", type=int, default=10, metavar="ROWS", help=hidden)
    fails = "exit with code 1 if the slack or ratio is exceeded, or also with 3 if not proved"
    add("--fail-on", choices=["not-kept", "not-proved"], help=fails)
    folder = Path("audit-results")
    add("--output", type=Path, default=folder, help="folder for the files (default: %(default)s)")
    options = parser.parse_args(argv)
    options.command = " ".join([parser.prog, *(sys.argv[1:] if argv is None else argv)])
    for error in (sentence for sentence, is_so in _errors(options).items() if is_so):
        parser.error(error)
    return options


def _errors(options: argparse.Namespace) -> dict[str, bool]:
    """Return the possible errors in the options, each with whether it has occurred."""
    return {
        "--slack must be between 0 and 1": not 0 <= (options.slack or 0.0) <= 1,
        "--ratio must be between 0 and 1": options.ratio is not None and not 0 < options.ratio < 1,
        "--decision is required": not options.decision
        and not (options.preset == PRESET_NYC_144 and options.score),
        "--preset is a question: it goes without --slack, --ratio and --criterion": (
            options.preset is not None
            and (options.slack, options.ratio, options.criterion) != (None, None, CRITERIA[0])
        ),
        "--reference needs a group for each column of --sensitive": (
            len(options.reference) not in (0, len(options.sensitive))
        ),
        "--slack bounds a difference, --ratio a ratio: give one": (
            options.slack is not None and options.ratio is not None
        ),
        f"--ratio goes with --criterion {', '.join(CRITERIA[:3])}": (
            options.ratio is not None and options.criterion not in CRITERIA[:3]
        ),
        "--most-weight needs --weights COLUMN": (
            options.most_weight is not None and not options.weights
        ),
        "--confidence must be between 0 and 1": not 0 < options.confidence < 1,
        "--min-cell must be at least 1": options.min_cell < 1,
        "--fail-on needs a question: --slack, --ratio or --preset four_fifths": (
            options.fail_on is not None
            and (options.slack, options.ratio) == (None, None)
            and options.preset != PRESET_FOUR_FIFTHS
        ),
        f"--criterion {options.criterion} needs --label COLUMN": (
            options.criterion != CRITERIA[0] and not options.label
        ),
        f"{options.decision!r} is the decision; it cannot be sensitive as well": (
            options.decision in options.sensitive
        ),
        "--control and --sensitive name a column twice": (
            not set(options.control).isdisjoint(options.sensitive)
        ),
        f"there is no file {options.csv}": not is_there(options.csv),
        f"--output must be a folder to write to; got {options.output}": (
            not is_writable(options.output)
        ),
    }
