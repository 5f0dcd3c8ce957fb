"""Results of the benchmarks, as they stand in their files."""

import csv


def rows_of(path):
    """Rows of a benchmark's results, as they stand in the file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def methods_of(table):
    """The methods that were run on each notion."""
    methods = {}
    for row in table:
        methods.setdefault(row["notion"], set()).add(row["method"])
    return methods
