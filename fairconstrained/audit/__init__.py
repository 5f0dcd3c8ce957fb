"""An audit of decisions, from a table to a page: ``python -m fairconstrained.audit``.

The table has a column of decisions and columns of groups; labels, scores, earlier decisions and
weights are optional. Any model, or none, may have made the decisions. Written are audit.html, one
page to hand over, and audit.json with the same facts, which ``fairconstrained.report`` gives in
Python:

1. the question, and the answer in one sentence;
2. rates by group and by combination of groups, with intervals, and their ratios;
3. errors of each kind, and calibration;
4. whose decision changed;
5. what holds for new rows, and how many rows would prove more;
6. assumptions, limits, what was left out, and where all this comes from.
"""

from collections.abc import Sequence

from fairconstrained.audit.arguments import read

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Audit a file with a command line, which ``["--help"]`` explains.

    Raises SystemExit with code 2, after a sentence on the standard error, if an argument is not
    valid, or the table is not there or cannot be used.
    """
    options = read(argv, __doc__)
    # Imported here: help, and errors about arguments, do not wait for pandas and scikit-learn.
    from fairconstrained.audit.program import run
    from fairconstrained.audit.tables import or_a_sentence

    or_a_sentence(run, options)
