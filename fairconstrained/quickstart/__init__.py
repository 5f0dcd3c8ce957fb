"""A fair model from end to end, from a table to a report: ``python -m fairconstrained.quickstart``.

1. Hold out a quarter of the rows.
2. Search over the model (boosted trees, linear) and the slack by cross-validation, scoring
   accuracy and fairness.
3. Refit the most accurate candidate whose violation is small enough.
4. On the held-out rows, with confidence intervals, compare all slacks, the unconstrained models
   and fairlearn's reductions; list the rates of each group; certify the chosen model.
5. Write one page about the chosen model, before and after the constraint (audit.html, audit.json),
   the trade-off (tradeoff.csv, tradeoff.png), the rates of the groups (groups.csv, groups.png), the
   certificate (certificate.json) and the model (model.joblib) to the folder quickstart-results.

By default the table is generated. ``--dataset adult`` and other names use real data, ``--csv FILE
--label COLUMN --sensitive COLUMN [COLUMN ...]`` your own: text with any separator, Excel, Parquet.
"""

from collections.abc import Sequence

from fairconstrained.quickstart.arguments import read

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the quick start with a command line, which ``["--help"]`` explains.

    Raises SystemExit with code 2, after a sentence on the standard error, if an argument is not
    valid, or the table is not there or cannot be used.
    """
    options = read(argv, __doc__)
    # Imported here: help, and errors about arguments, do not wait for torch and scikit-learn.
    from fairconstrained.audit.tables import exit_with_message
    from fairconstrained.quickstart.program import run

    exit_with_message(run, options)
