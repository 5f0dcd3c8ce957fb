"""An audit of decisions, from a table to a page: ``python -m fairconstrained.audit``.

The table has a column of decisions and columns of groups; labels, scores, earlier decisions and
weights are optional. Any model, or none, may have made the decisions. The audit writes audit.html,
one page to hand over, and audit.json with the same facts, which ``fairconstrained.report`` returns
in Python:

1. the question, and the answer in one sentence;
2. rates by group and by combination of groups, with intervals, and their ratios;
3. errors of each kind, and calibration;
4. whose decision changed;
5. what holds for future cases, and how many rows would prove more;
6. assumptions, limits, what was left out, and where all this comes from.

Exit codes: 0 if the page is written and --fail-on does not apply; 1 if the slack or ratio is
exceeded on these rows, with --fail-on not-kept or not-proved; 2 if an argument or the table cannot
be used; 3 if it is kept on these rows but not proved for future cases, or if nothing can be
compared by one of the attributes, with --fail-on not-proved.
"""

from collections.abc import Sequence

from fairconstrained.audit.arguments import read

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Audit a file with a command line, which ``["--help"]`` explains.

    Raises SystemExit with the code that the module documents: 2, after a sentence on the standard
    error, if an argument is not valid, or the table is not there or cannot be used.
    """
    options = read(argv, __doc__)
    # Imported here: help, and errors about arguments, do not wait for pandas and scikit-learn.
    from fairconstrained.audit.program import run
    from fairconstrained.audit.tables import exit_with_message

    exit_with_message(run, options)
