"""fairlearn's own tests of metrics that compare groups, run with ours in place of theirs.

    python -m benchmarks.fairlearn_tests CHECKOUT

CHECKOUT is a checkout of fairlearn's repository; its tests are no part of the installed package.
Prints how many tests pass, and which do not. The smallest and largest rates of a group take
``method`` in fairlearn, where it does nothing; here they do not, and it is dropped. Two tests look
for fairlearn's wording of an error.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import fairlearn.metrics
import pytest

from fairconstrained import metrics

FILES = ("test_fairness_metrics.py", "test_generated_metrics.py")
COMPARE_GROUPS = ("_difference", "_ratio", "_group_min", "_group_max")


def names():
    """Metrics of groups that both packages have."""
    both = sorted(set(metrics.__all__) & set(fairlearn.metrics.__all__))
    return [name for name in both if name.endswith(COMPARE_GROUPS)]


def in_place_of(name):
    """Our metric, to be called as fairlearn's."""
    ours = getattr(metrics, name)
    if not name.endswith(("_group_min", "_group_max")):
        return ours
    return lambda *args, method=None, **kwargs: ours(*args, **kwargs)


class Count:
    """What pytest reports of each test."""

    def __init__(self):
        self.passed, self.failed = [], []

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.failed:
            (self.passed if report.passed else self.failed).append(report)


def run(checkout):
    """Run the tests of a checkout with our metrics; the reports, passed and failed."""
    folder, count = Path(checkout) / "test" / "unit" / "metrics", Count()
    theirs = {name: getattr(fairlearn.metrics, name) for name in names()}
    try:
        for name in theirs:
            setattr(fairlearn.metrics, name, in_place_of(name))
        options = ["-q", "-c", "/dev/null", "-p", "no:cacheprovider", f"--rootdir={checkout}"]
        pytest.main([*options, *(str(folder / file) for file in FILES)], plugins=[count])
    finally:
        for name, metric in theirs.items():
            setattr(fairlearn.metrics, name, metric)
    return count


def main():
    """Run the tests, and print what fails and the count."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", help="folder of a checkout of fairlearn")
    count = run(parser.parse_args().checkout)
    for report in count.failed:
        print(f"fails: {report.nodeid}")
    total = len(count.passed) + len(count.failed)
    print(
        f"{len(count.passed)} of {total} tests of {', '.join(FILES)} pass with {len(names())} "
        "metrics of fairconstrained in place of fairlearn's."
    )


if __name__ == "__main__":
    main()
