"""Results of the benchmarks, as they stand in their files."""

import csv


def rows_of(path):
    """Rows of a benchmark's results, as they stand in the file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
